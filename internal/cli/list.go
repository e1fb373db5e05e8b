package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

// listing is what the list command was asked for.
type listing struct {
	selector, node, sort string
	unmanaged            bool
	output               output
}

func listCommand(s Streams, f *flags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List pods with request, limit, use, throttling and what MBCAS decided",
		Long: "List the pods that MBCAS manages: what they request, how they are limited, what they use, and where\n" +
			"their allocation stands. Below the table is counted what is not managed, and why.\n" +
			"Use, throttling, demand and price come from the agent of the pod's node, or, where it cannot be asked,\n" +
			"from the pod's last published decision; -o wide shows how old they are.",
		Example: "  kubectl mbcas list -A --sort throttled\n  kubectl mbcas list -n shop -l app=cart -o wide\n  kubectl mbcas list --all -o json",
		Args:    noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			return list(ctx, a, s, l)
		}),
	}
	f.scope(cmd)
	cmd.Flags().StringVarP(&l.selector, "selector", "l", "", "label selector")
	cmd.Flags().StringVar(&l.node, "node", "", "only pods of this node")
	cmd.Flags().StringVar(&l.sort, "sort", "name", "sort by name, use, limit, demand or throttled")
	cmd.Flags().BoolVar(&l.unmanaged, "all", false, "list pods that are not managed, too")
	outputFlag(cmd, &l.output, asWide, asJSON, asYAML)
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sortKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func list(ctx context.Context, a *cluster.Access, s Streams, l listing) error {
	order, ok := orders[l.sort]
	if !ok {
		return UsageError{fmt.Errorf("--sort %q: want one of %s", l.sort, strings.Join(sortKeys(), ", "))}
	}
	selector, err := labels.Parse(l.selector)
	if err != nil {
		return UsageError{fmt.Errorf("-l %q: %w", l.selector, err)}
	}
	w, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Node: l.node, Labels: selector})
	if err != nil {
		return err
	}
	cluster.ReadRounds(ctx, a, w)
	rows := w.Rows()
	order(rows)
	view := newListView(rows, l.unmanaged, w.Notes)
	view.scope = format.Scope{Namespace: a.Namespace, Node: l.node, Selector: l.selector}
	if done, err := encode(s.Out, l.output, view); done {
		return err
	}
	_, err = fmt.Fprint(s.Out, view.text(l.output == asWide, a.Now()))
	return err
}

// ListView is what list prints, in -o json and yaml as it stands.
type ListView struct {
	Pods []snapshot.Row `json:"pods"`
	// Total counts all pods looked at, Managed those that MBCAS manages.
	Total   int `json:"total"`
	Managed int `json:"managed"`
	// NotManaged counts the others by reason, the most frequent first.
	NotManaged []ReasonCount `json:"notManaged"`
	Notes      []string      `json:"notes,omitempty"`
	scope      format.Scope
}

// ReasonCount is how many pods have the same reason for not being managed.
type ReasonCount struct {
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Message string `json:"message"`
}

// newListView keeps the managed rows, or all of them, and counts the others.
func newListView(rows []snapshot.Row, unmanaged bool, notes []string) ListView {
	v := ListView{Pods: []snapshot.Row{}, NotManaged: []ReasonCount{}, Total: len(rows), Notes: notes}
	counts := map[string]int{}
	messages := map[string]string{}
	for _, r := range rows {
		if r.Managed || unmanaged {
			v.Pods = append(v.Pods, r)
		}
		if r.Managed {
			v.Managed++
			continue
		}
		counts[r.Reason]++
		messages[r.Reason] = r.Message
	}
	for reason, n := range counts {
		v.NotManaged = append(v.NotManaged, ReasonCount{reason, n, messages[reason]})
	}
	slices.SortFunc(v.NotManaged, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return v
}

// text is the view as a table with its footer.
func (v ListView) text(wide bool, now time.Time) string {
	var b strings.Builder
	if len(v.Pods) > 0 {
		b.WriteString(listTable(v.Pods, v.scope.Namespace == "", wide, now).String())
		b.WriteByte('\n')
	}
	switch {
	case v.Total == 0:
		fmt.Fprintf(&b, "No pods in %s.\n", v.scope.None())
	default:
		fmt.Fprintf(&b, "%d of %s in %s managed.\n", v.Managed, format.Plural(v.Total, "pod"), v.scope)
	}
	if len(v.NotManaged) > 0 {
		b.WriteString("Not managed:\n")
		t := format.Table{}
		for _, n := range v.NotManaged {
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%4d", n.Count), n.Reason, n.Message})
		}
		b.WriteString(t.String())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	return b.String()
}

func listTable(rows []snapshot.Row, namespaces, wide bool, now time.Time) *format.Table {
	t := &format.Table{}
	if namespaces {
		t.Header = append(t.Header, "NAMESPACE")
	}
	t.Header = append(t.Header, "POD", "REQUEST", "LIMIT", "DECLARED", "USE", "THROTTLED", "DEMAND", "PRICE", "PHASE", "REASON")
	if wide {
		t.Header = append(t.Header, "NODE", "DESIRED", "FLOOR", "CEILING", "BUDGET", "PRESSURE", "BOUND-BY", "TERMS", "SEEN", "MESSAGE")
	}
	for _, r := range rows {
		var cells []string
		if namespaces {
			cells = append(cells, r.Namespace)
		}
		d := figureText(r.Figures, now)
		cells = append(cells, r.Pod, format.Amount(r.Request), limitText(r), pointer(r.Declared), d.use, d.throttled, d.demand, d.price, string(r.Phase), r.Reason)
		if wide {
			cells = append(cells, r.Node, pointer(r.Desired), d.floor, d.ceiling, d.budget, d.pressure, d.bound, explain.ConstraintWords(r.Terms), d.seen, r.Message)
		}
		t.Add(cells...)
	}
	return t
}

// figureCells are a pod's figures as text; all "" where there are none.
type figureCells struct {
	use, throttled, demand, price, floor, ceiling, budget, pressure, bound, seen string
}

func figureText(f *snapshot.Figures, now time.Time) figureCells {
	if f == nil {
		return figureCells{}
	}
	c := figureCells{
		use: f.Usage.String(), throttled: fmt.Sprintf("%d%%", f.Throttled), demand: f.Demand.String(), price: f.Price,
		floor: f.Floor.String(), ceiling: f.Ceiling.String(), budget: fmt.Sprint(f.Budget), bound: string(f.BoundBy),
		pressure: format.Percent(f.Pressure), seen: format.Age(now.Sub(f.At)),
	}
	return c
}

// limitText marks a total that leaves out containers without a limit.
func limitText(r snapshot.Row) string {
	switch {
	case r.Limit == 0:
		return "none"
	case r.Unlimited > 0:
		return r.Limit.String() + "+none"
	}
	return r.Limit.String()
}

func pointer(m *cpu.Milli) string {
	if m == nil {
		return ""
	}
	return m.String()
}

// orders are the ways to sort a list; amounts put the largest first.
var orders = map[string]func([]snapshot.Row){
	"name":  func(rows []snapshot.Row) { slices.SortFunc(rows, snapshot.ByName) },
	"limit": func(rows []snapshot.Row) { descending(rows, func(s snapshot.Row) cpu.Milli { return s.Limit }) },
	"use": func(rows []snapshot.Row) {
		descending(rows, func(s snapshot.Row) cpu.Milli {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Usage
		})
	},
	"demand": func(rows []snapshot.Row) {
		descending(rows, func(s snapshot.Row) cpu.Milli {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Demand
		})
	},
	"throttled": func(rows []snapshot.Row) {
		descending(rows, func(s snapshot.Row) int32 {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Throttled
		})
	},
}

func sortKeys() []string { return slices.Sorted(maps.Keys(orders)) }

func descending[T cmp.Ordered](rows []snapshot.Row, value func(snapshot.Row) T) {
	slices.SortFunc(rows, func(a, b snapshot.Row) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), snapshot.ByName(a, b))
	})
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

type listFlags struct {
	selection
	sort      string
	unmanaged bool
	show      output.Show
}

func listCommand(s Streams, f *flags) *cobra.Command {
	var l listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List pods with request, limit, usage, throttling and the decision of MBCAS",
		Long: "List the managed pods with their requests, limits, usage and the state of their allocation.\n" +
			"The counts below the table say how many pods are not managed, and why.\n" +
			"Usage, throttling, demand and price come from the agent of the pod's node. If it cannot be reached,\n" +
			"they come from the pod's last published decision; -o wide shows their age.",
		Example: "  kubectl mbcas list -A --sort throttled\n  kubectl mbcas list -n shop -l app=cart -o wide\n" +
			"  kubectl mbcas list --all -o json",
		Args: noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			return listPods(ctx, a, s, l)
		}),
	}
	l.bind(f, cmd)
	cmd.Flags().StringVar(&l.sort, "sort", "name", "sort by name, usage, limit, demand or throttled")
	cmd.Flags().BoolVar(&l.unmanaged, "all", false, "also list pods that are not managed")
	l.show.Bind(cmd, output.Wide)
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sortKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func listPods(ctx context.Context, a *cluster.Access, s Streams, l listFlags) error {
	sort, ok := sorts[l.sort]
	if !ok {
		return UsageError{Err: fmt.Errorf("--sort %q: want one of %s", l.sort, strings.Join(sortKeys(), ", "))}
	}
	return l.show.Run(ctx, s, func(ctx context.Context) (output.View, error) {
		snap, err := l.read(ctx, a)
		if err != nil {
			return nil, err
		}
		rows := snap.Rows()
		sort(rows)
		view := newListView(rows, l.unmanaged, snap.Notes)
		view.scope, view.wide, view.now = l.scope(a), l.show.Form == output.Wide, a.ServerNow()
		return view, nil
	})
}

// selection is which pods a command is about.
type selection struct{ pod, selector, node string }

func (s *selection) bind(f *flags, cmd *cobra.Command) {
	f.allNamespacesFlag(cmd)
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "label selector")
	cmd.Flags().StringVar(&s.node, "node", "", "only pods of this node")
}

// read reads the pods, with the last rounds of their nodes.
func (s selection) read(ctx context.Context, a *cluster.Access) (*snapshot.Snapshot, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, UsageError{Err: fmt.Errorf("-l %q: %w", s.selector, err)}
	}
	snap, err := cluster.Read(ctx, a,
		cluster.Selection{Namespace: a.Namespace, Pod: s.pod, Node: s.node, Labels: selector})
	if err == nil {
		cluster.ReadRounds(ctx, a, snap)
	}
	return snap, err
}

func (s selection) scope(a *cluster.Access) format.Scope {
	return format.Scope{Namespace: a.Namespace, Node: s.node, Selector: s.selector}
}

// ListView is what list prints.
type ListView struct {
	Pods []snapshot.Row `json:"pods"`
	// Total counts all pods of the scope, Managed the managed ones.
	Total   int `json:"total"`
	Managed int `json:"managed"`
	// NotManaged counts the others by reason, the most frequent first.
	NotManaged []ReasonCount `json:"notManaged"`
	Notes      []string      `json:"notes,omitempty"`
	scope      format.Scope
	wide       bool
	now        time.Time
}

// Items are the pods.
func (v ListView) Items() []output.Item { return podItems(v.Pods) }

func podItems(rows []snapshot.Row) (items []output.Item) {
	for _, r := range rows {
		items = append(items, output.Item{Name: "pod/" + r.Pod, Fields: r})
	}
	return items
}

// ReasonCount is how many pods are not managed for a reason.
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

// Text is the view as a table with the counts below it.
func (v ListView) Text(style format.Style) string {
	var b strings.Builder
	if len(v.Pods) > 0 {
		b.WriteString(listTable(v.Pods, v.scope.Namespace == "", v.wide, v.now).Text(style))
		b.WriteByte('\n')
	}
	if v.Total == 0 {
		fmt.Fprintf(&b, "No pods in %s.\n", v.scope.None())
	} else {
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
	writeNotes(&b, v.Notes)
	return b.String()
}

func writeNotes(b *strings.Builder, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(b, "Note: %s\n", n)
	}
}

func listTable(rows []snapshot.Row, namespaces, wide bool, now time.Time) *format.Table {
	t := &format.Table{Header: []string{"NAMESPACE", "POD", "REQUEST", "LIMIT", "DECLARED", "USAGE", "THROTTLED",
		"DEMAND", "PRICE", "PHASE", "REASON"}, Drop: []string{"PRICE", "DECLARED", "REQUEST", "REASON", "DEMAND", "PHASE"},
		Meaning: podMeaning}
	if wide {
		t.Header = append(t.Header, "NODE", "DESIRED", "FLOOR", "CEILING", "BUDGET", "PRESSURE", "BOUND-BY",
			"CONSTRAINTS", "SEEN", "MESSAGE")
	}
	for _, r := range rows {
		f := cellsOf(r.Figures, now)
		cells := []string{r.Namespace, r.Pod, format.CPU(r.Request), limitText(r), optional(r.Declared),
			f.usage, f.throttled, f.demand, f.price, string(r.Phase), r.Reason}
		if wide {
			cells = append(cells, r.Node, optional(r.Desired), f.floor, f.ceiling, f.budget, f.pressure, f.boundBy,
				explain.ConstraintWords(r.Constraints), f.seen, r.Message)
		}
		t.Add(cells...)
	}
	if !namespaces {
		t.DropFirst()
	}
	return t
}

// podMeaning is that of a cell of list and usage.
func podMeaning(header, cell string) format.Meaning {
	switch header {
	case "PHASE":
		if cell == string(v1alpha1.PhaseFailed) {
			return format.Failed
		}
	case "BOUND-BY":
		if cell == string(v1alpha1.BoundByPrice) {
			return format.Capped
		}
	case "THROTTLED":
		if p, err := strconv.Atoi(strings.TrimSuffix(cell, "%")); err == nil && p >= snapshot.SomeThrottled {
			return format.Throttled
		}
	}
	return format.Plain
}

// figureCells are a pod's figures as cells of a table; all "" without figures.
type figureCells struct {
	usage, throttled, demand, price, floor, ceiling, budget, pressure, boundBy, seen string
}

func cellsOf(f *snapshot.Figures, now time.Time) figureCells {
	if f == nil {
		return figureCells{}
	}
	return figureCells{
		usage: f.Usage.String(), throttled: fmt.Sprintf("%d%%", f.Throttled),
		demand: f.Demand.String(), price: f.Price.String(),
		floor: f.Floor.String(), ceiling: f.Ceiling.String(), budget: fmt.Sprint(f.Budget), boundBy: string(f.BoundBy),
		pressure: format.Percent(f.Pressure), seen: format.Age(now.Sub(f.At)),
	}
}

// limitText marks a sum that leaves out containers without a limit.
func limitText(r snapshot.Row) string {
	switch {
	case r.Limit == 0:
		return "none"
	case r.Unlimited > 0:
		return r.Limit.String() + "+none"
	}
	return r.Limit.String()
}

func optional(m *cpu.Milli) string {
	if m == nil {
		return ""
	}
	return m.String()
}

// sorts are the ways to sort a list. Amounts are sorted from the largest down.
var sorts = map[string]func([]snapshot.Row){
	"name":      func(rows []snapshot.Row) { slices.SortFunc(rows, snapshot.ByName) },
	"limit":     func(rows []snapshot.Row) { descending(rows, func(r snapshot.Row) cpu.Milli { return r.Limit }) },
	"usage":     byFigure(func(f *snapshot.Figures) cpu.Milli { return f.Usage }),
	"demand":    byFigure(func(f *snapshot.Figures) cpu.Milli { return f.Demand }),
	"throttled": byFigure(func(f *snapshot.Figures) int32 { return f.Throttled }),
}

func sortKeys() []string { return slices.Sorted(maps.Keys(sorts)) }

// byFigure sorts by a figure that is not negative. Rows without figures come last.
func byFigure[T int32 | cpu.Milli](value func(*snapshot.Figures) T) func([]snapshot.Row) {
	return func(rows []snapshot.Row) {
		descending(rows, func(r snapshot.Row) T {
			if r.Figures == nil {
				return -1
			}
			return value(r.Figures)
		})
	}
}

func descending[T cmp.Ordered](rows []snapshot.Row, value func(snapshot.Row) T) {
	slices.SortFunc(rows, func(a, b snapshot.Row) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), snapshot.ByName(a, b))
	})
}

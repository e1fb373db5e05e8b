package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

func usageCommand(s Streams, f *flags) *cobra.Command {
	var o output
	var selector, node string
	cmd := &cobra.Command{
		Use:     "usage [POD]",
		Aliases: []string{"top"},
		Short:   "Show what pods use, how much they are throttled, and what they would use",
		Long: "Show what the kernel's counters say about the managed pods: CPU in use, the share of periods in which\n" +
			"they are throttled, the share of time in which they wait for a CPU, and the demand that follows from it.\n" +
			"The figures come from the agent of the pod's node, or from the last published decision.",
		Example:           "  kubectl mbcas usage -A\n  kubectl mbcas usage cart-7d9f -n shop",
		Args:              podArgs(0, 1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			return usage(ctx, a, s, strings.Join(args, ""), selector, node, o)
		}),
	}
	f.scope(cmd)
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector")
	cmd.Flags().StringVar(&node, "node", "", "only pods of this node")
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

// UsageView is what usage prints.
type UsageView struct {
	Pods []snapshot.Row `json:"pods"`
	// Nodes are the markets of the nodes whose agents answered.
	Nodes []snapshot.Market `json:"nodes"`
	Notes []string          `json:"notes,omitempty"`
	scope format.Scope
}

func usage(ctx context.Context, a *cluster.Access, s Streams, pod, selector, node string, o output) error {
	if pod != "" && a.Namespace == "" {
		return UsageError{fmt.Errorf("a pod and --all-namespaces exclude each other: name its namespace with -n")}
	}
	sel, err := labels.Parse(selector)
	if err != nil {
		return UsageError{fmt.Errorf("-l %q: %w", selector, err)}
	}
	w, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: pod, Node: node, Labels: sel})
	if err != nil {
		return err
	}
	cluster.ReadRounds(ctx, a, w)
	for _, m := range w.Markets {
		if said := explain.Signals(cluster.ReadNodeAllocations(ctx, a, w, m.Node)); said != "" {
			text := explain.NodeDemand(&m)
			w.Note("%s. %s", strings.ToUpper(text[:1])+text[1:], said)
		}
	}
	rows := w.Rows()
	orders["name"](rows)
	if pod != "" && rows[0].Figures == nil {
		return fmt.Errorf("pod %s/%s has no figures: %s", a.Namespace, pod, rows[0].Message)
	}
	rows = slices.DeleteFunc(rows, func(r snapshot.Row) bool { return r.Figures == nil })
	view := UsageView{Pods: rows, Nodes: w.Markets, Notes: w.Notes, scope: format.Scope{Namespace: a.Namespace, Node: node, Selector: selector}}
	if done, err := encode(s.Out, o, view); done {
		return err
	}
	_, err = fmt.Fprint(s.Out, view.text(a.Now()))
	return err
}

// text is the view as tables.
func (v UsageView) text(now time.Time) string {
	var b strings.Builder
	if len(v.Pods) == 0 {
		fmt.Fprintf(&b, "No pod in %s has figures: MBCAS manages none there, or has not decided yet; see \"kubectl mbcas list\".\n", v.scope.None())
	} else {
		b.WriteString(usageTable(v.Pods, v.scope.Namespace == "", now).String())
	}
	if len(v.Nodes) > 0 {
		t := &format.Table{Header: []string{"NODE", "SUPPLY", "USE", "DEMAND", "SYSTEM", "PRICE", "PRESSURE", "BIDDERS", "OTHERS"}}
		for _, m := range v.Nodes {
			t.Add(m.Node, m.Supply.String(), m.Usage.String(), m.Demand.String(), m.System.String(), m.Price, format.Percent(m.Pressure), fmt.Sprint(m.Bidders), fmt.Sprint(m.Shadows))
		}
		b.WriteString("\n" + t.String())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	return b.String()
}

func usageTable(rows []snapshot.Row, namespaces bool, now time.Time) *format.Table {
	t := &format.Table{}
	if namespaces {
		t.Header = append(t.Header, "NAMESPACE")
	}
	t.Header = append(t.Header, "POD", "LIMIT", "USE", "OF-LIMIT", "THROTTLED", "PRESSURE", "DEMAND", "BOUND-BY", "SEEN", "READING")
	for _, r := range rows {
		var cells []string
		if namespaces {
			cells = append(cells, r.Namespace)
		}
		f := figureText(r.Figures, now)
		share := ""
		if r.Limit > 0 {
			share = fmt.Sprintf("%.0f%%", 100*r.Figures.Usage.Cores()/r.Limit.Cores())
		}
		t.Add(append(cells, r.Pod, limitText(r), f.use, share, f.throttled, f.pressure, f.demand, f.bound, f.seen, diagnosis(r))...)
	}
	return t
}

// diagnosis says in a few words what the counters mean.
func diagnosis(r snapshot.Row) string {
	f := r.Figures
	switch f.Bottleneck() {
	case snapshot.BottleneckStall:
		return "waits for memory or IO"
	case snapshot.BottleneckLimit:
		return "held back by its limit"
	case snapshot.BottleneckBursts:
		return "bursts touch its limit"
	case snapshot.BottleneckContention:
		return "waits for a CPU, not for its limit"
	case snapshot.BottleneckNone:
	}
	if r.Limit > 0 && f.Usage*20 < r.Limit {
		return "nearly idle"
	}
	return "fits"
}

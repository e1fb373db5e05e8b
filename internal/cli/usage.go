package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

func usageCommand(s Streams, f *flags) *cobra.Command {
	var sel selection
	var show output.Show
	cmd := &cobra.Command{
		Use:   "usage [POD]",
		Short: "Show usage, throttling and demand of pods",
		Long: "Show what the kernel's counters say about the managed pods: CPU usage, the share of periods in\n" +
			"which they are throttled, the share of time in which they wait for a CPU, and their demand.\n" +
			"The figures come from the agent of the pod's node, or from the last published decision.",
		Example:           "  kubectl mbcas usage -A\n  kubectl mbcas usage cart-7d9f -n shop",
		Args:              podArgs(0),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			sel.pod = strings.Join(args, "")
			return showUsage(ctx, a, s, sel, show)
		}),
	}
	sel.bind(f, cmd)
	show.Bind(cmd)
	return cmd
}

// UsageView is what usage prints.
type UsageView struct {
	Pods []snapshot.Row `json:"pods"`
	// Nodes are the markets of the nodes whose last round could be read.
	Nodes []snapshot.Market `json:"nodes"`
	Notes []string          `json:"notes,omitempty"`
	scope format.Scope
	now   time.Time
}

// Items are the pods.
func (v UsageView) Items() []output.Item { return podItems(v.Pods) }

func showUsage(ctx context.Context, a *cluster.Access, s Streams, sel selection, show output.Show) error {
	if sel.pod != "" && a.Namespace == "" {
		return UsageError{Err: errors.New("a pod and --all-namespaces exclude each other: name its namespace with -n")}
	}
	return show.Run(ctx, s, func(ctx context.Context) (output.View, error) { return readUsage(ctx, a, sel) })
}

func readUsage(ctx context.Context, a *cluster.Access, sel selection) (output.View, error) {
	snap, err := sel.read(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, m := range snap.Markets {
		if signals := explain.Signals(cluster.ReadNodeConstraints(ctx, a, snap, m.Node)); signals != "" {
			demand := explain.NodeDemand(&m)
			snap.Note("%s. %s", strings.ToUpper(demand[:1])+demand[1:], signals)
		}
	}
	rows := snap.Rows()
	slices.SortFunc(rows, snapshot.ByName)
	if sel.pod != "" && rows[0].Figures == nil {
		return nil, fmt.Errorf("pod %s/%s has no figures: %s", a.Namespace, sel.pod, rows[0].Message)
	}
	rows = slices.DeleteFunc(rows, func(r snapshot.Row) bool { return r.Figures == nil })
	return UsageView{Pods: rows, Nodes: snap.Markets, Notes: snap.Notes, scope: sel.scope(a), now: a.ServerNow()}, nil
}

// Text is the view as tables.
func (v UsageView) Text(style format.Style) string {
	var b strings.Builder
	if len(v.Pods) == 0 {
		fmt.Fprintf(&b, "No pod in %s has figures: MBCAS manages none there, or has not decided yet; see "+
			"\"kubectl mbcas list\".\n", v.scope.None())
	} else {
		b.WriteString(usageTable(v.Pods, v.scope.Namespace == "", v.now).Text(style))
	}
	if len(v.Nodes) > 0 {
		t := &format.Table{Header: []string{"NODE", "SUPPLY", "USAGE", "DEMAND", "SYSTEM", "PRICE", "PRESSURE",
			"MANAGED", "UNMANAGED"}, Drop: []string{"UNMANAGED", "MANAGED", "SYSTEM", "PRESSURE"}}
		for _, m := range v.Nodes {
			t.Add(m.Node, m.Supply.String(), m.Usage.String(), m.Demand.String(), m.System.String(), m.Price.String(),
				format.Percent(m.Pressure), fmt.Sprint(m.Managed), fmt.Sprint(m.Unmanaged))
		}
		b.WriteString("\n" + t.Text(style))
	}
	writeNotes(&b, v.Notes)
	return b.String()
}

func usageTable(rows []snapshot.Row, namespaces bool, now time.Time) *format.Table {
	t := &format.Table{Header: []string{"NAMESPACE", "POD", "LIMIT", "USAGE", "OF-LIMIT", "THROTTLED", "PRESSURE",
		"DEMAND", "BOUND-BY", "SEEN", "DIAGNOSIS"}, Drop: []string{"PRESSURE", "OF-LIMIT", "SEEN", "DEMAND", "DIAGNOSIS", "BOUND-BY"},
		Meaning: podMeaning}
	for _, r := range rows {
		f := cellsOf(r.Figures, now)
		share := ""
		if r.Limit > 0 {
			share = fmt.Sprintf("%.0f%%", 100*r.Figures.Usage.Cores()/r.Limit.Cores())
		}
		t.Add(r.Namespace, r.Pod, limitText(r), f.usage, share, f.throttled, f.pressure, f.demand, f.boundBy, f.seen,
			diagnosis(r))
	}
	if !namespaces {
		t.DropFirst()
	}
	return t
}

var diagnoses = map[snapshot.Bottleneck]string{
	snapshot.BottleneckNone:       "not throttled",
	snapshot.BottleneckStall:      "waits for memory or IO",
	snapshot.BottleneckLimit:      "throttled by its limit",
	snapshot.BottleneckBursts:     "bursts throttled by its limit",
	snapshot.BottleneckContention: "waits for a CPU, not for its limit",
}

// diagnosis says in a few words what the counters mean.
func diagnosis(r snapshot.Row) string {
	b := r.Figures.Bottleneck()
	if b == snapshot.BottleneckNone && r.Limit > 0 && r.Figures.Usage*20 < r.Limit {
		return "nearly idle"
	}
	return diagnoses[b]
}

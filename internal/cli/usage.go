package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
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
		RunE: f.run(func(ctx context.Context, a *Access, args []string) error {
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
	Pods []Standing `json:"pods"`
	// Nodes are the markets of the nodes whose agents answered.
	Nodes []Market `json:"nodes"`
	Notes []string `json:"notes,omitempty"`
	scope scope
}

func usage(ctx context.Context, a *Access, s Streams, pod, selector, node string, o output) error {
	if pod != "" && a.Namespace == "" {
		return UsageError{fmt.Errorf("a pod and --all-namespaces exclude each other: name its namespace with -n")}
	}
	sel, err := labels.Parse(selector)
	if err != nil {
		return UsageError{fmt.Errorf("-l %q: %w", selector, err)}
	}
	w, err := gather(ctx, a, selection{namespace: a.Namespace, pod: pod, node: node, labels: sel})
	if err != nil {
		return err
	}
	readLive(ctx, a, w)
	for _, m := range w.Markets {
		if said := asking(ctx, a, w, m.Node); said != "" {
			w.note("%s. %s", strings.ToUpper(m.wanted()[:1])+m.wanted()[1:], said)
		}
	}
	rows := standings(w, a.System)
	orders["name"](rows)
	if pod != "" && rows[0].Figures == nil {
		return fmt.Errorf("pod %s/%s has no figures: %s", a.Namespace, pod, rows[0].Message)
	}
	rows = slices.DeleteFunc(rows, func(r Standing) bool { return r.Figures == nil })
	view := UsageView{Pods: rows, Nodes: w.Markets, Notes: w.Notes, scope: scope{a.Namespace, node, selector}}
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
		fmt.Fprintf(&b, "No pod in %s has figures: MBCAS manages none there, or has not decided yet; see \"kubectl mbcas list\".\n", v.scope.none())
	} else {
		b.WriteString(usageTable(v.Pods, v.scope.namespace == "", now).String())
	}
	if len(v.Nodes) > 0 {
		t := &table{header: []string{"NODE", "SUPPLY", "USE", "DEMAND", "SYSTEM", "PRICE", "PRESSURE", "BIDDERS", "OTHERS"}}
		for _, m := range v.Nodes {
			t.add(m.Node, m.Supply.String(), m.Usage.String(), m.Demand.String(), m.System.String(), m.Price, percentText(m.Pressure), fmt.Sprint(m.Bidders), fmt.Sprint(m.Shadows))
		}
		b.WriteString("\n" + t.String())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	return b.String()
}

func usageTable(rows []Standing, namespaces bool, now time.Time) *table {
	t := &table{}
	if namespaces {
		t.header = append(t.header, "NAMESPACE")
	}
	t.header = append(t.header, "POD", "LIMIT", "USE", "OF-LIMIT", "THROTTLED", "PRESSURE", "DEMAND", "BOUND-BY", "SEEN", "READING")
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
		t.add(append(cells, r.Pod, limitText(r), f.use, share, f.throttled, f.pressure, f.demand, f.bound, f.seen, reading(r))...)
	}
	return t
}

// Thresholds of a reading, in percent. Throttling and pressure are kept apart: a higher limit helps
// against the first only.
const (
	muchThrottled = 50
	someThrottled = 10
	someWaiting   = 25
	// From muchStalled on the market takes nothing else for need; from halfStalled on less.
	muchStalled = 80
	halfStalled = 50
)

// stalled is the larger of a pod's memory and IO pressure; 0 where neither is told.
func stalled(f *Figures) (most int32) {
	for _, p := range []*int32{f.MemoryPressure, f.IOPressure} {
		if p != nil {
			most = max(most, *p)
		}
	}
	return most
}

// reading says in a few words what the counters mean.
func reading(r Standing) string {
	f := r.Figures
	switch {
	case f == nil:
		return ""
	case stalled(f) >= muchStalled:
		return "waits for memory or IO"
	case f.Throttled >= muchThrottled:
		return "held back by its limit"
	case f.Throttled >= someThrottled:
		return "bursts touch its limit"
	case f.Pressure != nil && *f.Pressure >= someWaiting:
		return "waits for a CPU, not for its limit"
	case r.Limit > 0 && f.Usage*20 < r.Limit:
		return "nearly idle"
	}
	return "fits"
}

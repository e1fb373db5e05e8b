package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// simOptions are the flags of the command.
type simOptions struct {
	policy, out string
	seed        uint64
	length      time.Duration
}

func simCommand(s Streams) *cobra.Command {
	var p simOptions
	cmd := &cobra.Command{
		Use:   "sim SCENARIO|FILE",
		Short: "Run one scenario under one policy, and show the result of each pod",
		Long: "Run one scenario under one policy, and show the result of each pod after the warm-up: its limit at the end, its\n" +
			"mean usage, the share of its CFS periods in which it was throttled, the latency of its requests, the CPU time of\n" +
			"unfinished ones, and how often its limit changed.",
		Example: "  mbcas-lab sim duel\n  mbcas-lab sim contended-services-hogs --policy static --seed 2\n  mbcas-lab sim shop.yaml --out out/shop\n" +
			"  mbcas-lab sim requests.csv=0.5                 # recorded load, scaled",
		Args: checkArgs(1, 1, "a scenario: see \"mbcas-lab scenarios\""),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), s, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.policy, "policy", experiment.Default, "the policy that sets limits: see \"mbcas-lab policies\"")
	f.Uint64Var(&p.seed, "seed", 1, "another seed draws other arrivals")
	f.StringVar(&p.out, "out", "", "folder into which series are written as CSV: pods.csv, nodes.csv, changes.csv")
	f.DurationVar(&p.length, "length", 0, "run only the first part of the scenario, of this length")
	return cmd
}

// nodeRun is one node and its result.
type nodeRun struct {
	setup  sim.Setup
	result sim.Result
}

// used is the share of the cores in use after the warm-up.
func (n nodeRun) used() float64 {
	measured := n.setup.Length - n.setup.WarmUp
	return 1 - n.result.IdleTime.Seconds()/measured.Seconds()/float64(n.setup.Machine.Cores)
}

// changes is how often limits changed.
func (n nodeRun) changes() int {
	all := 0
	for i := range n.result.Pods {
		all += len(n.result.Pods[i].Changes)
	}
	return all
}

func (p *simOptions) run(ctx context.Context, s Streams, what string) error {
	chosen, err := findPolicy(p.policy)
	if err != nil {
		return err
	}
	sc, err := findScenario(what)
	if err != nil {
		return err
	}
	if p.length != 0 && (p.length <= sc.WarmUp || p.length > sc.Length) {
		return usage("--length %v: want more than the warm-up, %v, and at most the scenario's length, %v", p.length, sc.WarmUp, sc.Length)
	}
	if err := createOut(p.out); err != nil {
		return err
	}
	nodes := make([]nodeRun, sc.Nodes)
	progress := newProgress(s.Err, "nodes")
	if len(nodes) == 1 {
		progress = newProgress(io.Discard, "")
	}
	progress.begin(len(nodes), float64(len(nodes)))
	parallel(ctx, len(nodes), func(i int) {
		setup := sc.Setup(i, p.seed)
		setup.Length = cmp.Or(p.length, setup.Length)
		nodes[i] = nodeRun{setup, sim.Run(setup, chosen.New())}
		progress.done(1, fmt.Sprintf("node %d", i+1))
	})
	if finished := progress.end(); finished < len(nodes) {
		return fmt.Errorf("stopped after %d of %d nodes: %w", finished, len(nodes), ctx.Err())
	}
	fmt.Fprintf(s.Out, "%s under %s, seed %d: %s\n\n", sc.Name, chosen.Name, p.seed, chosen.Description)
	lines := nodeLines(nodes)
	if len(nodes) > maxNodesListed {
		lines = groupLine(nodes)
	}
	if _, err := fmt.Fprint(s.Out, podTable(sc, nodes), "\n", lines); err != nil {
		return err
	}
	if p.out == "" {
		return nil
	}
	return writeSeries(p.out, sc, nodes)
}

var podHeader = []string{"POD", "ROLE", "REQUEST", "LIMIT", "USE", "THROTTLED", "P50", "P99", "P99.9", "BACKLOG", "CHANGES"}

// maxNodesListed is up to how many nodes are shown one by one; more are aggregated.
const maxNodesListed = 4

// ran is how long a pod ran after the warm-up.
func ran(setup sim.Setup, s sim.PodSpec) time.Duration {
	end := setup.Length
	if s.End > 0 {
		end = min(end, s.End)
	}
	return max(0, end-max(s.Start, setup.WarmUp))
}

func formatCPU(m cpu.Milli) string {
	if m == 0 {
		return "none"
	}
	return m.String()
}

// formatThrottled is the share of throttled periods in percent, with so many digits after the point.
func formatThrottled(c sim.Counters, digits int) string {
	if c.Periods == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f%%", digits, 100*c.ThrottleRatio())
}

func formatLatency(c sim.Counters, quantile float64) string {
	if c.Latency.Count == 0 {
		return "-"
	}
	return formatDuration(c.Latency.Quantile(quantile))
}

// formatDuration has three digits.
func formatDuration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fms", d.Seconds()*1000)
}

// nodeLines are the utilisation of each node, and its last price.
func nodeLines(nodes []nodeRun) string {
	var b strings.Builder
	for i, n := range nodes {
		fmt.Fprintf(&b, "Node %d: %d cores, %.1f%% used over %v after %v of warm-up; %d changes of limits",
			i+1, n.setup.Machine.Cores, 100*n.used(), n.setup.Length-n.setup.WarmUp, n.setup.WarmUp, n.changes())
		if last := len(n.result.Price); last > 0 {
			fmt.Fprintf(&b, "; price %v at the end", n.result.Price[last-1])
		}
		b.WriteString(".\n")
	}
	return b.String()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/report"
)

func fairnessCommand(s Streams) *cobra.Command {
	f := experiment.DefaultFairness()
	cfg := coordinator.DefaultConfig()
	var out string
	cmd := &cobra.Command{
		Use:   "fairness",
		Short: "Simulate a cluster whose nodes have different prices, without and with the coordinator",
		Long: "Simulate a cluster whose nodes have different prices: each has four cores, a number of tenants that are on no other node, and\n" +
			"two replicas of workloads, all with the same request and two busy threads. It runs without the coordinator and\n" +
			"with it, and shows the spread of satisfaction (usage per demand) among the replicas of a workload: that of the best\n" +
			"replica less that of the worst.",
		Example: "  mbcas-lab fairness\n  mbcas-lab fairness --nodes 60 --coordination-interval 15s\n  mbcas-lab fairness --min-tenants 0 --max-tenants 6 --out out/fairness",
		Args:    checkArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return UsageError{Err: err}
			}
			return runFairness(cmd.Context(), s, f, cfg, out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Nodes, "nodes", f.Nodes, "how many nodes there are")
	flags.Uint64Var(&f.Seed, "seed", f.Seed, "another seed draws another cluster")
	flags.IntVar(&f.MinTenants, "min-tenants", f.MinTenants, "lowest number of tenants of a node")
	flags.IntVar(&f.MaxTenants, "max-tenants", f.MaxTenants, "highest number of tenants of a node")
	flags.Float64Var(&f.TenantStdDev, "tenant-stddev", f.TenantStdDev, "standard deviation of a tenant's threads over time; the mean is two")
	flags.DurationVar(&f.Length, "length", f.Length, "simulated time, a multiple of --coordination-interval")
	flags.DurationVar(&f.CoordinationInterval, "coordination-interval", f.CoordinationInterval, "time between two rounds of the coordinator")
	flags.Float64Var(&cfg.WorkloadRho, "rho", cfg.WorkloadRho, "exponent of the CES utility among replicas, below 0: further from 0 is more even")
	flags.Float64Var(&cfg.NamespaceRho, "rho-namespace", cfg.NamespaceRho, "the same among the workloads of a namespace; 0 changes nothing among them")
	flags.Float64Var(&cfg.Gain, "gain", cfg.Gain, "share of the way to its target that a factor moves in a round")
	flags.StringVar(&out, "out", "", "folder into which fairness.csv and the picture fairness.svg are written")
	return cmd
}

func runFairness(ctx context.Context, s Streams, f experiment.Fairness, cfg coordinator.Config, out string) error {
	switch {
	case f.Nodes < 2 || f.Nodes > 10_000:
		return usage("--nodes is %d: want 2 to 10000", f.Nodes)
	case f.MinTenants < 0 || f.MaxTenants < f.MinTenants || f.MaxTenants > 30:
		return usage("--min-tenants is %d and --max-tenants %d: want 0 <= min <= max <= 30", f.MinTenants, f.MaxTenants)
	case !(f.TenantStdDev >= 0 && f.TenantStdDev <= 2):
		return usage("--tenant-stddev is %v: want 0 to 2", f.TenantStdDev)
	case f.CoordinationInterval < time.Second || f.CoordinationInterval%time.Second != 0 || f.Length < 3*f.CoordinationInterval || f.Length%f.CoordinationInterval != 0:
		return usage("--coordination-interval is %v and --length %v: want whole seconds, and at least three rounds", f.CoordinationInterval, f.Length)
	}
	if err := createOut(out); err != nil {
		return err
	}
	progress := newProgress(s.Err, "rounds of nodes")
	all := 2 * f.Nodes * int(f.Length/f.CoordinationInterval)
	progress.begin(all, float64(all))
	var runs [2]experiment.FairnessResult
	for i, next := range []func([]coordinator.Replica) []coordinator.Factor{nil, cfg.Rebalance} {
		name := []string{"without the coordinator", "with it"}[i]
		var done bool
		runs[i], done = f.Run(next, func(n int, do func(int)) bool {
			parallel(ctx, n, func(i int) {
				do(i)
				progress.done(1, name)
			})
			return ctx.Err() == nil
		})
		if !done {
			return fmt.Errorf("stopped after %d of %d rounds of nodes: %w", progress.end(), all, ctx.Err())
		}
	}
	progress.end()
	if _, err := fmt.Fprint(s.Out, fairnessText(f, runs[0], runs[1])); err != nil || out == "" {
		return err
	}
	return writeFairness(out, runs[0], runs[1])
}

// fairnessText is the report.
func fairnessText(f experiment.Fairness, off, on experiment.FairnessResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d nodes, seed %d: %d workloads with %d replicas beside %d to %d tenants on each node; a round every %v.\n",
		f.Nodes, f.Seed, off.Workloads, off.Replicas, f.MinTenants, f.MaxTenants, f.CoordinationInterval)
	b.WriteString("SPREAD is the usage per demand of a workload's best replica less that of its worst; WORST is that of the worst.\n\n")
	times := &table{header: []string{"TIME", "SPREAD", "with it", "WORST", "with it", "FACTORS CHANGED", "LIMITS CHANGED", "with it"}}
	for k, i := range on.Intervals {
		o := off.Intervals[k]
		times.add(i.At.String(), share(o.Spread), share(i.Spread), share(o.Worst), share(i.Worst), fmt.Sprint(i.Factors), fmt.Sprint(o.Limits), fmt.Sprint(i.Limits))
	}
	b.WriteString(times.String() + "\n")
	groups := &table{header: []string{"TENANTS", "NODES", "PRICE", "with it", "FACTOR", "REPLICA USES", "with it", "TENANT USES", "with it", "BUDGETS", "IDLE", "with it"}}
	for k, g := range on.Groups {
		o := off.Groups[k]
		if g.Nodes == 0 {
			continue
		}
		groups.add(fmt.Sprint(g.Tenants), fmt.Sprint(g.Nodes), share(o.Price), share(g.Price), fmt.Sprintf("%.2f", g.Factor),
			share(o.ReplicaUse), share(g.ReplicaUse), share(o.TenantUse), share(g.TenantUse), fmt.Sprintf("%+.1f%%", 100*g.Budgets),
			fmt.Sprintf("%.1f%%", 100*o.Idle), fmt.Sprintf("%.1f%%", 100*g.Idle))
	}
	b.WriteString(groups.String() + "\n" + fairnessLine(off, on))
	return b.String()
}

// fairnessLine is the summary.
func fairnessLine(off, on experiment.FairnessResult) string {
	last := len(on.Intervals) - 1
	a, b := off.Intervals[last], on.Intervals[last]
	quiet := 0 // the last round in which a factor changed; the run ends without a round
	half := 0  // the last interval with more than half of the spread
	for k, i := range on.Intervals {
		if i.Factors > 0 {
			quiet = k + 1
		}
		if i.Spread > off.Intervals[k].Spread/2 {
			half = k + 1
		}
	}
	line := fmt.Sprintf("In the end the spread is %.0f%% less than without it (%s instead of %s; in one workload of ten more than %s instead of %s), "+
		"and the worst replica has %.0f%% more. All replicas together have %+.1f%%. ",
		100*(1-b.Spread/a.Spread), share(b.Spread), share(a.Spread), share(b.Wide), share(a.Wide), 100*(b.Worst/a.Worst-1), 100*(b.Mean/a.Mean-1))
	if half <= last {
		line += fmt.Sprintf("It is less than half after round %d. ", half)
	}
	if quiet >= last {
		return line + "Factors still change.\n"
	}
	return line + fmt.Sprintf("No factor changes after round %d of %d.\n", quiet, last)
}

func share(v float64) string { return fmt.Sprintf("%.3f", v) }

// writeFairness writes the intervals as a table and as a picture.
func writeFairness(dir string, off, on experiment.FairnessResult) error {
	rows := [][]string{{"time", "coordinator", "spread", "wide", "worst", "mean", "factors", "limits"}}
	for k, e := range []experiment.FairnessResult{off, on} {
		for _, i := range e.Intervals {
			rows = append(rows, []string{
				figure(i.At.Seconds()), []string{"off", "on"}[k], figure(i.Spread), figure(i.Wide), figure(i.Worst), figure(i.Mean), strconv.Itoa(i.Factors), strconv.Itoa(i.Limits),
			})
		}
	}
	if err := writeCSV(filepath.Join(dir, "fairness.csv"), rows); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, "fairness.svg"))
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return errors.Join(report.WriteFairness(f, off, on), f.Close())
}

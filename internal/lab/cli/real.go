//go:build linux

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// realOptions are the flags of the command.
type realOptions struct {
	policy string
	seed   uint64
	length time.Duration
}

func realCommands(s Streams) []*cobra.Command {
	var r realOptions
	cmd := &cobra.Command{
		Use:   "real [SCENARIO|FILE]",
		Short: "Run a scenario on this machine's kernel and in the simulator",
		Long: "Run a scenario with real processes in cgroups of this machine, and in the simulator, and show both.\n" +
			"It takes root, Perl, and a scenario for as many cores as this machine has. Without a scenario it runs a service beside\n" +
			"a batch pod with ever lower limits: the table that the simulator has to reproduce.\n" +
			"Other work on the machine disturbs it, and is shown. CPU time that a hypervisor keeps from the machine is kept from the\n" +
			"simulated one as well.",
		Example: "  mbcas-lab real\n  mbcas-lab real duel --policy mbcas",
		Args:    checkArgs(0, 1, ""),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), s, args) },
	}
	f := cmd.Flags()
	f.StringVar(&r.policy, "policy", "static", "the policy that sets limits: see \"mbcas-lab policies\"")
	f.Uint64Var(&r.seed, "seed", 1, "another seed draws other arrivals")
	f.DurationVar(&r.length, "length", 0, "length of each run (default: 30s of a row of the table, all of a scenario)")
	return []*cobra.Command{cmd, fidelityCommand(s)}
}

func (r realOptions) run(ctx context.Context, s Streams, args []string) error {
	if r.length < 0 {
		return usage("--length %v: want more than 0", r.length)
	}
	cases, err := r.cases(args)
	if err != nil {
		return err
	}
	t := &table{header: []string{
		"RUN", "POD", "USE", "SIM", "THROTTLED", "SIM", "P50", "SIM", "P99", "SIM", "P99/SIM", "OTHERS", "STALL", "STOLEN", "LATE",
	}}
	chosen, err := findPolicy(r.policy)
	if err != nil {
		return err
	}
	var failed error // completed runs are shown all the same
	for i, c := range cases {
		fmt.Fprintf(s.Err, "%d of %d: %s, for %v\n", i+1, len(cases), c.Name, c.Setup.Length)
		measured, err := kernelrun.Run(ctx, c.Setup, chosen.New())
		if err != nil {
			failed = fmt.Errorf("%s: %w", c.Name, err)
			break
		}
		model := kernelrun.Simulate(c.Setup, chosen.New(), measured)
		for j := range measured.Pods {
			t.add(append([]string{c.Name}, realCells(c.Setup, &measured.Pods[j], &model.Pods[j], measured)...)...)
		}
	}
	if len(t.rows) == 0 {
		return failed
	}
	_, err = io.WriteString(s.Out, t.String())
	return errors.Join(failed, err)
}

// cases are the rows of the table, or one scenario.
func (r realOptions) cases(args []string) ([]kernelrun.Case, error) {
	if len(args) == 0 {
		length := cmp.Or(r.length, 30*time.Second)
		cases := kernelrun.Cases(length, r.seed)
		for _, c := range cases {
			if length <= c.Setup.WarmUp {
				return nil, usage("--length %v: want more than the warm-up of the table, %v", length, c.Setup.WarmUp)
			}
		}
		return cases, nil
	}
	sc, err := findScenario(args[0])
	if err != nil {
		return nil, err
	}
	if sc.Nodes > 1 {
		return nil, usage("scenario %s has %d nodes, and this machine is one", sc.Name, sc.Nodes)
	}
	setup := sc.Setup(0, r.seed)
	if r.length > 0 {
		setup.Length = min(setup.Length, r.length)
	}
	setup.WarmUp = min(setup.WarmUp, setup.Length/2)
	return []kernelrun.Case{{Name: sc.Name, Setup: setup}}, nil
}

func realCells(setup sim.Setup, r, m *sim.PodResult, measured kernelrun.Result) []string {
	use := func(p *sim.PodResult) string {
		return fmt.Sprintf("%.2f", p.Usage.Seconds()/(setup.Length-setup.WarmUp).Seconds())
	}
	ratio := "-"
	if r.Latency.Count > 0 && m.Latency.Count > 0 {
		ratio = fmt.Sprintf("%.2f", r.Latency.Quantile(0.99).Seconds()/m.Latency.Quantile(0.99).Seconds())
	}
	return []string{
		r.Spec.Name, use(r), use(m), formatThrottled(r.Counters, 0), formatThrottled(m.Counters, 0),
		formatLatency(r.Counters, 0.5), formatLatency(m.Counters, 0.5), formatLatency(r.Counters, 0.99), formatLatency(m.Counters, 0.99), ratio, fmt.Sprintf("%.1f%%", 100*measured.Others), fmt.Sprintf("%.0f%%", 100*measured.Stall), fmt.Sprintf("%.1f%%", 100*measured.Stolen), formatDuration(measured.Late),
	}
}

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
)

func explainCommand(s Streams, f *flags) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "explain POD",
		Aliases: []string{"why"},
		Short:   "Explain why a pod's CPU limit is what it is",
		Long: "Explain in sentences why a pod's CPU limit is what it is: its demand, what its\n" +
			"budget buys at the node's price, what constrains it, the last change and what comes next.",
		Example:           "  kubectl mbcas explain cart-7d9f -n shop",
		Args:              podArgs(1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			snap, err := selection{pod: args[0]}.read(ctx, a)
			if err != nil {
				return err
			}
			pod := &snap.Pods[0]
			subject := explain.Subject{
				Row: snap.Row(pod), Pod: pod, Allocation: snap.Allocations[pod.UID],
				Settings: snap.Settings, Now: a.Now(),
			}
			if len(snap.Markets) > 0 {
				subject.Market = &snap.Markets[0]
			}
			if subject.Row.Figures != nil {
				subject.NodeConstraints = cluster.ReadNodeConstraints(ctx, a, snap, pod.Spec.NodeName)
			}
			e := explain.Pod(subject, snap.Notes)
			return o.write(s.Out, e, e.Text)
		}),
	}
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

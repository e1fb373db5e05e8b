package cli

import (
	"context"
	"fmt"

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
		Args:              podArgs(1, 1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			snap, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: args[0]})
			if err != nil {
				return err
			}
			cluster.ReadRounds(ctx, a, snap)
			pod := &snap.Pods[0]
			subject := explain.Subject{
				Row: snap.Row(pod), Pod: pod, Allocation: snap.Allocations[pod.UID],
				Settings: snap.Settings, Now: a.Now(),
			}
			if len(snap.Markets) > 0 {
				subject.Market = &snap.Markets[0]
			}
			if subject.Row.Figures != nil {
				subject.NodeAllocations = cluster.ReadNodeAllocations(ctx, a, snap, pod.Spec.NodeName)
			}
			e := explain.Pod(subject, snap.Notes)
			if done, err := encode(s.Out, o, e); done {
				return err
			}
			_, err = fmt.Fprint(s.Out, e.Text())
			return err
		}),
	}
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

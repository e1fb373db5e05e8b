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
		Short:   "Say why a pod's CPU limit is what it is",
		Long: "Say in sentences why a pod's CPU limit is what it is: what it wants, what its budget buys at the node's\n" +
			"price, what bounds it, what was done last and what comes next.",
		Example:           "  kubectl mbcas explain cart-7d9f -n shop",
		Args:              podArgs(1, 1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			w, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: args[0]})
			if err != nil {
				return err
			}
			cluster.ReadRounds(ctx, a, w)
			row := w.Rows()[0]
			of := explain.Subject{Pod: &w.Pods[0], Allocation: w.Allocations[w.Pods[0].UID]}
			if len(w.Markets) > 0 {
				of.Market = &w.Markets[0]
			}
			if row.Figures != nil {
				of.NodeAllocations = cluster.ReadNodeAllocations(ctx, a, w, row.Node)
			}
			e := explain.Pod(row, of, w.Notes, a.Now())
			if done, err := encode(s.Out, o, e); done {
				return err
			}
			_, err = fmt.Fprint(s.Out, e.Text(a.Now()))
			return err
		}),
	}
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
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
		RunE: f.run(func(ctx context.Context, a *Access, args []string) error {
			w, err := gather(ctx, a, selection{namespace: a.Namespace, pod: args[0]})
			if err != nil {
				return err
			}
			readLive(ctx, a, w)
			e := explanation{Standing: standings(w, a.System)[0], pod: &w.Pods[0], pa: w.Allocations[w.Pods[0].UID], Notes: w.Notes}
			if len(w.Markets) > 0 {
				e.market = &w.Markets[0]
			}
			if e.Figures != nil {
				e.asking = asking(ctx, a, w, e.Node)
			}
			e.Sentences = e.sentences(a.Now())
			if done, err := encode(s.Out, o, e); done {
				return err
			}
			_, err = fmt.Fprint(s.Out, e.text(a.Now()))
			return err
		}),
	}
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

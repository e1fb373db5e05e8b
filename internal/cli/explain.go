package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/explain"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/cli/past"
)

func explainCommand(s Streams, f *flags) *cobra.Command {
	var o output.Form
	var then moment
	now := f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
		e, err := explainNow(ctx, a, args[0])
		if err != nil {
			return err
		}
		return o.Encode(s.Out, e, e.Text)
	})
	cmd := &cobra.Command{
		Use:     "explain POD",
		Aliases: []string{"why"},
		Short:   "Explain why a pod's CPU limit is what it is",
		Long: "Explain in sentences why a pod's CPU limit is what it is: its demand, what its\n" +
			"budget buys at the node's price, what constrains it, the last change and what comes next.\n" +
			"With --at it explains the limit at a time of the recording, of the node's agent or of a file: also of\n" +
			"a pod that is gone, with --node or --recording.",
		Example: "  kubectl mbcas explain cart-7d9f -n shop\n  kubectl mbcas explain cart-7d9f -n shop --at 12:03\n" +
			"  kubectl mbcas explain cart-7d9f -n shop --at 12:03 --recording node-1-20261121T120000" + past.Extension,
		Args:              podArgs(1),
		ValidArgsFunction: f.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !then.asked() {
				return now(cmd, args)
			}
			a, err := then.explain(cmd.Context(), f, s, args[0])
			if err != nil {
				return err
			}
			return o.Encode(s.Out, a, a.Text)
		},
	}
	then.bind(cmd)
	o.Bind(cmd, output.JSON, output.YAML)
	return cmd
}

// explainNow explains the limit that a pod has now.
func explainNow(ctx context.Context, a *cluster.Access, name string) (explain.Explanation, error) {
	snap, err := selection{pod: name}.read(ctx, a)
	if errors.Is(err, cluster.ErrNoPod) {
		return explain.Explanation{}, fmt.Errorf("%w. %s", err, past.Gone(name))
	}
	if err != nil {
		return explain.Explanation{}, err
	}
	pod := &snap.Pods[0]
	subject := explain.Subject{
		Row: snap.Row(pod), Pod: pod, Allocation: snap.Allocations[pod.UID],
		Settings: snap.Settings, Now: a.ServerNow(),
	}
	if len(snap.Markets) > 0 {
		subject.Market = &snap.Markets[0]
	}
	if subject.Row.Figures != nil {
		subject.NodeConstraints = cluster.ReadNodeConstraints(ctx, a, snap, pod.Spec.NodeName)
	}
	return explain.Pod(subject, snap.Notes), nil
}

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/resize"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

func bindResizeOptions(cmd *cobra.Command, o *resize.Options) {
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "let the API server check the request, and change nothing")
	cmd.Flags().BoolVar(&o.Wait, "wait", true, "wait until the kubelet has applied the limit")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", time.Minute, "how long to wait")
}

func resizeCommand(s Streams, f *flags) *cobra.Command {
	var r resize.Request
	var o resize.Options
	var limit string
	cmd := &cobra.Command{
		Use:   "resize POD --cpu-limit LIMIT",
		Short: "Change the CPU limit of a running pod after safety checks",
		Long: "Change the CPU limit of one container in place, without a restart, and wait until it is in force.\n" +
			"A change that harms the pod, that Kubernetes refuses, or that cannot be reverted is refused.\n" +
			"If MBCAS manages the pod: " + resize.Adoption(nil) + ".",
		Example: "  kubectl mbcas resize cart-7d9f --cpu-limit 500m\n" +
			"  kubectl mbcas resize cart-7d9f --cpu-limit 1.5 -c app --dry-run",
		Args:              podArgs(1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			q, err := resource.ParseQuantity(limit)
			if limit == "" || err != nil || q.Sign() <= 0 {
				return UsageError{Err: fmt.Errorf("--cpu-limit %q: want a positive amount of CPU such as 500m or 1.5",
					limit)}
			}
			r.Limit = kube.Milli(q)
			snap, err := selection{pod: args[0]}.read(ctx, a)
			if err != nil {
				return err
			}
			return resizePod(ctx, a, s, snap, r, o)
		}),
	}
	cmd.Flags().StringVar(&limit, "cpu-limit", "", "the new limit, such as 500m or 1.5")
	cmd.Flags().StringVarP(&r.Container, "container", "c", "", "container to resize, if several have a CPU limit")
	cmd.Flags().BoolVar(&r.Force, "force", false, "resize although it may harm the pod")
	bindResizeOptions(cmd, &o)
	return cmd
}

// resizePod resizes the only pod of the snapshot.
func resizePod(
	ctx context.Context, a *cluster.Access, s Streams, snap *snapshot.Snapshot, r resize.Request, o resize.Options,
) error {
	pod := &snap.Pods[0]
	target := resize.Target{Pod: pod, Row: snap.Row(pod), Allocatable: resize.Allocatable(ctx, a, pod)}
	move, against := resize.Check(target, r)
	if err := resize.Refuse(pod, against, r.Force); err != nil {
		return err
	}
	for _, objection := range against {
		fmt.Fprintf(s.Err, "warning: %s\n", objection.Why)
	}
	change := move.Changes[0]
	if change.To != r.Limit {
		fmt.Fprintf(s.Err, "warning: limits are multiples of %v, so %v becomes %v\n", cpu.Quantum, r.Limit, change.To)
	}
	if change.From == change.To {
		_, err := fmt.Fprintf(s.Out, "%s: container %s already has a limit of %v\n", resize.PodText(pod),
			change.Container, change.To)
		return err
	}
	if err := resize.Apply(ctx, a, s, resize.Resize{Pod: pod, Move: move, Options: o}); err != nil {
		return err
	}
	if after := resize.After(target.Row, snap.Settings); after != "" && !o.DryRun {
		fmt.Fprintln(s.Out, after)
	}
	return nil
}

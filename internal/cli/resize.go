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
	"github.com/mbcas/mbcas/internal/kube"
)

func bindResizeOptions(cmd *cobra.Command, c *resize.Options) {
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "ask the API server what would happen, and change nothing")
	cmd.Flags().BoolVar(&c.Wait, "wait", true, "wait until the kubelet has done it")
	cmd.Flags().DurationVar(&c.Timeout, "timeout", time.Minute, "how long to wait")
}

func resizeCommand(s Streams, f *flags) *cobra.Command {
	var o resize.Request
	var c resize.Options
	var limit string
	cmd := &cobra.Command{
		Use:   "resize POD --cpu-limit LIMIT",
		Short: "Change the CPU limit of a running pod, guarded",
		Long: "Change the CPU limit of one container in place, without a restart, and wait until the kubelet has done it.\n" +
			"What would harm the pod, or what Kubernetes would refuse or could not undo, is refused with the reason.\n" +
			"Where MBCAS manages the pod: " + resize.Adoption + ".",
		Example:           "  kubectl mbcas resize cart-7d9f --cpu-limit 500m\n  kubectl mbcas resize cart-7d9f --cpu-limit 1.5 -c app --dry-run",
		Args:              podArgs(1, 1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			q, err := resource.ParseQuantity(limit)
			if limit == "" || err != nil || q.Sign() <= 0 {
				return UsageError{fmt.Errorf("--cpu-limit %q: want a positive amount of CPU such as 500m or 1.5", limit)}
			}
			o.Limit = kube.Milli(q)
			return resizePod(ctx, a, s, args[0], o, c)
		}),
	}
	cmd.Flags().StringVar(&limit, "cpu-limit", "", "the new limit, such as 500m or 1.5")
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "container to resize, where several have a CPU limit")
	cmd.Flags().BoolVar(&o.Force, "force", false, "do it although it may harm the pod")
	bindResizeOptions(cmd, &c)
	return cmd
}

func resizePod(ctx context.Context, a *cluster.Access, s Streams, name string, o resize.Request, how resize.Options) error {
	w, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: name})
	if err != nil {
		return err
	}
	cluster.ReadRounds(ctx, a, w)
	pod := &w.Pods[0]
	t := resize.Target{Pod: pod, Row: w.Rows()[0], Allocatable: resize.Allocatable(ctx, a, pod)}
	move, against := resize.Check(t, o)
	if err := resize.Refuse(pod, against, o.Force); err != nil {
		return err
	}
	for _, objection := range against {
		fmt.Fprintf(s.Err, "warning: %s\n", objection.Why)
	}
	change := move.Changes[0]
	if change.To != o.Limit {
		fmt.Fprintf(s.Err, "warning: limits move in steps of %v, so %v becomes %v\n", cpu.Quantum, o.Limit, change.To)
	}
	if change.From == change.To {
		_, err := fmt.Fprintf(s.Out, "%s: container %s has a limit of %v already\n", resize.PodText(pod), change.Container, change.To)
		return err
	}
	if err := resize.Apply(ctx, a, s, pod, move, how); err != nil {
		return err
	}
	if after := resize.AfterResize(t.Row); after != "" && !how.DryRun {
		fmt.Fprintln(s.Out, after)
	}
	return nil
}

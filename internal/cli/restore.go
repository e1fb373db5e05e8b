package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/resize"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

func restoreCommand(s Streams, f *flags) *cobra.Command {
	var every bool
	var o resize.Options
	cmd := &cobra.Command{
		Use:   "restore POD | --all",
		Short: "Return pods to the CPU limits that their owners declared",
		Long: "Return one pod, or all of a namespace (-n) or of the cluster (-A), to the CPU limits that were\n" +
			"recorded before MBCAS first changed them. A limit that another client has set since stays.\n" +
			"MBCAS resizes pods that it manages again later. To stop that, set the namespace's mode to restore\n" +
			"or off, or label the pod " + kube.ManagedKey + "=false.",
		Example: "  kubectl mbcas restore cart-7d9f -n shop\n" +
			"  kubectl mbcas restore --all -n shop --dry-run\n  kubectl mbcas restore --all -A",
		ValidArgsFunction: f.completePods,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case every && len(args) > 0:
				return UsageError{Err: errors.New("name a pod or set --all, not both")}
			case !every && f.all:
				return UsageError{Err: errors.New("to restore pods of all namespaces, set --all as well as -A")}
			case !every && len(args) == 0:
				return UsageError{Err: errors.New("name a pod, or set --all for all pods of the namespace")}
			}
			return podArgs(0)(cmd, args)
		},
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			return restorePods(ctx, a, s, strings.Join(args, ""), o)
		}),
	}
	f.allNamespacesFlag(cmd)
	cmd.Flags().BoolVar(&every, "all", false, "restore all pods with a record of declared limits")
	bindResizeOptions(cmd, &o)
	return cmd
}

// plan is what restore does about one pod.
type plan struct {
	move *actuator.Move // nil: nothing to do, for the reason in why
	why  string
	// failed: the pod cannot be restored, for the reason in why.
	failed bool
	// external are the limits that another client set and that stay, in words; "" if there are
	// none.
	external string
}

// outcome counts what became of the pods.
type outcome struct {
	restored            []snapshot.Row
	failed              []string // namespace/name
	unchanged, external int
}

// restorePods restores a pod, or all of the namespace for "".
func restorePods(ctx context.Context, a *cluster.Access, s Streams, pod string, o resize.Options) error {
	snap, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: pod})
	if err != nil {
		return err
	}
	declared, err := restore.ReadLedgers(ctx, a.Client, a.System)
	for _, pa := range snap.Allocations {
		restore.AddRecorded(declared, []v1alpha1.PodAllocation{*pa})
	}
	if err != nil && snap.Allocations == nil {
		return fmt.Errorf("no record of declared limits can be read: %w", err)
	}
	slices.SortFunc(snap.Pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var out outcome
	for i := range snap.Pods {
		p := &snap.Pods[i]
		row, limits := snap.Row(p), declared[p.UID].Limits
		what := planRestore(p, limits, row.Reason)
		o.Redecide = func(p *corev1.Pod) *actuator.Move { return planRestore(p, limits, row.Reason).move }
		if err := out.carryOut(ctx, a, s, row, what, resize.Resize{Pod: p, Options: o}); err != nil {
			return err
		}
		if pod != "" && what.move == nil && !what.failed && what.external == "" {
			fmt.Fprintf(s.Out, "%s: %s\n", resize.PodText(p), what.why)
		}
	}
	if pod == "" {
		fmt.Fprintf(s.Out, "%s in %s.\n", out.summary(o.DryRun), format.Scope{Namespace: a.Namespace})
	}
	if !o.DryRun {
		writeResizedAgain(s.Out, out.restored, snap.Settings)
	}
	if len(out.failed) > 0 {
		return fmt.Errorf("%s could not be restored: %s", format.Plural(len(out.failed), "pod"), format.Few(out.failed))
	}
	return nil
}

// carryOut restores one pod and counts what became of it. The error is that the command was
// interrupted.
func (out *outcome) carryOut(
	ctx context.Context, a *cluster.Access, s Streams, row snapshot.Row, what plan, r resize.Resize,
) error {
	pod := resize.PodText(r.Pod)
	if what.external != "" {
		out.external++
		fmt.Fprintf(s.Out, "%s: %s\n", pod, what.external)
	}
	failure := ""
	switch {
	case what.move != nil:
		r.Move = *what.move
		switch err := resize.Apply(ctx, a, s, r); {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			failure = err.Error()
		case what.failed: // in part
			failure = pod + ": " + what.why
		default:
			out.restored = append(out.restored, row)
		}
	case what.failed:
		failure = pod + ": " + what.why
	case what.external == "":
		out.unchanged++
	}
	if failure != "" {
		fmt.Fprintf(s.Err, "error: %s\n", failure)
		out.failed = append(out.failed, row.Namespace+"/"+row.Pod)
	}
	return nil
}

func (out *outcome) summary(dryRun bool) string {
	done, external := "restored", ""
	if dryRun {
		done = "would be restored"
	}
	if out.external > 0 {
		external = fmt.Sprintf("%d with limits that another client set, ", out.external)
	}
	return fmt.Sprintf("%s %s, %d at their declared limits or never changed, %s%d failed",
		format.Plural(len(out.restored), "pod"), done, out.unchanged, external, len(out.failed))
}

// planRestore plans the move of a pod to its declared limits. reason is that of its allocation.
func planRestore(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, reason string) plan {
	const unknown = reasons.DeclaredLimitUnknown
	switch {
	case len(declared) == 0 && (reason == string(unknown) || len(kube.WrittenByMBCAS(pod)) > 0):
		return plan{why: unknown.Sentence(), failed: true}
	case len(declared) == 0:
		return plan{why: "has no record of declared limits, so MBCAS never changed it"}
	case pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning:
		return plan{why: "is not running"}
	}
	back := restore.ToDeclared(pod, declared)
	var p plan
	if len(back.External) > 0 {
		p.external = "left as it is: another client set " + kube.LimitsText(back.External)
	}
	if len(back.NotRunning) > 0 {
		p.why, p.failed = fmt.Sprintf("container %s does not run: restore it once it does, or delete the pod",
			strings.Join(back.NotRunning, ", ")), true
	}
	switch {
	case len(back.Move.Changes) > 0:
		p.move = &back.Move
	case p.failed:
	case !kube.SameLimits(declared, kube.LimitsOf(pod, declared)) && len(back.External) == 0 && len(kube.RestoreFloors(pod, declared)) == 0:
		p.why = fmt.Sprintf("stays at %s: what has completed is not raised", kube.LimitsText(kube.Limits(pod)))
	case len(kube.RestoreFloors(pod, declared)) > 0:
		p.why = fmt.Sprintf("stays at %s: its CPU request was raised above its declared limit", kube.LimitsText(kube.Limits(pod)))
	default:
		p.why = fmt.Sprintf("already has its declared limit of %v", kube.Total(declared))
	}
	return p
}

// writeResizedAgain says which of the restored pods MBCAS resizes again, and how to stop that.
func writeResizedAgain(out io.Writer, restored []snapshot.Row, settings kube.Settings) {
	restored = slices.DeleteFunc(slices.Clone(restored), func(r snapshot.Row) bool {
		enforced := r.Mode == kube.ModeEnforce || r.Mode == ""
		return !r.Managed || !enforced || r.Reason == string(reasons.Recommending)
	})
	if len(restored) == 0 {
		return
	}
	after := "the controller's --" + kube.ExternalChangeHoldOffFlag
	if d, ok := settings.Duration(kube.ExternalChangeHoldOffFlag); ok {
		after = format.Age(d)
	}
	fmt.Fprintf(out, "MBCAS resizes %s again after %s. To stop that:\n", format.Plural(len(restored), "pod"), after)
	var namespaces []string
	for _, r := range restored {
		namespaces = append(namespaces, r.Namespace)
	}
	slices.Sort(namespaces)
	for _, n := range slices.Compact(namespaces) {
		fmt.Fprintf(out, "  kubectl mbcas mode %s restore\n", n)
	}
	if len(restored) == 1 {
		fmt.Fprintf(out, "  or, for this pod alone: kubectl label pod %s -n %s %s=false\n", restored[0].Pod,
			restored[0].Namespace, kube.ManagedKey)
	}
}

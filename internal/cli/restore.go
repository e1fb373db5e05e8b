package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	var c resize.Options
	cmd := &cobra.Command{
		Use:   "restore POD | --all",
		Short: "Bring pods back to the CPU limits that their owners declared",
		Long: "Bring one pod, or all of a namespace (-n) or of the cluster (-A), back to the CPU limits that were recorded\n" +
			"before MBCAS first changed them. A limit that somebody else has changed since stays. Where MBCAS goes on managing them, it moves them again later;\n" +
			"to stop that, set the namespace's mode to restore or off, or label the pod " + kube.ManagedKey + "=false.",
		Example:           "  kubectl mbcas restore cart-7d9f -n shop\n  kubectl mbcas restore --all -n shop --dry-run\n  kubectl mbcas restore --all -A",
		ValidArgsFunction: f.completePods,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case every && len(args) > 0:
				return UsageError{errors.New("name a pod or say --all, not both")}
			case !every && f.all:
				return UsageError{errors.New("restoring pods of all namespaces wants --all as well as -A")}
			case !every && len(args) == 0:
				return UsageError{errors.New("name a pod, or say --all for all pods of the namespace")}
			}
			return podArgs(0, 1)(cmd, args)
		},
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			return restorePods(ctx, a, s, strings.Join(args, ""), c)
		}),
	}
	f.scope(cmd)
	cmd.Flags().BoolVar(&every, "all", false, "restore all pods that have declared limits on record")
	bindResizeOptions(cmd, &c)
	return cmd
}

// way is what a restore does about one pod.
type way struct {
	pod      *corev1.Pod
	standing snapshot.Row
	declared []v1alpha1.ContainerLimit
	homeward
}

// homeward is how a pod gets back to its declared limits.
type homeward struct {
	move *actuator.Move // nil: nothing to do, and why says why
	why  string
	// problem: why is something that the person should mend.
	problem bool
	// kept are the containers that are left as somebody else set them, in words; "" if there are none.
	kept string
}

func restorePods(ctx context.Context, a *cluster.Access, s Streams, pod string, how resize.Options) error {
	w, err := cluster.Read(ctx, a, cluster.Selection{Namespace: a.Namespace, Pod: pod})
	if err != nil {
		return err
	}
	declared, err := restore.ReadLedgers(ctx, a.Client, a.System)
	for _, pa := range w.Allocations {
		restore.AddRecorded(declared, []v1alpha1.PodAllocation{*pa})
	}
	if err != nil && w.Allocations == nil {
		return fmt.Errorf("no record of declared limits can be read: %w", err)
	}
	var failed []string
	var moved []snapshot.Row
	there, kept := 0, 0
	for _, way := range ways(w, declared) {
		if way.kept != "" {
			kept++
			fmt.Fprintf(s.Out, "%s: %s\n", resize.PodText(way.pod), way.kept)
		}
		switch {
		case way.move != nil:
			how.Redecide = func(pod *corev1.Pod) *actuator.Move { return back(pod, way.declared).move }
			if err := resize.Apply(ctx, a, s, way.pod, *way.move, how); err != nil {
				if ctx.Err() != nil {
					return err
				}
				fmt.Fprintf(s.Err, "error: %v\n", err)
				failed = append(failed, way.pod.Namespace+"/"+way.pod.Name)
				continue
			}
			moved = append(moved, way.standing)
		case way.problem:
			fmt.Fprintf(s.Err, "error: %s: %s\n", resize.PodText(way.pod), way.why)
			failed = append(failed, way.pod.Namespace+"/"+way.pod.Name)
		case way.kept != "":
		case pod != "":
			fmt.Fprintf(s.Out, "%s: %s\n", resize.PodText(way.pod), way.why)
		default:
			there++
		}
	}
	if pod == "" {
		done := "restored"
		if how.DryRun {
			done = "would be restored"
		}
		others := ""
		if kept > 0 {
			others = fmt.Sprintf("%d with limits that another writer set, ", kept)
		}
		fmt.Fprintf(s.Out, "%s %s, %d at their declared limits or never changed, %s%d failed in %s.\n", format.Plural(len(moved), "pod"), done, there, others, len(failed), format.NamespaceScope(a.Namespace))
	}
	if !how.DryRun {
		writeReturn(s.Out, moved)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s could not be restored: %s", format.Plural(len(failed), "pod"), format.Few(failed))
	}
	return nil
}

// ways decides about every pod; it is pure.
func ways(w *snapshot.Snapshot, declared map[types.UID]restore.Entry) []way {
	var list []way
	for i := range w.Pods {
		pod := &w.Pods[i]
		one := way{
			pod: pod, standing: w.Row(pod),
			declared: declared[pod.UID].Limits, homeward: back(pod, declared[pod.UID].Limits),
		}
		if len(declared[pod.UID].Limits) == 0 && one.standing.Reason == string(reasons.DeclaredLimitUnknown) {
			one.why, one.problem = reasons.DeclaredLimitUnknown.Sentence(), true
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b way) int { return snapshot.ByName(a.standing, b.standing) })
	return list
}

// back is the way to the declared limits.
func back(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) homeward {
	switch {
	case len(declared) == 0 && len(kube.Ours(pod)) > 0:
		return homeward{why: reasons.DeclaredLimitUnknown.Sentence(), problem: true}
	case len(declared) == 0:
		return homeward{why: "no declared limits are on record, so it was never changed"}
	case pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning:
		return homeward{why: "is not running"}
	}
	move, external := restore.ToDeclared(pod, declared)
	var home homeward
	if len(external) > 0 {
		home.kept = "left as it is: another writer set " + kube.LimitsText(external)
	}
	if len(move.Changes) > 0 {
		home.move = &move
	} else {
		home.why = fmt.Sprintf("is at its declared limit of %v already", kube.Total(declared))
	}
	return home
}

// writeReturn says which of the restored pods MBCAS will move again, and how to stop it.
func writeReturn(out io.Writer, moved []snapshot.Row) {
	var namespaces []string
	again := 0
	for _, m := range moved {
		if movesAgain(m) {
			again++
			namespaces = append(namespaces, m.Namespace)
		}
	}
	if again == 0 {
		return
	}
	slices.Sort(namespaces)
	fmt.Fprintf(out, "MBCAS leaves %s alone for %s and then moves %s again. To stop that:\n", format.Plural(again, "pod"), resize.Alone, map[bool]string{true: "it", false: "them"}[again == 1])
	for _, n := range slices.Compact(namespaces) {
		fmt.Fprintf(out, "  kubectl mbcas mode %s restore\n", n)
	}
	if again == 1 {
		for _, m := range moved {
			if movesAgain(m) {
				fmt.Fprintf(out, "  or, for this pod alone: kubectl label pod %s -n %s %s=false\n", m.Pod, m.Namespace, kube.ManagedKey)
			}
		}
	}
}

// movesAgain says whether MBCAS goes on resizing the pod.
func movesAgain(s snapshot.Row) bool {
	return s.Managed && (s.Mode == kube.ModeEnforce || s.Mode == "") && s.Reason != string(reasons.Recommending)
}

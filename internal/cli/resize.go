package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// adoption is what MBCAS does after somebody else changed a limit.
var adoption = "MBCAS takes the new limit as declared and leaves the pod alone for " + alone

// carrying says how a resize is carried out.
type carrying struct {
	dryRun, wait bool
	timeout      time.Duration
	// again decides anew about a pod that changed while it was being resized; nil from it: nothing is to be done
	// any more. Without again, what was asked for stays the same.
	again func(*corev1.Pod) *actuator.Move
}

func (c *carrying) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "ask the API server what would happen, and change nothing")
	cmd.Flags().BoolVar(&c.wait, "wait", true, "wait until the kubelet has done it")
	cmd.Flags().DurationVar(&c.timeout, "timeout", time.Minute, "how long to wait")
}

func resizeCommand(s Streams, f *flags) *cobra.Command {
	var o ask
	var c carrying
	var limit string
	cmd := &cobra.Command{
		Use:   "resize POD --cpu-limit LIMIT",
		Short: "Change the CPU limit of a running pod, guarded",
		Long: "Change the CPU limit of one container in place, without a restart, and wait until the kubelet has done it.\n" +
			"What would harm the pod, or what Kubernetes would refuse or could not undo, is refused with the reason.\n" +
			"Where MBCAS manages the pod: " + adoption + ".",
		Example:           "  kubectl mbcas resize cart-7d9f --cpu-limit 500m\n  kubectl mbcas resize cart-7d9f --cpu-limit 1.5 -c app --dry-run",
		Args:              podArgs(1, 1),
		ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *Access, args []string) error {
			q, err := resource.ParseQuantity(limit)
			if limit == "" || err != nil || q.Sign() <= 0 {
				return UsageError{fmt.Errorf("--cpu-limit %q: want a positive amount of CPU such as 500m or 1.5", limit)}
			}
			o.limit = kube.Milli(q)
			return resize(ctx, a, s, args[0], o, c)
		}),
	}
	cmd.Flags().StringVar(&limit, "cpu-limit", "", "the new limit, such as 500m or 1.5")
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "container to resize, where several have a CPU limit")
	cmd.Flags().BoolVar(&o.force, "force", false, "do it although it may harm the pod")
	c.bind(cmd)
	return cmd
}

func resize(ctx context.Context, a *Access, s Streams, name string, o ask, how carrying) error {
	w, err := gather(ctx, a, selection{namespace: a.Namespace, pod: name})
	if err != nil {
		return err
	}
	readLive(ctx, a, w)
	pod := &w.Pods[0]
	t := target{pod: pod, standing: standings(w, a.System)[0], allocatable: allocatable(ctx, a, pod)}
	move, against := guard(t, o)
	if err := refuse(pod, against, o.force); err != nil {
		return err
	}
	for _, objection := range against {
		fmt.Fprintf(s.Err, "warning: %s\n", objection.Why)
	}
	change := move.Changes[0]
	if change.To != o.limit {
		fmt.Fprintf(s.Err, "warning: limits move in steps of %v, so %v becomes %v\n", cpu.Quantum, o.limit, change.To)
	}
	if change.From == change.To {
		_, err := fmt.Fprintf(s.Out, "%s: container %s has a limit of %v already\n", podText(pod), change.Container, change.To)
		return err
	}
	if err := carryOut(ctx, a, s, pod, move, how); err != nil {
		return err
	}
	if after := afterwards(t.standing); after != "" && !how.dryRun {
		fmt.Fprintln(s.Out, after)
	}
	return nil
}

// refuse is the error that the objections make; nil if they are none, or may be forced.
func refuse(pod *corev1.Pod, against []Objection, force bool) error {
	final := false
	var why []string
	for _, o := range against {
		final = final || o.Final
		why = append(why, o.Why)
	}
	if len(against) == 0 || (force && !final) {
		return nil
	}
	text := fmt.Sprintf("%s is not resized: %s", podText(pod), strings.Join(why, "; "))
	if !final {
		text += "; --force does it nevertheless"
	}
	return errors.New(text)
}

// afterwards says what MBCAS will do about a change made by hand; "" where it does nothing.
func afterwards(s Standing) string {
	switch {
	case !s.Managed || s.Mode == kube.ModeOff || s.Mode == kube.ModeRecommend || s.Reason == string(reasons.Recommending):
		return ""
	case s.Mode == kube.ModeRestore:
		return adoption + "; the namespace is in mode restore, so the limit stays at what is declared."
	}
	return fmt.Sprintf("%s; then it moves the limit again. To keep it: kubectl label pod %s -n %s %s=false", adoption, s.Pod, s.Namespace, kube.ManagedKey)
}

// carryOut asks first, then applies the move and follows it to its end.
func carryOut(ctx context.Context, a *Access, s Streams, pod *corev1.Pod, move actuator.Move, how carrying) error {
	resizer := podresize.New(a.Client, kube.PluginFieldManager)
	dry, err := insist(ctx, a, pod, &move, how.again, resizer.DryRun)
	if err != nil {
		return err
	}
	why := refusal(dry)
	if dry.Outcome == podresize.NoDryRun && !how.dryRun {
		why = "" // then it has to be tried
	}
	if why != "" {
		return fmt.Errorf("%s is not resized: %s", podText(pod), why)
	}
	if how.dryRun {
		_, err := fmt.Fprintf(s.Out, "%s: %s (dry run: the API server would take it)\n", podText(pod), moveText(move))
		return err
	}
	result, err := insist(ctx, a, pod, &move, how.again, resizer.Apply)
	if err != nil {
		return err
	}
	if why := refusal(result); why != "" {
		return fmt.Errorf("%s is not resized: %s", podText(pod), why)
	}
	fmt.Fprintf(s.Out, "%s: %s\n", podText(pod), moveText(move))
	if !how.wait {
		return nil
	}
	return follow(ctx, a, s, result.Pod, move, how.timeout)
}

// insist tries again with the pod as it is now when it has changed since it was read. Without again, what is
// asked for stays the same, wherever it starts from.
func insist(ctx context.Context, a *Access, pod *corev1.Pod, move *actuator.Move, again func(*corev1.Pod) *actuator.Move, do func(context.Context, *corev1.Pod, actuator.Move) podresize.Result) (r podresize.Result, err error) {
	for range 5 {
		if r = do(ctx, pod, *move); r.Outcome != podresize.Conflict {
			return r, nil
		}
		if err := reread(ctx, a, pod); err != nil {
			return r, err
		}
		if again != nil {
			next := again(pod)
			if next == nil {
				return r, fmt.Errorf("%s: somebody else changed it in this moment, and it is left as it is", podText(pod))
			}
			*move = *next
			continue
		}
		now := limits(pod)
		for i, c := range move.Changes {
			move.Changes[i].From = now[c.Container]
		}
	}
	return r, nil
}

// reread replaces the pod by what is stored now, and refuses another pod of its name.
func reread(ctx context.Context, a *Access, pod *corev1.Pod) error {
	uid, text := pod.UID, podText(pod)
	var fresh corev1.Pod
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(pod), &fresh); err != nil {
		return fmt.Errorf("%s: read it again: %w", text, err)
	}
	if fresh.UID != uid {
		return fmt.Errorf("%s: another pod has taken its name; look at it first", text)
	}
	*pod = fresh
	return nil
}

func moveText(m actuator.Move) string {
	var parts []string
	for _, c := range m.Changes {
		parts = append(parts, fmt.Sprintf("container %s %v -> %v", c.Container, c.From, c.To))
	}
	return strings.Join(parts, ", ")
}

func podText(pod *corev1.Pod) string { return fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name) }

// allocatable is the CPU that the pod's node has to give; 0 where that cannot be read.
func allocatable(ctx context.Context, a *Access, pod *corev1.Pod) cpu.Milli {
	var node corev1.Node
	if err := a.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return 0
	}
	return kube.Milli(node.Status.Allocatable[corev1.ResourceCPU])
}

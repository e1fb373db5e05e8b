// Package resize changes CPU limits by hand: Check says what speaks against a change, Apply carries it out and waits for the
// kubelet.
package resize

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// Adoption is what MBCAS does after somebody else changed a limit.
var Adoption = "MBCAS takes the new limit as declared and leaves the pod alone for " + Alone

// Options says how a resize is carried out.
type Options struct {
	DryRun, Wait bool
	Timeout      time.Duration
	// Redecide decides anew about a pod that changed while it was being resized; nil from it: nothing is to be done
	// any more. Without again, what was asked for stays the same.
	Redecide func(*corev1.Pod) *actuator.Move
}

// Refuse is the error that the objections make; nil if they are none, or may be forced.
func Refuse(pod *corev1.Pod, against []Objection, force bool) error {
	final := false
	var why []string
	for _, o := range against {
		final = final || o.Final
		why = append(why, o.Why)
	}
	if len(against) == 0 || (force && !final) {
		return nil
	}
	text := fmt.Sprintf("%s is not resized: %s", PodText(pod), strings.Join(why, "; "))
	if !final {
		text += "; --force does it nevertheless"
	}
	return errors.New(text)
}

// AfterResize says what MBCAS will do about a change made by hand; "" where it does nothing.
func AfterResize(s snapshot.Row) string {
	switch {
	case !s.Managed || s.Mode == kube.ModeOff || s.Mode == kube.ModeRecommend || s.Reason == string(reasons.Recommending):
		return ""
	case s.Mode == kube.ModeRestore:
		return Adoption + "; the namespace is in mode restore, so the limit stays at what is declared."
	}
	return fmt.Sprintf("%s; then it moves the limit again. To keep it: kubectl label pod %s -n %s %s=false", Adoption, s.Pod, s.Namespace, kube.ManagedKey)
}

// Apply asks first, then applies the move and follows it to its end.
func Apply(ctx context.Context, a *cluster.Access, s format.Streams, pod *corev1.Pod, move actuator.Move, how Options) error {
	resizer := podresize.New(a.Client, kube.PluginFieldManager)
	dry, err := retryOnConflict(ctx, a, pod, &move, how.Redecide, resizer.DryRun)
	if err != nil {
		return err
	}
	why := refusal(dry)
	if dry.Outcome == podresize.NoDryRun && !how.DryRun {
		why = "" // then it has to be tried
	}
	if why != "" {
		return fmt.Errorf("%s is not resized: %s", PodText(pod), why)
	}
	if how.DryRun {
		_, err := fmt.Fprintf(s.Out, "%s: %s (dry run: the API server would take it)\n", PodText(pod), moveText(move))
		return err
	}
	result, err := retryOnConflict(ctx, a, pod, &move, how.Redecide, resizer.Apply)
	if err != nil {
		return err
	}
	if why := refusal(result); why != "" {
		return fmt.Errorf("%s is not resized: %s", PodText(pod), why)
	}
	fmt.Fprintf(s.Out, "%s: %s\n", PodText(pod), moveText(move))
	if !how.Wait {
		return nil
	}
	return waitUntilInForce(ctx, a, s, result.Pod, move, how.Timeout)
}

// retryOnConflict tries again with the pod as it is now when it has changed since it was read. Without again, what is
// asked for stays the same, wherever it starts from.
func retryOnConflict(ctx context.Context, a *cluster.Access, pod *corev1.Pod, move *actuator.Move, again func(*corev1.Pod) *actuator.Move, do func(context.Context, *corev1.Pod, actuator.Move) podresize.Result) (r podresize.Result, err error) {
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
				return r, fmt.Errorf("%s: somebody else changed it in this moment, and it is left as it is", PodText(pod))
			}
			*move = *next
			continue
		}
		now := snapshot.Limits(pod)
		for i, c := range move.Changes {
			move.Changes[i].From = now[c.Container]
		}
	}
	return r, nil
}

// reread replaces the pod by what is stored now, and refuses another pod of its name.
func reread(ctx context.Context, a *cluster.Access, pod *corev1.Pod) error {
	uid, text := pod.UID, PodText(pod)
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

func PodText(pod *corev1.Pod) string { return fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name) }

// Allocatable is the CPU that the pod's node has to give; 0 where that cannot be read.
func Allocatable(ctx context.Context, a *cluster.Access, pod *corev1.Pod) cpu.Milli {
	var node corev1.Node
	if err := a.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return 0
	}
	return kube.Milli(node.Status.Allocatable[corev1.ResourceCPU])
}

// Alone is how long MBCAS leaves a pod alone after somebody else changed its limits.
var Alone = fmt.Sprintf("%d minutes", int(kube.ExternalChangeHoldOff.Minutes()))

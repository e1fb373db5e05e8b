// Package resize changes CPU limits by hand. Check, which is pure, turns a request into a move and
// says what speaks against it. Apply carries the move out and waits for the kubelet.
package resize

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// maxConflicts is after how many writes by others in a row a resize is given up.
const maxConflicts = 5

// Options say how a resize is carried out.
type Options struct {
	DryRun, Wait bool
	Timeout      time.Duration
	// Redecide makes a new move for a pod that changed during the resize; nil from it: nothing is
	// left to do. Without Redecide the requested limits stay the same.
	Redecide func(*corev1.Pod) *actuator.Move
}

// Apply tries the move in a dry run, carries it out, and waits until it is in force.
func Apply(ctx context.Context, a *cluster.Access, s format.Streams, r Resize) error {
	resizer := podresize.New(a.Client, kube.PluginFieldManager)
	dry, err := r.retryOnConflict(ctx, a.Client, resizer.DryRun)
	if err != nil {
		return err
	}
	why := refusal(dry)
	if dry.Outcome == podresize.NoDryRun && !r.DryRun {
		why = "" // only the resize itself can tell
	}
	if why != "" {
		return fmt.Errorf("%s is not resized: %s", PodText(r.Pod), why)
	}
	if r.DryRun {
		_, err := fmt.Fprintf(s.Out, "%s: %s (dry run: the API server accepts it)\n", PodText(r.Pod), moveText(r.Move))
		return err
	}
	result, err := r.retryOnConflict(ctx, a.Client, resizer.Apply)
	if err != nil {
		return err
	}
	if why := refusal(result); why != "" {
		return fmt.Errorf("%s is not resized: %s", PodText(r.Pod), why)
	}
	fmt.Fprintf(s.Out, "%s: %s\n", PodText(r.Pod), moveText(r.Move))
	if !r.Wait {
		return nil
	}
	return waitUntilInForce(ctx, a, s, result.Pod, r)
}

// Resize is a move of a pod's limits and how to carry it out. Apply updates both when the pod
// changes meanwhile.
type Resize struct {
	Pod  *corev1.Pod
	Move actuator.Move
	Options
}

// retryOnConflict calls do again with the stored pod if the pod changed since it was read.
func (r *Resize) retryOnConflict(
	ctx context.Context, c client.Client, do func(context.Context, *corev1.Pod, actuator.Move) podresize.Result,
) (result podresize.Result, err error) {
	for range maxConflicts {
		if result = do(ctx, r.Pod, r.Move); result.Outcome != podresize.Conflict {
			return result, nil
		}
		if err := r.readAgain(ctx, c); err != nil {
			return result, err
		}
		if r.Redecide != nil {
			next := r.Redecide(r.Pod)
			if next == nil {
				return result, fmt.Errorf("%s: its limits were changed by another client meanwhile and are left "+
					"as they are", PodText(r.Pod))
			}
			r.Move = *next
			continue
		}
		now := kube.ByName(kube.Limits(r.Pod))
		for i, c := range r.Move.Changes {
			r.Move.Changes[i].From = now[c.Container]
		}
	}
	return result, nil
}

// readAgain reads the stored pod. Another pod of the same name is an error.
func (r *Resize) readAgain(ctx context.Context, c client.Client) error {
	var fresh corev1.Pod
	if err := c.Get(ctx, client.ObjectKeyFromObject(r.Pod), &fresh); err != nil {
		return fmt.Errorf("%s: read it again: %w", PodText(r.Pod), err)
	}
	if fresh.UID != r.Pod.UID {
		return fmt.Errorf("%s: it was replaced by another pod of its name; check that one first", PodText(r.Pod))
	}
	r.Pod = &fresh
	return nil
}

func moveText(m actuator.Move) string {
	var parts []string
	for _, c := range m.Changes {
		parts = append(parts, fmt.Sprintf("container %s %v -> %v", c.Container, c.From, c.To))
	}
	return strings.Join(parts, ", ")
}

// PodText names a pod in messages.
func PodText(pod *corev1.Pod) string { return fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name) }

// Adoption says what MBCAS does after a change of limits by hand, as far as the settings are known.
func Adoption(s kube.Settings) string {
	hold := "for the controller's --" + kube.ExternalChangeHoldOffFlag
	if d, ok := s.Duration(kube.ExternalChangeHoldOffFlag); ok {
		hold = "for " + format.Age(d)
	}
	return "MBCAS takes the new limit as declared and does not resize the pod " + hold
}

// After says what MBCAS does after a change by hand; "" if it does nothing.
func After(r snapshot.Row, s kube.Settings) string {
	switch {
	case !r.Managed, r.Mode == kube.ModeOff, r.Mode == kube.ModeRecommend, r.Reason == string(reasons.Recommending):
		return ""
	case r.Mode == kube.ModeRestore:
		return Adoption(s) + "; the namespace is in mode restore, so the limit stays as declared."
	}
	return fmt.Sprintf("%s; after that it resizes the pod again. To keep the limit: kubectl label pod %s -n %s "+
		"%s=false",
		Adoption(s), r.Pod, r.Namespace, kube.ManagedKey)
}

// Allocatable is the allocatable CPU of the pod's node; 0 if it cannot be read.
func Allocatable(ctx context.Context, a *cluster.Access, pod *corev1.Pod) cpu.Milli {
	var node corev1.Node
	if err := a.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil {
		return 0
	}
	return kube.Milli(node.Status.Allocatable[corev1.ResourceCPU])
}

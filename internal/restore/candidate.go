package restore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
)

// tries is how often a pod that changes meanwhile is read again and tried in one pass.
const tries = 3

// restore tries to restore one pod.
func (r *Cluster) restore(ctx context.Context, c candidate, t *tally) {
	pod := c.pod
	if t.isSick(pod.Namespace) {
		t.leave(pod, "not tried", "the admission webhooks of its namespace do not answer")
		return
	}
	for range tries {
		back := ToDeclared(pod, c.declared)
		move := back.Move
		if len(move.Changes) == 0 && len(back.NotRunning) == 0 { // as it is when read again
			t.restored()
			return
		}
		if len(move.Changes) == 0 {
			t.awaits(pod, back.NotRunning)
			return
		}
		if move.Raises() {
			t.before.raises(pod)
		}
		result := r.resize(ctx, pod, move)
		if result.Outcome == podresize.QuotaExceeded {
			if part, ok := r.affordable(ctx, pod, move); ok {
				if result = r.resize(ctx, pod, part); result.Outcome == podresize.Accepted {
					t.leave(pod, "in part", "a ResourceQuota has no room for all of it")
					return
				}
			}
		}
		t.webhooks(pod.Namespace, result)
		switch result.Outcome {
		case podresize.Accepted, podresize.NoChange:
			t.restored()
			return
		case podresize.PodGone, podresize.Replaced:
			return
		case podresize.Conflict, podresize.Unknown:
		default:
			t.leave(pod, result.Outcome.String(), result.Message)
			return
		}
		fresh := &corev1.Pod{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(pod), fresh); client.IgnoreNotFound(err) != nil {
			t.leave(pod, result.Outcome.String(), err.Error())
			return
		} else if err != nil || fresh.UID != c.pod.UID {
			return
		}
		pod = fresh
	}
	t.leave(pod, "Conflict", "the pod keeps changing")
}

// resize resizes a pod, and writes the audit line. Where admission is not known to leave such pods as
// they are, it is asked first: defaults that it adds can never be removed.
func (r *Cluster) resize(ctx context.Context, pod *corev1.Pod, move actuator.Move) (result podresize.Result) {
	began := r.Now()
	defer func() {
		audit.Write(r.Audit, audit.Attempt{
			Pod: pod, Move: move, Purpose: "restore", Reason: "RestoreAll", Result: result, Latency: r.Now().Sub(began),
		})
	}()
	number := r.admission.mutations.Number(pod.Namespace)
	for !r.admission.trusts(pod) { // again where another pod was found to be changed meanwhile
		number = r.admission.mutations.Number(pod.Namespace)
		result = r.Resize.DryRun(ctx, pod, move)
		if result.Outcome == podresize.WouldMutate {
			r.admission.mutated(pod, number)
		}
		defaults := result.Outcome == podresize.NoDryRun && !kube.FullySpecified(pod) && r.ranged(ctx, pod.Namespace)
		if !result.Harmless(defaults) {
			return result
		}
		if result.Outcome != podresize.Accepted {
			break
		}
		r.admission.trust(pod, number)
	}
	if result = r.Resize.Apply(ctx, pod, move); result.Outcome == podresize.WouldMutate {
		r.admission.mutated(pod, number)
		r.admission.distrust(pod.Namespace)
	}
	return result
}

// ranged says whether a namespace has a LimitRange, or may have one.
func (r *Cluster) ranged(ctx context.Context, namespace string) bool {
	var ranges corev1.LimitRangeList
	err := r.Client.List(ctx, &ranges, client.InNamespace(namespace), client.Limit(1))
	return err != nil || len(ranges.Items) > 0
}

// affordable is the part of a resize that the quotas of the namespace have room for; false if there
// is none, or if they cannot be read.
func (r *Cluster) affordable(ctx context.Context, pod *corev1.Pod, move actuator.Move) (actuator.Move, bool) {
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(pod.Namespace)); err != nil {
		return move, false
	}
	free := cpu.Milli(math.MaxInt32)
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if room, ok := constraints.CPUQuotaOf(q); ok && constraints.QuotaSelects(q, pod) {
			free = min(free, max(0, room.Hard-room.Used))
		}
	}
	part, worth := quota.Shorten(move, free, 0)
	return part, worth && len(part.Changes) > 0
}

// admission is what is known of the admission of resizes. A webhook, a policy or a LimitRange treats
// pods alike that are made from one template, so one dry run serves them all, until one shows that
// admission changes pods of the namespace. Where a resize changed a pod all the same, each pod has a dry
// run of its own.
type admission struct {
	mutations  podresize.Mutations
	mu         sync.Mutex
	harmless   map[string]int64 // the number of mutations when it was found, by template or pod
	distrusted map[string]bool  // templates, by namespace
}

// key names the pods that a dry run of this one serves.
func (a *admission) key(pod *corev1.Pod) string {
	if a.distrusted[pod.Namespace] {
		return string(pod.UID)
	}
	return template(pod)
}

func (a *admission) trusts(pod *corev1.Pod) bool {
	number := a.mutations.Number(pod.Namespace)
	a.mu.Lock()
	defer a.mu.Unlock()
	at, asked := a.harmless[a.key(pod)]
	return asked && at == number
}

// trust notes that a dry run, begun at that number of mutations, found such pods harmless.
func (a *admission) trust(pod *corev1.Pod, number int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.harmless == nil {
		a.harmless = map[string]int64{}
	}
	a.harmless[a.key(pod)] = number
}

// mutated notes that admission would change a pod, or has.
func (a *admission) mutated(pod *corev1.Pod, number int64) {
	a.mu.Lock()
	key := a.key(pod)
	_, asked := a.harmless[key]
	delete(a.harmless, key)
	a.mu.Unlock()
	a.mutations.Found(pod.Namespace, number, asked)
}

func (a *admission) distrust(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.distrusted == nil {
		a.distrusted = map[string]bool{}
	}
	a.distrusted[namespace] = true
}

// template names what the pod was made from: its owner, or for a pod without one its labels and the
// resources that its containers specify.
func template(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return pod.Namespace + "/" + string(owner.UID)
	}
	var b strings.Builder
	b.WriteString(pod.Namespace + "/" + labels.Set(pod.Labels).String())
	for _, c := range append(pod.Spec.Containers[:len(pod.Spec.Containers):len(pod.Spec.Containers)], pod.Spec.InitContainers...) {
		b.WriteString("/" + c.Name)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			_, request := c.Resources.Requests[name]
			_, limit := c.Resources.Limits[name]
			fmt.Fprintf(&b, ":%t%t", request, limit)
		}
	}
	return b.String()
}

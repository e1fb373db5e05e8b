package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/restore"
)

// podState is one pod with what acting on it needs beyond the decision.
type podState struct {
	pod         *corev1.Pod
	pa          *v1alpha1.PodAllocation // nil: none
	constraints v1alpha1.Constraints
	admission   admission
	facts       lifecycle.Pod
}

// task is what to do about one pod. A stray PodAllocation, whose pod is not on the node, has none.
type task struct {
	lifecycle.Task
	*podState
	turn time.Time // when a token may have come; zero: it does not wait for one
}

// pod gathers what is known of one pod; false for a pod of which nothing can be said yet.
func (r *Reconciler) pod(
	ctx context.Context, s *snapshot, cached *corev1.Pod, pa *v1alpha1.PodAllocation,
) (*podState, bool, error) {
	node := s.node.name
	rec := r.memory.of(node, cached.UID)
	if pa != nil && pa.UID != rec.cached {
		r.memory.change(node, cached.UID, func(rec *record) { rec.cached = pa.UID })
	}
	r.memory.caughtUp(node, rec, cached, pa, s.now)
	p := &podState{pod: rec.freshPod(cached, s.now), pa: rec.freshPA(pa, s.now)}
	n, err := r.neighbours(ctx, s, cached.Namespace)
	if err != nil || !n.exists {
		return p, false, err
	}
	excluded := exclusion(p.pod, n, r.Config.Namespace)
	if excluded.Reason != "" && p.pa == nil && len(kube.WrittenByMBCAS(p.pod)) == 0 {
		p.facts.Excluded = excluded
		return p, true, nil
	}
	unknown := n.unsure
	if unknown == "" {
		unknown = n.FailedLookup(p.pod)
		s.failed = s.failed || unknown != "" // reconciled again when the target is asked again
	}
	declared, inLedger, err := r.declaredLimits(ctx, s, p, rec)
	if err != nil {
		return p, false, err
	}
	if declared != nil && inDoubt(p, declared) {
		if err := r.reread(ctx, node, p); apierrors.IsNotFound(err) {
			return p, false, nil
		} else if err != nil {
			return p, false, err
		}
	}
	hpa := r.constrain(p, n, declared)
	p.admission = n.admission(p.pod)
	p.facts = allocation.Facts(p.pod, declared, s.node.allocatable, &p.constraints)
	f := &p.facts
	f.Mode, f.Excluded, f.UnknownAutoscaler, f.HPA = lifecycle.Mode(n.mode), excluded, unknown, hpa
	f.InLedger, f.Memory, f.Evicted = inLedger, rec.Memory, evicted(p.pod, s.node.evicting)
	f.Refused.Reason, f.Refused.Detail = n.Refusal(p.pod)
	f.Resolved = r.resolved(node, p, rec)
	if p.pa != nil {
		f.Recorded, f.Status = true, allocation.StatusOf(&p.pa.Status)
		f.Decision = allocation.DecisionOf(p.pa, r.decisionAge(s, p, rec))
	}
	f.Progress, f.Said = progress(p.pod)
	return p, true, nil
}

// exclusion is why the market may not manage the pod.
func exclusion(pod *corev1.Pod, n *neighbourhood, system string) lifecycle.Cause {
	vpa, managed := n.VPAFor(pod)
	reason, _ := eligibility.Eligible(eligibility.Pod{Pod: pod, Mode: n.mode, System: system, VPA: managed})
	c := lifecycle.Cause{Reason: reason}
	if reason == reasons.ManagedByVPA {
		c.Detail = vpa
	}
	return c
}

// constrain finds what other objects demand of decisions about the pod. hpa says that an HPA
// watches its CPU use.
func (r *Reconciler) constrain(p *podState, n *neighbourhood, declared []v1alpha1.ContainerLimit) (hpa bool) {
	p.constraints, hpa = n.ConstraintsOf(p.pod, declared)
	n.shares[p.pod.UID].bend(&p.constraints)
	p.constraints.CoordinationPercent = r.conductor.factor(p.pod, p.pa)
	if n.unheard && p.pa != nil && p.pa.Status.Constraints != nil { // after a start, the last known demand holds
		stored := p.pa.Status.Constraints
		p.constraints.DemandPercent, p.constraints.DemandBy = stored.DemandPercent, stored.DemandBy
	}
	return hpa
}

// progress is how far the kubelet is with the limits in the pod's spec, and what it says.
func progress(pod *corev1.Pod) (lifecycle.Progress, string) {
	p, said := podresize.Check(pod, kube.ByName(kube.Limits(pod)), pod.Generation)
	switch p {
	case podresize.Done:
		return lifecycle.Done, said
	case podresize.Deferred:
		return lifecycle.Deferred, said
	case podresize.Infeasible:
		return lifecycle.Infeasible, said
	case podresize.Errored:
		return lifecycle.Errored, said
	}
	return lifecycle.InProgress, said
}

// decisionAge is the time since the agent is known to have stood by its decision, by the rule for
// Leases: a new one counts from when it is first seen, on our own clock, and one that is found at
// our start has to look fresh.
func (r *Reconciler) decisionAge(s *snapshot, p *podState, rec record) time.Duration {
	if p.pa.Spec.Decision == nil {
		return 0
	}
	observed := p.pa.Spec.Decision.ObservedAt.Time
	if rec.observed.Equal(observed) {
		return s.now.Sub(rec.observedAt)
	}
	at := s.now
	if rec.observed.IsZero() {
		at = believed(observed, s.now, r.Config.FreezeAfter)
	}
	r.memory.change(s.node.name, p.pod.UID, func(rec *record) { rec.observed, rec.observedAt = observed, at })
	return s.now.Sub(at)
}

// declaredLimits finds the declared limits, nil where they are unknown, and remembers them.
func (r *Reconciler) declaredLimits(
	ctx context.Context, s *snapshot, p *podState, rec record,
) (declared []v1alpha1.ContainerLimit, inLedger bool, err error) {
	if !rec.unknownAt.IsZero() && s.now.Sub(rec.unknownAt) < time.Minute {
		return nil, false, nil
	}
	limits, known, err := r.declared(ctx, p.pod, rec, p.pa, s.ledger)
	if err != nil {
		return nil, false, err
	}
	if known {
		declared = limits
	}
	e, _ := restore.ReadEntry(s.ledger, p.pod.UID)
	inLedger = kube.SameLimits(e.Limits, limits) || kube.SameLimits(rec.ledgered, limits) && s.now.Sub(rec.ledgeredAt) < lag
	r.memory.change(s.node.name, p.pod.UID, func(rec *record) {
		rec.declared, rec.unknownAt = declared, time.Time{}
		if !known {
			rec.unknownAt = s.now
		}
	})
	return declared, inLedger, nil
}

// inDoubt says whether the pod looks as if another client, or this one before a restart, had
// changed it. Two caches never show the same moment, so such a pod is read again before anything is
// concluded.
func inDoubt(p *podState, declared []v1alpha1.ContainerLimit) bool {
	applied := declared
	if p.pa != nil && len(p.pa.Status.AppliedLimits) > 0 {
		applied = p.pa.Status.AppliedLimits
	}
	return !kube.Ended(p.pod) && !kube.SameLimits(applied, limitsOf(p.pod, declared))
}

// limitsOf are the limits in the pod's spec, of the containers whose declared limits are known.
func limitsOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) []v1alpha1.ContainerLimit {
	known := kube.ByName(declared)
	var limits []v1alpha1.ContainerLimit
	for _, l := range kube.Limits(pod) {
		if _, ok := known[l.Name]; ok {
			limits = append(limits, l)
		}
	}
	return limits
}

// reread reads a pod from the API server itself.
func (r *Reconciler) reread(ctx context.Context, node string, p *podState) error {
	fresh := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(p.pod), fresh); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", p.pod.Namespace, p.pod.Name, err)
	}
	if fresh.UID != p.pod.UID {
		return apierrors.NewNotFound(corev1.Resource("pods"), p.pod.Name)
	}
	p.pod = fresh
	r.remember(node, fresh)
	return nil
}

// remember keeps what decisions need of a pod as the API server returned it, until the cache shows
// it too.
func (r *Reconciler) remember(node string, pod *corev1.Pod) {
	kept := trimmed(pod)
	r.memory.change(node, pod.UID, func(rec *record) { rec.pod, rec.podAt = kept, r.Now() })
}

// status is the stored status with what the task changes. A newer generation of spec that changes
// nothing else is not worth a write for each pod and decision: the next change carries it.
func (t *task) status(now time.Time) v1alpha1.PodAllocationStatus {
	status := *t.pa.Status.DeepCopy()
	allocation.SetStatus(&status, t.Status)
	if t.facts.Declared != nil && !t.facts.Ended {
		c := t.constraints
		c.NoDecrease = string(t.NoDecrease)
		status.Constraints = nil
		if !equality.Semantic.DeepEqual(c, v1alpha1.Constraints{}) {
			status.Constraints = &c
		}
	}
	status.ConfirmGeneration = 0
	if t.Status.Reason == reasons.DecisionTooOld {
		status.ConfirmGeneration = t.pa.Generation
	}
	setConditions(&status, now)
	if !equality.Semantic.DeepEqual(t.pa.Status, status) {
		status.ObservedGeneration = t.pa.Generation
		setConditions(&status, now)
	}
	return status
}

// reference is the pod of a PodAllocation, as far as that names it.
func reference(pa *v1alpha1.PodAllocation) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Spec.PodRef.Name, UID: pa.Spec.PodRef.UID},
		Spec:       corev1.PodSpec{NodeName: pa.Spec.NodeName},
	}
}

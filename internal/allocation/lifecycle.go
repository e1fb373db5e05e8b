package allocation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/market"
)

// Facts are what lifecycle needs of the pod itself, with these declared limits and constraints. The
// caller adds what it knows beyond the pod: records, eligibility, autoscalers, and the mode of the
// namespace.
func Facts(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, allocatable cpu.Milli, c *v1alpha1.Constraints) lifecycle.Pod {
	kept := v1alpha1.Constraints{}
	if c != nil {
		kept = *c
	}
	p := lifecycle.Pod{
		UID: string(pod.UID), TooLarge: kube.TooLarge(kube.Limits(pod)) || kube.TooLarge(declared), Ended: kube.Ended(pod), Deleted: pod.DeletionTimestamp != nil,
		OwnWrites: len(kube.WrittenByMBCAS(pod)) > 0, Declared: LimitsOf(declared), NoDecrease: reasons.Reason(kept.NoDecrease),
	}
	readiness(&p, pod)
	bounds := constraints.BoundsOf(pod, declared, allocatable, c)
	kept.NoDecrease = string(reasons.UnhealthyAfterDecrease)
	keeping := constraints.BoundsOf(pod, declared, allocatable, &kept)
	p.Ceiling = bounds.Ceiling
	ours, possiblyOurs := kube.WrittenByMBCAS(pod), kube.PossiblyWrittenByMBCAS(pod)
	restoreFloors := kube.RestoreFloors(pod, declared)
	for _, c := range kube.Containers(pod) {
		b := bounds.Containers[c.Spec.Name]
		p.Containers = append(p.Containers, lifecycle.Container{
			Name: c.Spec.Name, Limit: c.Limit(), Own: ours[c.Spec.Name], PossiblyOwn: possiblyOurs[c.Spec.Name], Settable: demand.Settable(c.Request()),
			Floor: b.Floor, NoDecreaseFloor: keeping.Containers[c.Spec.Name].Floor, Ceiling: b.Ceiling,
			RestoreFloor: restoreFloors[c.Spec.Name], NotRunning: !c.Runs(), Completed: c.Completed(pod.Spec.RestartPolicy),
			FailedStart: c.FailedStart(), FailedAt: c.FailedAt(),
		})
	}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		observe(&p, &s)
	}
	return p
}

// NoteOthers notes when other managers last resized containers, as far as the pod had its PodAllocation
// by then: what they wrote before is what was found declared.
func NoteOthers(p *lifecycle.Pod, pod *corev1.Pod, recorded metav1.Time) {
	at := kube.ResizedByOthers(pod)
	for i := range p.Containers {
		if c := &p.Containers[i]; !at[c.Name].Before(recorded.Time) {
			c.ResizedByOther = at[c.Name]
		}
	}
}

// readiness takes over whether the pod is Ready. The kubelet always gives a reason for a pod that
// is not. A condition without one is of the node controller, which sets all pods of an unreachable
// node to not Ready and changes nothing but the time (MarkPodsNotReady in pkg/controller/util/node
// of Kubernetes). It may be seen before the node is. A kubelet that comes back gives its own reason
// and keeps that time.
func readiness(p *lifecycle.Pod, pod *corev1.Pod) {
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		if p.Ready = c.Status == corev1.ConditionTrue; p.Ready {
			p.ReadySince = c.LastTransitionTime.Time
		}
		if c.Status == corev1.ConditionFalse && c.Reason != "" {
			p.UnreadySince = c.LastTransitionTime.Time
		}
	}
}

// observe takes over what the kubelet reports of a container. An init container that is no sidecar
// has no limit to resize, but its start counts for the grace of the pod.
func observe(p *lifecycle.Pod, s *corev1.ContainerStatus) {
	i := slices.IndexFunc(p.Containers, func(c lifecycle.Container) bool { return c.Name == s.Name })
	if i < 0 {
		i = len(p.Containers)
		p.Containers = append(p.Containers, lifecycle.Container{Name: s.Name})
	}
	c := &p.Containers[i]
	c.Restarts = int(s.RestartCount)
	if s.State.Running != nil {
		c.StartedAt = s.State.Running.StartedAt.Time
		if s.Resources != nil {
			c.InForce = kube.Milli(s.Resources.Limits[corev1.ResourceCPU])
		}
	}
	for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil {
			c.EndedAt = append(c.EndedAt, end.FinishedAt.Time)
		}
	}
}

// DecisionOf is the decision of a PodAllocation, made so long ago, of that age by what the agent stands by, and which
// it has not stood by for so long; nil: none yet.
func DecisionOf(pa *v1alpha1.PodAllocation, made, age, unconfirmed time.Duration) *lifecycle.Decision {
	if len(pa.Spec.Containers) == 0 && pa.Spec.Decision == nil {
		return nil
	}
	decision := &lifecycle.Decision{Limits: LimitsOf(pa.Spec.Containers), Age: age, Unconfirmed: unconfirmed}
	if d := pa.Spec.Decision; d != nil {
		decision.Price, decision.Demand, decision.Budget = d.Price, d.Demand, market.Budget(d.Budget)
		decision.AtFloor = d.BoundBy == v1alpha1.BoundByFloor
		decision.RevokedFor = max(0, time.Duration(d.RevokedForSeconds)*time.Second-made)
		decision.Throttled = float64(d.ThrottledPercent) >= 100*demand.DefaultConfig().ThrottleThreshold
	}
	return decision
}

// StatusOf is what is recorded of a pod, as lifecycle has it.
func StatusOf(s *v1alpha1.PodAllocationStatus) lifecycle.Status {
	return lifecycle.Status{
		Phase: lifecycle.Phase(s.Phase), Reason: reasons.Reason(s.Reason), Message: s.Message,
		Declared: LimitsOf(s.DeclaredLimits), Applied: LimitsOf(s.AppliedLimits),
		LastApplied:  s.LastAppliedTime.Time,
		LastIncrease: s.LastIncreaseTime.Time, LastDecrease: s.LastDecreaseTime.Time,
		RollbackLimits: LimitsOf(s.Rollback.Limits), RollbackWindowStart: s.Rollback.WindowStart.Time,
		LastHarmfulDecrease: s.Rollback.LastHarmfulDecreaseTime.Time,
		LastExternalChange:  s.LastExternalChangeTime.Time,
		RetryAt:             s.Retry.Time.Time, Failures: s.Retry.Failures,
	}
}

// Records says whether a status records what nothing before it does: declared limits, an external change or harm.
func Records(before, after *v1alpha1.PodAllocationStatus) bool {
	harm := &after.Rollback.LastHarmfulDecreaseTime
	return !kube.SameLimits(before.DeclaredLimits, after.DeclaredLimits) ||
		!before.LastExternalChangeTime.Equal(&after.LastExternalChangeTime) ||
		!before.Rollback.LastHarmfulDecreaseTime.Equal(harm)
}

// SetStatus writes a status of lifecycle, and leaves what is not lifecycle's.
func SetStatus(to *v1alpha1.PodAllocationStatus, s lifecycle.Status) {
	to.Phase, to.Reason, to.Message = v1alpha1.Phase(s.Phase), string(s.Reason), s.Message
	to.DeclaredLimits, to.AppliedLimits = ContainerLimits(s.Declared), slices.DeleteFunc(ContainerLimits(s.Applied),
		func(l v1alpha1.ContainerLimit) bool { return l.CPULimit > cpu.Largest }) // of another writer
	to.AppliedCPULimit = nil
	if len(s.Applied) > 0 {
		to.AppliedCPULimit = new(min(s.Applied.Total(), cpu.Largest))
	}
	to.LastAppliedTime = metav1.NewMicroTime(s.LastApplied)
	to.LastIncreaseTime, to.LastDecreaseTime = metav1.NewMicroTime(s.LastIncrease), metav1.NewMicroTime(s.LastDecrease)
	to.Rollback = v1alpha1.RollbackStatus{
		Limits: ContainerLimits(s.RollbackLimits), WindowStart: metav1.NewMicroTime(s.RollbackWindowStart),
		LastHarmfulDecreaseTime: metav1.NewMicroTime(s.LastHarmfulDecrease),
	}
	to.LastExternalChangeTime = metav1.NewMicroTime(s.LastExternalChange)
	to.Retry = v1alpha1.RetryStatus{Time: metav1.NewMicroTime(s.RetryAt), Failures: s.Failures}
}

// LimitsOf are limits of the API as lifecycle has them; nil: none.
func LimitsOf(list []v1alpha1.ContainerLimit) lifecycle.Limits {
	var limits lifecycle.Limits
	for _, l := range list {
		limits = append(limits, lifecycle.Limit{Container: l.Name, CPU: l.CPULimit})
	}
	return limits
}

// ContainerLimits are limits of lifecycle as the API has them; nil: none.
func ContainerLimits(limits lifecycle.Limits) []v1alpha1.ContainerLimit {
	var list []v1alpha1.ContainerLimit
	for _, l := range limits {
		list = append(list, v1alpha1.ContainerLimit{Name: l.Container, CPULimit: l.CPU})
	}
	return list
}

// SetBoostFault says what is wrong with the start-up boost of the pod as long as something is. It is a condition of
// its own: phase and reason tell of the limits, which are decided as without a boost.
func SetBoostFault(s *v1alpha1.PodAllocationStatus, fault string, now time.Time) {
	if fault == "" {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionStartupBoostValid)
		return
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStartupBoostValid, Status: metav1.ConditionFalse,
		Reason: string(reasons.InvalidStartupBoost), Message: lifecycle.Sentence(reasons.InvalidStartupBoost, fault),
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
	})
}

// SetConditions says the same as phase and reason in the form that generic tools read.
func SetConditions(s *v1alpha1.PodAllocationStatus, now time.Time) {
	reason := s.Reason
	if reason == "" {
		reason = string(reasons.NoDecisionYet)
	}
	ready, actuation := metav1.ConditionFalse, !s.LastAppliedTime.IsZero()
	switch s.Phase {
	case v1alpha1.PhaseApplied, v1alpha1.PhaseRestored:
		ready = metav1.ConditionTrue
	case v1alpha1.PhaseFailed, v1alpha1.PhasePending:
	default:
		actuation = false // it stays as it was
	}
	kinds := []string{"Ready"}
	if actuation {
		kinds = append(kinds, "Actuated")
	}
	for _, kind := range kinds {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: ready, Reason: reason, Message: s.Message,
			ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
		})
	}
}

package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
)

// heals takes a decrease back after which the pod got into trouble, and says whether that is under way.
// The pod is then not lowered for a day: whatever the figures said, it needed more.
func (t *Task) heals(cfg Config, v View) bool {
	p := t.Pod
	if p.Mode != kube.ModeEnforce {
		return false
	}
	if !t.suffering(v.Now, cfg) && t.trouble(cfg, v) {
		now := metav1.NewMicroTime(v.Now)
		t.Status.Rollback.LastHarmfulDecreaseTime = &now
		t.bend(cfg, v) // from here on, not from the next look on
	}
	if !t.suffering(v.Now, cfg) {
		return false
	}
	t.sooner(t.Status.Rollback.LastHarmfulDecreaseTime.Add(cfg.RollbackHoldOff))
	if t.undone() {
		t.Status.Rollback.Limits, t.Status.Rollback.WindowStart = nil, nil
		return false
	}
	if m := t.undo(v); m != nil {
		if r := t.Status.Retry.Time; r != nil && v.Now.Before(r.Time) || v.Now.Before(p.RetryAt) {
			return false
		}
		t.Move, t.Purpose, t.Why = m, Rollback, reasons.UnhealthyAfterDecrease
		t.hold(v1alpha1.PhaseNotApplied, reasons.UnhealthyAfterDecrease)
		return true
	}
	return false
}

// suffering says whether the pod was hurt by a decrease less than a day ago.
func (t *Task) suffering(now time.Time, cfg Config) bool {
	hurt := t.Status.Rollback.LastHarmfulDecreaseTime
	return hurt != nil && now.Before(hurt.Add(cfg.RollbackHoldOff))
}

// recovers is until when a pod that a decrease hurt is not lowered at all. After that it may be lowered as far as any pod that must not
// be decreased: to its declared limit.
func (t *Task) recovers(cfg Config) time.Time {
	if t.Status.Rollback.LastHarmfulDecreaseTime == nil {
		return time.Time{}
	}
	return t.Status.Rollback.LastHarmfulDecreaseTime.Add(cfg.RollbackWindow)
}

// trouble says whether the pod ceased to be Ready, or a container restarted, in the run of decreases or soon after the
// last of them. What was found once is not found again. The kubelet dates in whole seconds.
func (t *Task) trouble(cfg Config, v View) bool {
	last, since := t.Status.LastDecreaseTime, t.Status.Rollback.WindowStart
	if last == nil || since == nil || len(t.Status.Rollback.Limits) == 0 || !v.Node.Ready {
		return false
	}
	from, to := since.Truncate(time.Second), last.Add(cfg.RollbackWindow)
	soon := func(at metav1.Time, up time.Time) bool {
		found := t.Status.Rollback.LastHarmfulDecreaseTime != nil && !at.After(t.Status.Rollback.LastHarmfulDecreaseTime.Time)
		return !at.Time.Before(from) && !at.After(to) && at.After(up) && !found
	}
	return unreadied(t.Pod.Pod, func(at metav1.Time) bool { return soon(at, v.Node.Since.Add(settling)) }) ||
		ended(t.Pod, func(at metav1.Time) bool { return soon(at, v.Node.Since) })
}

// settling is how long after a node became Ready its pods may be unready only because of that: up to Kubernetes 1.34, a kubelet that
// starts takes pods for not Ready until it has probed them (setReadyStateOnKubeletRestart in pkg/kubelet/prober is newer).
const settling = 10 * time.Second

// unreadied says whether the kubelet found the pod not Ready at such a time. It always gives a reason. What has none is of the
// node controller, which sets all pods of a node to not Ready that has not been heard of, and changes nothing else of the
// condition but its time (MarkPodsNotReady in pkg/controller/util/node of Kubernetes). That may be seen before the node is.
// A kubelet that comes back gives its own reason, and keeps that time.
func unreadied(pod *corev1.Pod, when func(metav1.Time) bool) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason != "" && when(c.LastTransitionTime)
	})
}

// ended says whether a container whose limit we move ended at such a time.
func ended(p Pod, when func(metav1.Time) bool) bool {
	for _, list := range [][]corev1.ContainerStatus{p.Pod.Status.ContainerStatuses, p.Pod.Status.InitContainerStatuses} {
		for _, c := range list {
			for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
				if end != nil && when(end.FinishedAt) && managed(p, c.Name) {
					return true
				}
			}
		}
	}
	return false
}

// managed says whether the container's limit is one that we move.
func managed(p Pod, container string) bool {
	_, ok := byName(p.Declared)[container]
	return ok
}

// undone says whether the limits from before the decrease are in force again: one part of them may have been given
// back before another, and what the kubelet could not follow was taken back.
func (t *Task) undone() bool {
	now := byName(current(t.Pod))
	return t.Pod.Progress == podresize.Done && !slices.ContainsFunc(t.Status.Rollback.Limits, func(l v1alpha1.ContainerLimit) bool {
		limit, ok := now[l.Name]
		return ok && limit < l.CPULimit
	})
}

// undo gives the limits from before the decrease back, as far as the bounds allow; nil where nothing is to be given.
func (t *Task) undo(v View) *actuator.Move {
	if last := t.Status.LastDecreaseTime; last != nil && last.After(t.Status.Rollback.LastHarmfulDecreaseTime.Time) {
		return nil // what was taken since was above a ceiling, or went back to what is declared
	}
	pa := v1alpha1.PodAllocation{Status: t.Status}
	pa.Status.DeclaredLimits = t.Pod.Declared
	pa.Spec.Containers = t.Status.Rollback.Limits
	m := actuator.Move{UID: string(t.Pod.Pod.UID)}
	for _, c := range allocation.State(t.Pod.Pod, &pa, v.Node.Allocatable).Containers {
		if c.Desired > c.Limit {
			m.Changes = append(m.Changes, actuator.Change{Container: c.Name, From: c.Limit, To: c.Desired})
		}
	}
	if len(m.Changes) == 0 {
		return nil
	}
	return &m
}

// lowered notes what the limits were before a decrease, and when that was. In a run of decreases, what counts is
// where it began.
func (t *Task) lowered(cfg Config, at time.Time, from, to []v1alpha1.ContainerLimit) {
	after, fell := byName(to), false
	for _, l := range from {
		fell = fell || after[l.Name] < l.CPULimit
	}
	if !fell {
		return
	}
	before, now := map[string]cpu.Milli{}, metav1.NewMicroTime(at)
	if last := t.Status.LastDecreaseTime; last != nil && at.Sub(last.Time) < cfg.RollbackWindow && t.Status.Rollback.WindowStart != nil {
		before = byName(t.Status.Rollback.Limits)
	} else {
		t.Status.Rollback.WindowStart = &now
	}
	t.Status.Rollback.Limits = nil
	for _, l := range from {
		t.Status.Rollback.Limits = append(t.Status.Rollback.Limits, v1alpha1.ContainerLimit{Name: l.Name, CPULimit: max(l.CPULimit, before[l.Name])})
	}
}

package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

func gone(pod *corev1.Pod) bool { return kube.Ended(pod) }

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// evicted says whether one of the taints is not tolerated by the pod.
func evicted(pod *corev1.Pod, taints []corev1.Taint) bool {
	for i := range taints {
		tolerated := false
		for j := range pod.Spec.Tolerations {
			tolerated = tolerated || pod.Spec.Tolerations[j].ToleratesTaint(klog.Logger{}, &taints[i], false)
		}
		if !tolerated {
			return true
		}
	}
	return false
}

// current are the limits in the pod's spec, of the containers whose declared limits are known.
func current(p Pod) []v1alpha1.ContainerLimit {
	declared := byName(p.Declared)
	var limits []v1alpha1.ContainerLimit
	for _, l := range kube.Limits(p.Pod) {
		if _, ok := declared[l.Name]; ok {
			limits = append(limits, l)
		}
	}
	return limits
}

// inForce are the limits that the kubelet reports for the running containers.
func inForce(pod *corev1.Pod) []v1alpha1.ContainerLimit {
	var limits []v1alpha1.ContainerLimit
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, c := range list {
			if c.State.Running == nil || c.Resources == nil {
				continue
			}
			if q, ok := c.Resources.Limits[corev1.ResourceCPU]; ok {
				limits = append(limits, v1alpha1.ContainerLimit{Name: c.Name, CPULimit: kube.Milli(q)})
			}
		}
	}
	return limits
}

func byName(limits []v1alpha1.ContainerLimit) map[string]cpu.Milli {
	return kube.ByName(limits)
}

// lastApplied are the limits that we last applied: the declared ones if none.
func (t *Task) lastApplied() []v1alpha1.ContainerLimit {
	if len(t.Status.AppliedLimits) == 0 {
		return t.Pod.Declared
	}
	return t.Status.AppliedLimits
}

// applied notes limits that are in the pod's spec.
func (t *Task) applied(limits []v1alpha1.ContainerLimit) {
	total := kube.Total(limits)
	t.Status.AppliedLimits, t.Status.AppliedCPULimit = limits, &total
}

// moved notes that we changed the limits at that time; the kubelet has yet to follow. A revert changes none that are in
// force: the pod was neither lowered nor raised, and stays failed until what was taken back is tried again.
func (t *Task) moved(cfg Config, at time.Time, purpose Purpose, from, to []v1alpha1.ContainerLimit) {
	now := metav1.NewMicroTime(at)
	t.applied(to)
	t.Status.LastAppliedTime = &now
	if purpose == Revert {
		return
	}
	t.lowered(cfg, at, from, to)
	before := byName(from)
	for _, l := range to {
		switch b := before[l.Name]; {
		case l.CPULimit > b:
			t.Status.LastIncreaseTime = &now
		case l.CPULimit < b:
			t.Status.LastDecreaseTime = &now
		}
	}
	t.hold(v1alpha1.PhasePending, reasons.ResizeInFlight)
}

// failed notes a refusal and sets the back-off: it doubles with each failure in a row.
func failed(s *v1alpha1.PodAllocationStatus, cfg Config, now time.Time, r reasons.Reason, said string) {
	retry := metav1.NewMicroTime(now.Add(backoff(cfg, s.Retry.Failures)))
	s.Retry.Failures++
	s.Retry.Time = &retry
	s.Phase, s.Reason, s.Message = v1alpha1.PhaseFailed, string(r), sentence(r, said)
}

// backoff is how long to wait after a failure that follows so many others.
func backoff(cfg Config, failures int32) time.Duration {
	return doubled(cfg.Backoff, cfg.BackoffMax, int(failures))
}

// doubled is a wait that doubles n times, up to most.
func doubled(wait, most time.Duration, n int) time.Duration {
	for range min(n, 16) {
		wait = min(2*wait, most)
	}
	return wait
}

// sentence is the reason in a sentence with what the server or the kubelet said, within the bounds of the API.
func sentence(r reasons.Reason, said string) string {
	s := r.Sentence()
	if said != "" {
		s += ": " + said
	}
	const most = 1024
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most])
	}
	return s
}

package podresize

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Check returns how far the kubelet has applied the limits in want (by container), which the API server
// accepted as the given generation of the pod, and a sentence for it. Generation 0 is unknown: API
// servers before 1.33 do not count. Deferred, Infeasible and Errored are what the kubelet reports about
// this or a later generation; a report about an earlier one counts as InProgress.
//
// Check trusts the status. Some runtimes never report a changed limit (cri-dockerd), or report another
// one, so that Done never comes: the caller bounds the wait. The kernel's cpu.max is authoritative.
func Check(pod *corev1.Pod, want map[string]cpu.Milli, generation int64) (actuator.Progress, string) {
	if pod.Generation < generation {
		return actuator.InProgress, fmt.Sprintf("this copy of the pod is of generation %d, older than the resize (%d)", pod.Generation, generation)
	}
	if c := condition(pod, corev1.PodResizePending); c != nil && current(c.ObservedGeneration, generation) {
		switch c.Reason {
		case corev1.PodReasonInfeasible:
			return actuator.Infeasible, c.Message
		case corev1.PodReasonDeferred:
			return actuator.Deferred, c.Message
		}
		return actuator.Deferred, fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	if c := condition(pod, corev1.PodResizeInProgress); c != nil && current(c.ObservedGeneration, generation) {
		if c.Reason == corev1.PodReasonError {
			return actuator.Errored, c.Message
		}
		return actuator.InProgress, "the kubelet is applying the limits"
	}
	if !current(pod.Status.ObservedGeneration, generation) {
		return actuator.InProgress, fmt.Sprintf("the kubelet has observed generation %d, not yet %d", pod.Status.ObservedGeneration, generation)
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			limit, wanted := want[list[i].Name]
			if !wanted {
				continue
			}
			if why := unmet(pod, list[i].Name, limit); why != "" {
				return actuator.InProgress, why
			}
		}
	}
	return actuator.Done, "the limits are in force"
}

// condition returns the pod's condition of that type if it is true; kubelets remove it otherwise.
func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// current reports whether an observed generation covers the resize. Kubelets before 1.34 report 0,
// which counts as current.
func current(observed, generation int64) bool {
	return observed == 0 || observed >= generation
}

// unmet says why the container's status does not show the limit; "" if it does.
func unmet(pod *corev1.Pod, name string, want cpu.Milli) string {
	c, _ := kube.Find(pod, name)
	status := c.Status
	switch {
	case status == nil && pod.Status.Phase == corev1.PodPending:
		return "" // its kubelet has yet to take it in, and starts the container with the accepted limits
	case status == nil:
		return fmt.Sprintf("container %s has no status yet", name)
	case status.State.Running == nil:
		return "" // a container that is not running starts with the accepted limits
	case status.Resources == nil:
		return fmt.Sprintf("the kubelet does not report the resources of container %s", name)
	}
	q, ok := status.Resources.Limits[corev1.ResourceCPU]
	if !ok {
		return fmt.Sprintf("container %s runs without a CPU limit, not yet with %v", name, want)
	}
	// systemd rounds a quota up to the next multiple of the quantum, so a status less than one quantum
	// off is the same limit, and one whole quantum is another.
	if got := cpu.Milli(q.MilliValue()); got-want >= cpu.Quantum || want-got >= cpu.Quantum {
		return fmt.Sprintf("container %s runs with %v, not yet with %v", name, got, want)
	}
	return ""
}

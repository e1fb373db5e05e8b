package schedule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// cgroups are the CPU quotas of pods' own cgroups on nodes with cgroup v1, as kubelets of
// Kubernetes 1.36 write them: when they see the pod first, and with a resize of a container that
// runs. The kernel refuses a container that starts with a higher quota than its pod's.
type cgroups struct {
	quotas map[types.UID]cpu.Milli // 0: none
	// dead are containers that have ended, which their kubelet reports at its next sync.
	dead map[types.UID]string
	// retry is when a kubelet tries again to start what failed to start.
	retry map[types.UID]time.Time
	// since is when the kubelet had carried out all that it knew of, for 15 s of which an agent
	// reports nothing.
	since map[types.UID]time.Time
}

func newCgroups() cgroups {
	return cgroups{map[types.UID]cpu.Milli{}, map[types.UID]string{}, map[types.UID]time.Time{}, map[types.UID]time.Time{}}
}

// sync takes in what a kubelet is about to report of a pod that obeys resizes: before is the pod as
// it was, after with the new status.
func (c *cgroups) sync(before, after *corev1.Pod, now time.Time) {
	uid := after.UID
	if _, known := c.quotas[uid]; !known || resizedRunning(before, after) {
		c.quotas[uid] = kube.PodQuota(after)
	}
	if after.Status.Phase != corev1.PodRunning {
		return
	}
	if c.since[uid].IsZero() || before.Status.ObservedGeneration != after.Status.ObservedGeneration {
		c.since[uid] = now
	}
}

// resizedRunning says whether a container that runs has another limit in force after the sync.
func resizedRunning(before, after *corev1.Pod) bool {
	was := kube.Containers(before)
	return slices.ContainsFunc(kube.Containers(after), func(c kube.Container) bool {
		i := slices.IndexFunc(was, func(b kube.Container) bool { return b.Spec.Name == c.Spec.Name })
		return was[i].Runs() && c.Runs() && was[i].InForce() != c.InForce()
	})
}

// backOff is how long a kubelet waits after a failed start.
const backOff = 10 * time.Second

// start starts a container, or has it fail. Its quota is the one of its limit then, which is no
// resize.
func (c *cgroups) start(pod *corev1.Pod, of kube.Container, now metav1.Time) {
	s := of.Status
	s.Resources, s.AllocatedResources = of.Spec.Resources.DeepCopy(), of.Spec.Resources.Requests
	if quota := c.quotas[pod.UID]; quota > 0 && of.Limit() > quota {
		c.retry[pod.UID] = now.Add(backOff)
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError"}}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: now, ExitCode: 128, Reason: "StartError"}
		s.Ready, s.Started = false, new(false)
		return
	}
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	s.Ready, s.Started = true, new(true)
}

// begin starts the containers of a pod whose kubelet has seen it before.
func (c *cgroups) begin(pod *corev1.Pod, status *corev1.PodStatus, now metav1.Time) {
	with := pod.DeepCopy()
	with.Status = *status
	for _, of := range kube.Containers(with) {
		if of.Status != nil && of.Status.State.Running != nil {
			c.start(with, of, now)
		}
	}
}

// retries says whether a container of the pod failed to start, and its kubelet tries again now.
func (c *cgroups) retries(pod *corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(kube.Containers(pod), kube.Container.FailedStart) && !now.Before(c.retry[pod.UID])
}

// reported are the wrong quotas of a node that its agent reports: of managed pods.
func (w *world) reported(node string) (quotas allocation.Quotas) {
	managed := map[types.UID]bool{}
	if published := memapi.Get[*v1alpha1.NodeAllocation](w.api, "", node); published != nil {
		for _, p := range published.Spec.Pods {
			managed[p.UID] = true
		}
	}
	for _, p := range memapi.All[*corev1.Pod](w.api) {
		quota, wanted := w.cgroups.quotas[p.UID], kube.PodQuota(p)
		settled := p.Status.ObservedGeneration >= p.Generation && w.now.Sub(w.cgroups.since[p.UID]) >= 15*time.Second
		if managed[p.UID] && quota > 0 && wanted > 0 && quota != wanted && settled {
			quotas.Add(p.UID, allocation.Quota{Generation: p.Generation, CPU: quota})
		}
	}
	return quotas
}

// dies ends a container; its kubelet has yet to report that.
func (w *world) dies(name, which string) {
	if pod := w.pod(name); pod != nil && pod.Status.Phase == corev1.PodRunning {
		list := kube.Containers(pod)
		c := list[len(list)-1]
		if which == "first" {
			c = list[0]
		}
		if c.Runs() {
			w.cgroups.dead[pod.UID] = c.Spec.Name
		}
	}
}

// reportEnded has a kubelet report the container that has ended, and start what failed to start anew.
func (w *world) reportEnded(pod *corev1.Pod, now metav1.Time) (changed bool) {
	name, died := w.cgroups.dead[pod.UID]
	retries := w.cgroups.retries(pod, w.now)
	delete(w.cgroups.dead, pod.UID)
	for _, c := range kube.Containers(pod) {
		switch {
		case c.Status == nil:
		case died && c.Spec.Name == name && c.Status.State.Running != nil:
			c.Status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: now, ExitCode: 137}
		case retries && c.FailedStart():
		default:
			continue
		}
		if c.Status != nil {
			c.Status.RestartCount++
			w.cgroups.start(pod, c, now)
			changed = true
		}
	}
	return changed
}

// rest notes the quota of each pod, where everything works and has had the time to.
func (w *world) rest() {
	for _, p := range memapi.All[*corev1.Pod](w.api) {
		e := history.Event{
			Kind: history.AtRest, Pod: string(p.UID), NotRunning: down(p),
			Before: history.Limits{"pod": kube.PodQuota(p)}, Limits: history.Limits{"pod": w.cgroups.quotas[p.UID]},
		}
		for _, c := range kube.Containers(p) {
			if c.Completed(p.Spec.RestartPolicy) {
				e.NotRunning = slices.DeleteFunc(e.NotRunning, func(name string) bool { return name == c.Spec.Name })
			}
		}
		w.note(e)
	}
}

// Package restore holds what returns pods to the limits that their owners declared: the ledger that records those limits, the
// switch that pauses the installation, its acknowledgement, and the way back. The controller and the plugin share it.
//
// What it promises, each a test of the same name:
//   - AcknowledgesAtOnce: a pause is acknowledged as soon as no resize is in flight, however many pods are managed.
//   - LeavesExternalChanges: a limit that another writer has changed since is not restored.
//   - WaitsForNoContainer: a pod whose limit is raised only once a container runs is named, and holds nothing up. What is
//     to be lowered, is.
//   - WaitsForAllReplicas: nothing is restored while a living replica of the controller has not
//     acknowledged the pause.
//   - ReadsPages: records and pods are read page by page, and a pod at its declared limits costs no
//     request of its own.
//   - ContinuesWhereItEnded: a run that was cut short says what is left, and the next does only that.
//   - EndsWithoutProgress: pods that cannot be restored do not use up the time of a run.
//   - OneNamespaceCostsItself: pods of other namespaces do not wait for a webhook that does not answer.
//   - DryRunsOncePerTemplate: pods of one template share a dry run until admission changes one of them.
//   - ADryRunVoidsOthers: after one that shows that admission would change a pod, the pods of that
//     namespace have another one.
package restore

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Plan is what a restore does about a pod.
type Plan struct {
	Move actuator.Move // the resize; without changes: none
	// External are limits that another writer has set. They are newer than any record, and stay.
	External []v1alpha1.ContainerLimit
	// NotRunning are containers whose limit is raised once they run. A completed one is none of them.
	NotRunning []string
}

// ToDeclared is the plan that returns a pod to these declared limits.
func ToDeclared(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) Plan {
	ours, limits := kube.PossiblyWrittenByMBCAS(pod), RestoreLimits(pod, declared)
	r := Plan{Move: actuator.Move{UID: string(pod.UID)}}
	for _, c := range kube.Containers(pod) {
		name, limit := c.Spec.Name, c.Limit()
		switch to, ok := limits[name]; {
		case !ok || limit == 0 || to == limit:
		case !ours[name]:
			r.External = append(r.External, v1alpha1.ContainerLimit{Name: name, CPULimit: limit})
		case to < limit || c.Runs():
			r.Move.Changes = append(r.Move.Changes, actuator.Change{Container: name, From: limit, To: to})
		case !c.Completed(pod.Spec.RestartPolicy):
			r.NotRunning = append(r.NotRunning, name)
		}
	}
	return r
}

// AddRecorded adds the declared limits that PodAllocations record.
func AddRecorded(entries map[types.UID]Entry, allocations []v1alpha1.PodAllocation) {
	for i := range allocations {
		pa := &allocations[i]
		if len(pa.Status.DeclaredLimits) > 0 {
			entries[pa.Spec.PodRef.UID] = Entry{pa.Namespace, pa.Spec.PodRef.Name, pa.Status.DeclaredLimits}
		}
	}
}

// RestoreLimits are the limits that a pod returns to, by container: the declared ones, or its CPU
// request where that was raised above them.
func RestoreLimits(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) map[string]cpu.Milli {
	limits := kube.ByName(declared)
	for name, floor := range kube.RestoreFloors(pod, declared) {
		limits[name] = floor
	}
	return limits
}

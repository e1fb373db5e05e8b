// Package restore holds what returns pods to the limits that their owners declared: the ledger that records those limits, the
// switch that pauses the installation, its acknowledgement, and the way back. The controller and the plugin share it.
//
// What it promises, each a test of the same name:
//   - AcknowledgesAtOnce: a pause is acknowledged as soon as no resize is in flight, however many pods are managed.
//   - LeavesExternalChanges: a limit that another writer has changed since is not restored.
//   - WaitsForAllReplicas: nothing is restored while a living replica of the controller has not
//     acknowledged the pause.
//   - ReadsPages: records and pods are read page by page, and a pod at its declared limits costs no
//     request of its own.
//   - ContinuesWhereItEnded: a run that was cut short says what is left, and the next does only that.
//   - EndsWithoutProgress: pods that cannot be restored do not use up the time of a run.
//   - OneNamespaceCostsItself: pods of other namespaces do not wait for a webhook that does not answer.
//   - RestoresFromTemplates: a pod without a record, as one that an earlier uninstallation has restored, returns to the
//     limits of the template that it was made from.
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

// ToDeclared is the resize that returns a pod to its declared limits; without changes if there is nothing to do. A limit that
// another writer has set is newer than any record: it stays, and is listed in external.
func ToDeclared(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) (move actuator.Move, external []v1alpha1.ContainerLimit) {
	ours, limits := kube.PossiblyWrittenByMBCAS(pod), RestoreLimits(pod, declared)
	move = actuator.Move{UID: string(pod.UID)}
	for _, l := range kube.Limits(pod) {
		switch to, ok := limits[l.Name]; {
		case !ok || to == l.CPULimit:
		case ours[l.Name]:
			move.Changes = append(move.Changes, actuator.Change{Container: l.Name, From: l.CPULimit, To: to})
		default:
			external = append(external, l)
		}
	}
	return move, external
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

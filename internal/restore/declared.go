// Package restore holds what returns pods to the limits that their owners declared: the ledger that records those limits, the
// switch that pauses the installation, its acknowledgement, and the way back. The controller and the plugin share it.
//
// What it promises, each a test of the same name:
//   - AcknowledgesAtOnce: a pause is acknowledged as soon as no resize is in flight, however many pods are managed.
//   - LeavesExternalChanges: a limit that another writer has changed since is not restored.
//   - WaitsForTheLeader: nothing is restored while a living controller has not acknowledged the pause.
//   - ReadsEachPodOnce: pods that are at their declared limits cost no request of their own.
package restore

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// ToDeclared is the resize that returns a pod to its declared limits; without changes if there is nothing to do. A limit that
// another writer has set is newer than any record: it stays, and is listed in external.
func ToDeclared(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) (move actuator.Move, external []v1alpha1.ContainerLimit) {
	ours, limits := kube.PossiblyWrittenByMBCAS(pod), kube.ByName(declared)
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

// Recorded lists the declared limits of pods: those in the ledger, and those in PodAllocations, which win. What could be read is
// returned with the error.
func Recorded(ctx context.Context, c client.Reader, namespace string) (map[types.UID]Entry, error) {
	entries, err := ReadLedgers(ctx, c, namespace)
	if err != nil {
		return entries, err
	}
	for more := ""; ; {
		var page v1alpha1.PodAllocationList
		if err := c.List(ctx, &page, client.Limit(pageSize), client.Continue(more)); err != nil {
			return entries, err
		}
		AddRecorded(entries, page.Items)
		if more = page.Continue; more == "" {
			return entries, nil
		}
	}
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

const pageSize = 500 // objects that are read in one request

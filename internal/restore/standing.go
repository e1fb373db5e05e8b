package restore

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// standing is how a pod stands to its declared limits.
type standing int

const (
	notOurs    standing = iota // it has ended, or MBCAS never resized it
	lost                       // MBCAS resized it, and no record of its declared limits is left
	differs                    // a limit that MBCAS set is not the declared one
	external                   // a limit that another client set stays
	pending                    // its spec has the declared limits, and the kubelet does not report them yet
	atDeclared                 // it has them
)

// standingOf is how a pod with that record, if known, stands, and for lost and pending why.
func standingOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, known bool) (s standing, why string) {
	ours := len(kube.WrittenByMBCAS(pod)) > 0
	switch {
	case kube.Ended(pod) || !known && !ours:
		return notOurs, ""
	case !known:
		return lost, "no record of its declared limits; recreate it"
	}
	move, others := ToDeclared(pod, declared)
	switch {
	case len(move.Changes) > 0:
		return differs, ""
	case len(others) > 0:
		return external, ""
	}
	progress, said := podresize.Check(pod, RestoreLimits(pod, declared), pod.Generation)
	if ours && progress != actuator.Done {
		return pending, fmt.Sprintf("%v: %s", progress, said)
	}
	return atDeclared, ""
}

// Deviation is a pod that is not at its declared limits.
type Deviation struct {
	// Pod is namespace/name.
	Pod string
	// Move returns it to them; without changes, its spec has them, and the kubelet does not report them yet.
	Move actuator.Move
}

// String names the pod with each limit, now and declared.
func (d Deviation) String() string {
	var parts []string
	for _, c := range d.Move.Changes {
		parts = append(parts, fmt.Sprintf("container %s %v -> %v", c.Container, c.From, c.To))
	}
	if len(parts) == 0 {
		parts = append(parts, "its resize to the declared limits is not in force yet")
	}
	return fmt.Sprintf("pod %s: %s", d.Pod, strings.Join(parts, ", "))
}

// Unrestored are the pods whose record of declared limits is still needed: a limit that MBCAS set is
// not the declared one, or not in force. A pod without a record is none of them: Cluster.Restore names it, and once
// records are deleted it cannot be told from a restored one. Records and pods are read page by page.
func Unrestored(ctx context.Context, c client.Reader, namespace string) (found []Deviation, err error) {
	known, err := readRecords(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	err = eachPage(ctx, c, func(page *corev1.PodList) error {
		for i := range page.Items {
			pod := &page.Items[i]
			declared, recorded := known.limits[pod.UID]
			switch s, _ := standingOf(pod, declared, recorded); s {
			case differs, pending:
				move, _ := ToDeclared(pod, declared)
				found = append(found, Deviation{pod.Namespace + "/" + pod.Name, move})
			case notOurs, lost, external, atDeclared:
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return found, nil
}

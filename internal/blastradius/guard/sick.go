package guard

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
)

// explained says whether nodes explain harm of a workload: each of them does, and there is one.
func (s *Spread) explained(ctx context.Context, workload string, nodes []string, at time.Time) (bool, error) {
	for _, name := range nodes {
		n, err := s.nodeOf(ctx, name, workload)
		if err != nil || !n.Explains(at, s.Rule.Settle, s.Recent) {
			return false, err
		}
	}
	return len(nodes) > 0, nil
}

// nodeOf is what tells of a node, with its pods of other workloads. One that is gone is not Ready.
func (s *Spread) nodeOf(ctx context.Context, name, workload string) (n blastradius.Node, err error) {
	var node corev1.Node
	if err := s.Client.Get(ctx, types.NamespacedName{Name: name}, &node); apierrors.IsNotFound(err) {
		return n, nil
	} else if err != nil {
		return n, fmt.Errorf("read node %s: %w", name, err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready, n.ReadySince = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	var pods corev1.PodList
	var allocations v1alpha1.PodAllocationList
	on := client.MatchingFields{kube.NodeField: name}
	for _, list := range []client.ObjectList{&pods, &allocations} {
		if err := s.Client.List(ctx, list, on, client.UnsafeDisableDeepCopy); err != nil && !kube.NotServed(err) {
			return n, fmt.Errorf("list %T of node %s: %w", list, name, err)
		}
	}
	lowered := make(map[types.UID]time.Time, len(allocations.Items))
	for i := range allocations.Items {
		pa := &allocations.Items[i]
		lowered[pa.Spec.PodRef.UID] = pa.Status.LastDecreaseTime.Time
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !kube.Ended(pod) && workloadOf(pod) != workload {
			h := healthOf(pod)
			h.Lowered = lowered[pod.UID]
			n.Others = append(n.Others, h)
		}
	}
	return n, nil
}

// troubled are the nodes on which replicas of a workload were in trouble at that time.
func (s *Spread) troubled(ctx context.Context, namespace, workload string, at time.Time) (nodes []string, err error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if workloadOf(pod) == workload && healthOf(pod).Troubled(at, s.Rule.Settle, s.Recent) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// workloadOf names the workload of a pod in the cluster. The Jobs of a CronJob are one: each run of it may do harm.
func workloadOf(pod *corev1.Pod) string { return pod.Namespace + "/" + kube.Origin(pod) }

func healthOf(pod *corev1.Pod) blastradius.Health {
	h := blastradius.Health{Created: pod.CreationTimestamp.Time}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			h.ReadySince = c.LastTransitionTime.Time
		}
	}
	h.Troubles = failuresOf(pod)
	if at := kube.UnreadySince(pod); !at.IsZero() {
		h.Troubles = append(h.Troubles, at)
	}
	return h
}

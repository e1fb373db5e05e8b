package agent

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/round"
)

// snapshot is the Kubernetes state of the node, translated for a round. It is never changed, so
// every goroutine may read it. Refs, Pods and Targets are in the same order.
type snapshot struct {
	// NotReady says why no round can run; empty where one can.
	NotReady string
	Node     round.Node
	NodeUID  types.UID
	Refs     []podRef
	Pods     []round.PodInput
	Targets  []kernel.Target
}

// podRef names a pod and its PodAllocation for logs and the API server.
type podRef struct {
	Namespace, Name string
	UID             types.UID
	Allocation      types.UID // of the PodAllocation, which changes when it is created again; empty: none
}

// newSnapshot translates the node's objects. It has only running pods. A pod that is being deleted
// counts with its usage alone.
func newSnapshot(
	name string, node *corev1.Node, pods []*corev1.Pod, allocations map[string]*v1alpha1.PodAllocation, now time.Time,
) *snapshot {
	if node == nil {
		return &snapshot{NotReady: "node " + name + " is not in the API server: check --node-name"}
	}
	s := &snapshot{Node: allocation.Node(node), NodeUID: node.UID}
	if s.Node.Allocatable <= 0 {
		return &snapshot{NotReady: "node " + name + " reports no allocatable CPU yet"}
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range pods {
		pa := allocations[string(pod.UID)]
		if pod.DeletionTimestamp != nil || pa == nil || pa.Namespace != pod.Namespace {
			pa = nil
		}
		r := podRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		if pa != nil {
			r.Allocation = pa.UID
		}
		p := round.PodInput{Pod: allocation.DemandPod(pod, pa, s.Node.Allocatable), Published: published(pa, now)}
		t := kernel.Target{Pod: kube.CgroupUID(pod)}
		for _, c := range p.Containers {
			t.Containers = append(t.Containers, c.ID)
		}
		s.Refs, s.Pods, s.Targets = append(s.Refs, r), append(s.Pods, p), append(s.Targets, t)
	}
	return s
}

// published is the decision in the PodAllocation. A decision from the future was written before
// this node's clock was set back. It counts as old: otherwise no decrease would be published until
// the clock has caught up.
func published(pa *v1alpha1.PodAllocation, now time.Time) round.Published {
	p := allocation.Published(pa)
	if p.At.After(now.Add(time.Minute)) {
		p.At = time.Unix(0, 0)
	}
	return p
}

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

// view is what Kubernetes says about the node, ready for a round. Once made it is never
// changed, so everybody may read it. Refs, Pods and Targets stand in the same order.
type view struct {
	// Lack says why no round can be played; empty where one can.
	Lack    string
	Node    round.Node
	NodeUID types.UID
	Refs    []ref
	Pods    []round.PodInput
	Targets []kernel.Target
}

// ref is how people and the API server call a pod and its PodAllocation.
type ref struct {
	Namespace, Name string
	UID             types.UID
	Allocation      types.UID // of the PodAllocation, which changes when it is made anew; empty: none
}

// newView puts together what the API server says about a node's objects. Only running pods are in it;
// one that is being deleted takes part with its use alone.
func newView(name string, node *corev1.Node, pods []*corev1.Pod, allocations map[string]*v1alpha1.PodAllocation, now time.Time) *view {
	if node == nil {
		return &view{Lack: "node " + name + " is not in the API server: check --node-name"}
	}
	v := &view{Node: allocation.Node(node), NodeUID: node.UID}
	if v.Node.Allocatable <= 0 {
		return &view{Lack: "node " + name + " reports no allocatable CPU yet"}
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
		r := ref{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		if pa != nil {
			r.Allocation = pa.UID
		}
		p := round.PodInput{Pod: allocation.Bidder(pod, pa, v.Node.Allocatable), Published: published(pa, now)}
		t := kernel.Target{Pod: kube.CgroupPod(pod)}
		for _, c := range p.Containers {
			t.Containers = append(t.Containers, c.ID)
		}
		v.Refs, v.Pods, v.Targets = append(v.Refs, r), append(v.Pods, p), append(v.Targets, t)
	}
	return v
}

// published is what the PodAllocation holds. A decision from the future was written before this node's
// clock was set back; it counts as old, or nothing would be lowered until the clock has caught up.
func published(pa *v1alpha1.PodAllocation, now time.Time) round.Published {
	p := allocation.Published(pa)
	if p.At.After(now.Add(time.Minute)) {
		p.At = time.Unix(0, 0)
	}
	return p
}

package agent

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// snapshot is the Kubernetes state of the node, translated for a round. It is never changed, so
// every goroutine may read it. Refs, Pods and Targets are in the same order.
type snapshot struct {
	// NotReady says why no round can run; empty where one can.
	NotReady string
	// Told: the node has a NodeAllocation.
	Told    bool
	Node    round.Node
	NodeUID types.UID
	Refs    []podRef
	Names   []record.Name // those of Refs, for the recorder
	Harmed  []record.Name // pods that a decrease has harmed, as the controller tells
	Pods    []round.PodInput
	Targets []kernel.Target
	Quotas  []podQuota // of Pods; of those that are not managed none
	// Unread are managed pods of which it is not known yet what is published.
	Unread []types.UID
	// Starting are managed pods that do not run yet. They take no part in a round.
	Starting []podRef
}

// podQuota is the CPU quota that the kubelet computes for the own cgroup of a pod.
type podQuota struct {
	CPU        cpu.Milli // 0: none
	Generation int64     // of the pod, by which it is computed
	Settled    bool      // the kubelet has nothing to do about this generation
	Ours       bool      // MBCAS wrote a limit of the pod, which a repair may change
}

// podRef names a pod and its PodAllocation for logs and the API server.
type podRef struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	Allocation      types.UID // of the PodAllocation, which changes when it is created again; empty: none
}

// newerThan says whether the pod was created after another; the UID decides between pods of the
// same second.
func (r podRef) newerThan(other podRef) bool {
	return cmp.Or(r.Created.Compare(other.Created), cmp.Compare(r.UID, other.UID)) > 0
}

// pod is the running pod of this name on the node.
func (s *snapshot) pod(namespace, name string) (ref podRef, running bool) {
	i := slices.IndexFunc(s.Refs, func(r podRef) bool { return r.Namespace == namespace && r.Name == name })
	if i < 0 {
		return podRef{}, false
	}
	return s.Refs[i], true
}

// newSnapshot translates the node's objects. Only running pods take part in rounds. One that is being deleted,
// or of which it is not known what is published, counts with its usage alone; the latter are returned, too, and
// so are pods that are about to run.
func newSnapshot(
	name string, node *corev1.Node, pods []*corev1.Pod, told *v1alpha1.NodeAllocation,
	published map[types.UID]round.Published,
) (s *snapshot, unread []podRef) {
	if node == nil {
		return &snapshot{NotReady: "node " + name + " is not in the API server: check --node-name"}, nil
	}
	s = &snapshot{Node: allocation.Node(node), NodeUID: node.UID, Told: told != nil}
	if s.Node.Allocatable <= 0 {
		return &snapshot{NotReady: "node " + name + " reports no allocatable CPU yet"}, nil
	}
	of := map[types.UID]*v1alpha1.NodePod{}
	if told != nil {
		for i := range told.Spec.Pods {
			of[told.Spec.Pods[i].UID] = &told.Spec.Pods[i]
		}
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		managed := of[p.UID]
		if managed != nil && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			r := podRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Allocation: managed.AllocationUID}
			if s.Starting = append(s.Starting, r); !isKnown(published, r.Allocation) {
				unread = append(unread, r)
			}
		}
		return p.Status.Phase != corev1.PodRunning
	})
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range pods {
		managed := of[pod.UID]
		if pod.DeletionTimestamp != nil {
			managed = nil
		}
		r := podRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Created: pod.CreationTimestamp.Time}
		var p round.PodInput
		if managed != nil {
			if c := managed.Constraints; c != nil && c.NoDecrease == string(reasons.UnhealthyAfterDecrease) {
				s.Harmed = append(s.Harmed, record.Name{Namespace: pod.Namespace, Name: pod.Name})
			}
			r.Allocation = managed.AllocationUID
			var known bool
			if p.Published, known = published[r.Allocation]; !known {
				unread, s.Unread = append(unread, r), append(s.Unread, r.UID)
				managed, r.Allocation = nil, ""
			}
		}
		p.Pod = allocation.DemandPod(pod, managed, s.Node.Allocatable)
		t := kernel.Target{Pod: kube.CgroupUID(pod)}
		for _, c := range p.Containers {
			t.Containers, t.Limits = append(t.Containers, c.ID), append(t.Limits, c.Limit)
		}
		var q podQuota
		if managed != nil {
			q = podQuota{kube.PodQuota(pod), pod.Generation, kube.Settled(pod), kube.ResizedByMBCAS(pod)}
		}
		s.Refs, s.Pods, s.Targets, s.Quotas = append(s.Refs, r), append(s.Pods, p), append(s.Targets, t), append(s.Quotas, q)
	}
	s.Names = namesOf(s.Refs)
	return s, unread
}

// namesOf are the names for the recorder.
func namesOf(refs []podRef) []record.Name {
	names := make([]record.Name, len(refs))
	for i, r := range refs {
		names[i] = record.Name{Namespace: r.Namespace, Name: r.Name}
	}
	return names
}

func isKnown(published map[types.UID]round.Published, allocation types.UID) bool {
	_, known := published[allocation]
	return known
}

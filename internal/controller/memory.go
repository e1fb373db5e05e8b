package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// memory is what this process knows beyond the objects: above all its own last writes, which caches
// show late. All of it may be lost at any time.
type memory struct {
	mu    sync.Mutex
	nodes map[string]map[types.UID]*record
}

// record is what is remembered of one pod.
type record struct {
	declared []v1alpha1.ContainerLimit
	// unknownAt is when the declared limits were last searched for in vain.
	unknownAt time.Time
	// ledgered is what was written to the ledger at ledgeredAt.
	ledgered   []v1alpha1.ContainerLimit
	ledgeredAt time.Time
	// pod and pa are the objects as our last write or read returned them, trimmed as in the caches;
	// nil once those have caught up.
	pod   *corev1.Pod
	podAt time.Time
	pa    *v1alpha1.PodAllocation
	paAt  time.Time
	// cached is the allocation that the cache last showed: once it has shown ours, a missing one is
	// a deleted one.
	cached types.UID
	// observed is the date of the last seen decision, on the agent's clock, and observedAt when it
	// was first seen, on ours.
	observed, observedAt time.Time
	// decidedAt is when the resize that is on its way was decided.
	decidedAt time.Time
	lifecycle.Memory
	// checked are the LimitRanges under which a dry run was found harmless; nil: none was made.
	checked *string
	// refused are the objects by which the last resize was refused; nil: it was not.
	refused *admission
	events  map[string]time.Time // when an event of that reason was last sent
}

// lag is how long a cache may take to show an object that we created.
const lag = 10 * time.Second

func newMemory() *memory { return &memory{nodes: map[string]map[types.UID]*record{}} }

// of is a copy of what is remembered of a pod.
func (m *memory) of(node string, uid types.UID) record {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.nodes[node][uid]; r != nil {
		return *r
	}
	return record{}
}

// change alters what is remembered of a pod.
func (m *memory) change(node string, uid types.UID, change func(*record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := m.nodes[node]
	if pods == nil {
		pods = map[types.UID]*record{}
		m.nodes[node] = pods
	}
	if pods[uid] == nil {
		pods[uid] = &record{}
	}
	change(pods[uid])
}

// keep forgets the pods of a node that are not among those that exist.
func (m *memory) keep(node string, exists map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.nodes[node] {
		if !exists[uid] {
			delete(m.nodes[node], uid)
		}
	}
	if len(m.nodes[node]) == 0 {
		delete(m.nodes, node)
	}
}

// caughtUp forgets the versions of a pod and its allocation that the caches show by now; pa is nil
// where they show none. An allocation of another UID is one from before: ours is still to come.
func (m *memory) caughtUp(node string, rec record, pod *corev1.Pod, pa *v1alpha1.PodAllocation, now time.Time) {
	seenPod := rec.pod != nil && rec.freshPod(pod, now) == pod
	seenPA := rec.pa != nil && (now.Sub(rec.paAt) > 30*lag || pa != nil && pa.UID == rec.pa.UID && rec.freshPA(pa, now) == pa)
	if !seenPod && !seenPA {
		return
	}
	m.change(node, pod.UID, func(r *record) {
		if seenPod && r.pod == rec.pod {
			r.pod = nil
		}
		if seenPA && r.pa == rec.pa {
			r.pa = nil
		}
	})
}

// newer is the later of the cached and the remembered version of an object.
func newer[T client.Object](cached, remembered T) T {
	if order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), remembered.GetResourceVersion()); err == nil && order < 0 {
		return remembered
	}
	return cached
}

// freshPod is the newest version of a pod that we know of.
func (r record) freshPod(cached *corev1.Pod, now time.Time) *corev1.Pod {
	// A remembered version that stays newer for minutes is from before a restore of the store.
	if r.pod == nil || r.pod.UID != cached.UID || now.Sub(r.podAt) > 30*lag {
		return cached
	}
	return newer(cached, r.pod)
}

// freshPA is the newest version of an allocation that we know of; cached may be nil.
func (r record) freshPA(cached *v1alpha1.PodAllocation, now time.Time) *v1alpha1.PodAllocation {
	switch {
	case r.pa == nil || now.Sub(r.paAt) > 30*lag:
		return cached
	case cached == nil && r.cached != r.pa.UID && now.Sub(r.paAt) < lag:
		return r.pa
	case cached == nil || cached.UID != r.pa.UID:
		return cached
	}
	return newer(cached, r.pa)
}

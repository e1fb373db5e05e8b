package controller

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/markets"
	"github.com/mbcas/mbcas/internal/nodeallocation"
)

// memory is what this process knows of each node's pods beyond the objects: above all its own last
// writes, which caches show late. All of it may be lost at any time. The records of a node belong to
// the worker that reconciles it.
type memory struct {
	mu      sync.Mutex
	nodes   map[string]*nodeMemory
	markets *markets.Markets       // what the agents said last
	told    *nodeallocation.Writer // what agents are told
}

// nodeMemory is what is remembered of one node.
type nodeMemory struct {
	tenure  int // of the replica, see sharding.Replica.Tenure
	records map[types.UID]*record
	// existed are the pods that the node had at the last look, of which those that were excluded have
	// no record.
	existed map[types.UID]bool
	// ledger is that of the node as our last write returned it; nil once the cache has caught up.
	ledger    *corev1.ConfigMap
	ledgerAt  time.Time
	adopted   bool            // the Node was made the owner of an old ledger, or that was tried
	dates     lifecycle.Dates // of the node's conditions
	evicted   time.Time       // when a pod of the cordoned node was last seen to be evicted
	throttled atomic.Bool     // a pod was at the last look, and should have a higher limit
	// strays are the PodAllocations that belong to no pod of the node, by when they were first seen.
	strays map[types.UID]time.Time
}

// record is what is remembered of one pod.
type record struct {
	declared []v1alpha1.ContainerLimit
	// unknownAt is when the declared limits were last searched for in vain.
	unknownAt time.Time
	// pod and pa are the objects as our last write or read returned them, trimmed as in the caches;
	// nil once those have caught up.
	pod   *corev1.Pod
	podAt time.Time
	pa    *v1alpha1.PodAllocation
	paAt  time.Time
	// cached is the allocation that the cache last showed: once it has shown ours, a missing one is
	// a deleted one.
	cached   types.UID
	decision markets.Sight // the last seen
	untold   time.Time     // when its agent was last seen not to be told of the pod
	// decidedAt is when the resize in flight was decided.
	decidedAt time.Time
	lifecycle.Memory
	// status is what came of the last resize, until it is stored; nil: it is.
	status *lifecycle.Status
	wrote  kube.Stamp // the status as this controller wrote it last
	// conflicts is how often in a row the pod had changed since the decision.
	conflicts int
	dates     lifecycle.Dates // see lifecycle.Pod.Dates
	// checked is under which admission a dry run was found harmless; "": none was made.
	checked string
	// refused are the objects by which the last resize was refused; nil: it was not.
	refused *dispatch.Admission
	events  events.Told
}

// lapse keeps what holds even if another replica has resized the pod meanwhile, and recorded that: what
// this one saw and when, what it tells, and waits that are its own. Versions of objects say which is newer.
func (r *record) lapse() {
	*r = record{
		pod: r.pod, podAt: r.podAt, pa: r.pa, paAt: r.paAt, cached: r.cached,
		decision: r.decision, untold: r.untold, dates: r.dates, checked: r.checked, events: r.events,
		Memory: lifecycle.Memory{RetryAt: r.RetryAt, Troubles: r.Troubles, WaitsSince: r.WaitsSince},
	}
}

// versionKept is how long a version is remembered that the cache does not show. One that is still later
// than the cached one then is from before a restore of the store.
const versionKept = 30 * kube.CacheLag

// of is what is remembered of a node, without pods that do not exist any more. Of one without pods and
// PodAllocations nothing is.
func (m *memory) of(node string, tenure int, exists map[types.UID]bool, allocations int) *nodeMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil {
		n = &nodeMemory{records: map[types.UID]*record{}}
	}
	if n.tenure != tenure {
		for _, rec := range n.records {
			rec.lapse()
		}
		n.tenure = tenure
	}
	maps.DeleteFunc(n.records, func(uid types.UID, _ *record) bool { return !exists[uid] })
	if m.nodes[node] = n; len(exists)+allocations == 0 {
		delete(m.nodes, node)
	}
	return n
}

// forget forgets a node that another replica deals with.
func (m *memory) forget(node string) {
	m.told.Drop(node)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}

// throttled says whether a pod of a node was throttled at the last look, and should have a higher limit.
func (m *memory) throttled(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	return n != nil && n.throttled.Load()
}

// newest is the newest known version of the ledger, of which the cache may show none.
func (n *nodeMemory) newest(cached *corev1.ConfigMap, now time.Time) *corev1.ConfigMap {
	switch {
	case n.ledger == nil:
	case cached == nil && now.Sub(n.ledgerAt) < kube.CacheLag,
		cached != nil && kube.Newer(n.ledger, cached) && now.Sub(n.ledgerAt) < versionKept:
		return n.ledger
	}
	n.ledger = nil
	return cached
}

// newest are the newest known versions of a pod and its allocation, of which the cache may show none.
// Versions that the caches show by now are forgotten.
func (r *record) newest(
	pod *corev1.Pod, pa *v1alpha1.PodAllocation, now time.Time,
) (*corev1.Pod, *v1alpha1.PodAllocation) {
	if r.pod != nil && (now.Sub(r.podAt) > versionKept || !kube.Newer(r.pod, pod)) {
		r.pod = nil
	}
	if r.pod != nil {
		pod = r.pod
	}
	shown := pa != nil && r.pa != nil && pa.UID == r.pa.UID // another one is from before: ours is still to come
	if r.pa != nil && (now.Sub(r.paAt) > versionKept || shown && !kube.Newer(r.pa, pa)) {
		r.pa = nil
	}
	yetToCome := pa == nil && r.pa != nil && r.cached != r.pa.UID && now.Sub(r.paAt) < kube.CacheLag
	if pa != nil {
		r.cached = pa.UID
	}
	if r.pa != nil && (shown || yetToCome) {
		pa = r.pa
	}
	return pod, pa
}

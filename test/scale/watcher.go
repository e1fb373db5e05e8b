package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// watcher knows from the pods how often limits change, and how long pods wait that want more.
type watcher struct {
	mu       sync.Mutex
	declared map[types.UID]cpu.Milli
	probes   map[types.UID]*probe
	seen     seen
}

// probe is a pod that wants more than its limit.
type probe struct {
	pod     *corev1.Pod
	limit   cpu.Milli
	before  bool // the phase, the pod wanted more already
	started time.Time
	raised  time.Time // when the API server had a higher limit; zero: not yet
}

// seen is what happened in a phase.
type seen struct {
	increases, decreases int
	// probes are the pods that came to want more in the phase, before those that did already.
	probes, before waits
}

// waits are those of pods that want more, until the API server has it.
type waits struct {
	times []time.Duration
	open  int // those that have not got it; their times are in times, too
}

func (w *waits) add(d time.Duration) { w.times = append(w.times, d) }

// probeFor is how long a pod wants more.
const probeFor = 20 * time.Second

func newWatcher() *watcher {
	return &watcher{declared: map[types.UID]cpu.Milli{}, probes: map[types.UID]*probe{}}
}

// begin starts a phase.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.probes = seen{}, map[types.UID]*probe{}
}

// end is what happened since begin.
func (w *watcher) end() seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, now := &w.seen, time.Now()
	for _, p := range w.probes {
		if p.raised.IsZero() && now.Sub(p.started) > 2*time.Second { // a younger one says nothing yet
			s.of(p).add(now.Sub(p.started))
			s.of(p).open++
		}
	}
	slices.Sort(s.probes.times)
	slices.Sort(s.before.times)
	return *s
}

// see takes in a change of a pod.
func (w *watcher) see(before, after *corev1.Pod, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after == nil || after.DeletionTimestamp != nil {
		delete(w.probes, podOf(before, after).UID)
		delete(w.declared, podOf(before, after).UID)
		return
	}
	to := kube.Total(kube.Limits(after))
	if before == nil {
		w.declared[after.UID] = to
		return
	}
	switch from := kube.Total(kube.Limits(before)); {
	case to > from:
		w.seen.increases++
	case to < from:
		w.seen.decreases++
	}
	if p := w.probes[after.UID]; p != nil && p.raised.IsZero() && to > p.limit {
		p.raised = now
		w.seen.of(p).add(now.Sub(p.started))
	}
}

func podOf(before, after *corev1.Pod) *corev1.Pod {
	if after == nil {
		return before
	}
	return after
}

// of is where the wait of a probe belongs.
func (s *seen) of(p *probe) *waits {
	if p.before {
		return &s.before
	}
	return &s.probes
}

// start notes that a pod wants more than its limit, or did before the phase; false if that was noted.
func (w *watcher) start(pod *corev1.Pod, limit cpu.Milli, now time.Time, before bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.probes[pod.UID] != nil {
		return false
	}
	w.probes[pod.UID] = &probe{pod: pod, limit: limit, started: now, before: before}
	return true
}

// restart sets the start of all probes.
func (w *watcher) restart(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range maps.Values(w.probes) {
		p.started = at
	}
}

// waiting are the pods that have waited for longer than a time.
func (w *watcher) waiting(now time.Time, longer time.Duration) (pods []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.probes {
		if p.raised.IsZero() && now.Sub(p.started) > longer {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

// over are the pods that have wanted more for long enough. They are no candidates again.
func (w *watcher) over(now time.Time) (pods []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.probes {
		if !p.raised.IsZero() && now.Sub(p.started) > probeFor && p.pod != nil && !p.before {
			pods, p.pod = append(pods, p.pod), nil
		}
	}
	return pods
}

// changedLimit says whether a pod is not at the limit that it was first seen with.
func (w *watcher) changedLimit(pod *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	declared, ok := w.declared[pod.UID]
	return ok && declared != kube.Total(kube.Limits(pod))
}

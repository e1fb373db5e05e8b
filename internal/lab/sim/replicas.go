package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// replicas are the pods of a workload. Together they get the load of the declared ones, for as long
// as those would run.
type replicas struct {
	declared  []int      // IDs of the set-up's pods between Start and End, scaled in or not
	receiving []int      // IDs of pods that get requests, oldest first
	pending   []*PodSpec // created by scale and not started, earliest start first
	created   int
	share     float64 // of its declared stream that each replica gets
}

// workloadKey is the key of a pod's replicas.
func workloadKey(s *PodSpec) string { return s.Namespace + "/" + s.Workload }

// sharedProfile is the load of one replica: its share of the stream.
type sharedProfile struct {
	load.Profile
	replicas *replicas
}

// At implements load.Profile.
func (s sharedProfile) At(t time.Duration) (float64, time.Duration) {
	v, until := s.Profile.At(t)
	if v == 0 {
		return 0, until
	}
	return v * s.replicas.share, min(until, t+time.Second) // the share may change
}

// drainTime is how long a terminating replica finishes its requests.
const drainTime = 30 * time.Second

// splitLoad divides the load among the replicas.
func (w *replicas) splitLoad() {
	w.share = float64(len(w.declared)) / float64(max(1, len(w.receiving)))
}

// addPod registers a pod that starts.
func (w *replicas) addPod(id int, s *PodSpec) {
	if i := slices.Index(w.pending, s); i >= 0 {
		w.pending = slices.Delete(w.pending, i, i+1)
	} else {
		w.declared = append(w.declared, id)
	}
	w.receiving = append(w.receiving, id)
	w.splitLoad()
}

// scale sets the number of a workload's replicas, at least one.
func (r *Simulation) scale(like PodSpec, want int) {
	w := r.replicas[workloadKey(&like)]
	if w == nil {
		return // it has no workload
	}
	want = max(1, want)
	for len(w.receiving)+len(w.pending) < want {
		w.created++
		spec := like
		spec.Name = fmt.Sprintf("%s-%d", like.Workload, w.created)
		spec.Start, spec.End = r.node.now+StartDelay, 0
		w.pending = append(w.pending, &spec)
		r.schedule(event{at: spec.Start, starts: &spec})
	}
	for len(w.receiving)+len(w.pending) > want && len(w.pending) > 0 {
		r.cancelReplica(w)
	}
	for len(w.receiving) > want {
		id := w.receiving[len(w.receiving)-1]
		w.receiving = w.receiving[:len(w.receiving)-1]
		r.node.pods[id].terminating = true
		r.node.events.plan(r.node.pods[id].arrivalSlot, never)
		r.schedule(event{at: r.node.now + drainTime, podID: id, terminated: true})
	}
	w.splitLoad()
}

// cancelReplica cancels the latest replica that has not started.
func (r *Simulation) cancelReplica(w *replicas) {
	last := len(w.pending) - 1
	r.events = slices.DeleteFunc(r.events, func(e event) bool { return e.starts == w.pending[last] })
	w.pending = w.pending[:last]
}

// endPod ends a declared pod. With the last one of a workload, its other replicas end, too.
func (r *Simulation) endPod(id int) {
	r.node.Remove(id)
	w := r.replicas[workloadKey(&r.node.pods[id].spec)]
	if w == nil {
		return
	}
	is := func(other int) bool { return other == id }
	w.declared, w.receiving = slices.DeleteFunc(w.declared, is), slices.DeleteFunc(w.receiving, is)
	if len(w.declared) == 0 {
		for len(w.pending) > 0 {
			r.cancelReplica(w)
		}
		for _, left := range w.receiving {
			r.node.Remove(left)
		}
		w.receiving = nil
	}
	w.splitLoad()
}

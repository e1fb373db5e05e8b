package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// replicas are the pods of a workload. Together they get the load of those that were declared, while these would run.
type replicas struct {
	declared []int   // IDs of those of the setup whose time it is, whether they have been scaled in or not
	ids      []int   // of those that get requests, the oldest first
	coming   []*Spec // made by scale, on their way, the first one to come first
	named    int
	share    float64 // of its stream that each one gets
}

// workload is the key of a pod's replicas.
func workload(s *Spec) string { return s.Namespace + "/" + s.Workload }

// shared is a stream of which each replica gets its part.
type shared struct {
	load.Profile
	of *replicas
}

// At implements load.Profile.
func (s shared) At(t time.Duration) (float64, time.Duration) {
	v, until := s.Profile.At(t)
	if v == 0 {
		return 0, until
	}
	return v * s.of.share, min(until, t+time.Second) // the share may change
}

// drain is how long a replica that is to go finishes what it has.
const drain = 30 * time.Second

// spread divides the load anew.
func (w *replicas) spread() { w.share = float64(len(w.declared)) / float64(max(1, len(w.ids))) }

// come takes in a pod that begins.
func (w *replicas) come(id int, s *Spec) {
	if i := slices.Index(w.coming, s); i >= 0 {
		w.coming = slices.Delete(w.coming, i, i+1)
	} else {
		w.declared = append(w.declared, id)
	}
	w.ids = append(w.ids, id)
	w.spread()
}

// scale brings a workload to so many replicas, one at least.
func (r *runner) scale(like Spec, want int) {
	w := r.replicas[workload(&like)]
	if w == nil {
		return // it is a replica of nothing
	}
	want = max(1, want)
	for len(w.ids)+len(w.coming) < want {
		w.named++
		spec := like
		spec.Name = fmt.Sprintf("%s-%d", like.Workload, w.named)
		spec.Start, spec.End = r.node.now+StartDelay, 0
		w.coming = append(w.coming, &spec)
		r.schedule(event{at: spec.Start, pod: &spec})
	}
	for len(w.ids)+len(w.coming) > want && len(w.coming) > 0 {
		r.cancel(w)
	}
	for len(w.ids) > want {
		id := w.ids[len(w.ids)-1]
		w.ids = w.ids[:len(w.ids)-1]
		r.node.pods[id].leaving = true
		r.node.events.plan(r.node.pods[id].arrival, never)
		r.schedule(event{at: r.node.now + drain, end: id, drop: true})
	}
	w.spread()
}

// cancel takes back the replica that was asked for last and has not come.
func (r *runner) cancel(w *replicas) {
	last := len(w.coming) - 1
	r.events = slices.DeleteFunc(r.events, func(e event) bool { return e.pod == w.coming[last] })
	w.coming = w.coming[:last]
}

// end is when a declared pod's time is over. With the last one of a workload its replicas go, too.
func (r *runner) end(id int) {
	r.node.Remove(id)
	w := r.replicas[workload(&r.node.pods[id].spec)]
	if w == nil {
		return
	}
	is := func(other int) bool { return other == id }
	w.declared, w.ids = slices.DeleteFunc(w.declared, is), slices.DeleteFunc(w.ids, is)
	if len(w.declared) == 0 {
		for len(w.coming) > 0 {
			r.cancel(w)
		}
		for _, left := range w.ids {
			r.node.Remove(left)
		}
		w.ids = nil
	}
	w.spread()
}

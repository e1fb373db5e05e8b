package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Told is what was told of a pod in Events. The zero value is nothing.
type Told struct {
	sent   map[string]time.Time // by reason
	unsent *Event               // the last one that was dropped; nil: it was sent since
}

// quiet is how long an Event of the same reason is not repeated for a pod.
const quiet = 10 * time.Minute

// Unsent is the Event that was dropped while the pod was in the same state as now; nil: there is none.
func (t *Told) Unsent(state string) *Event {
	if t.unsent != nil && t.unsent.State != state {
		t.unsent = nil
	}
	return t.unsent
}

// Due says whether no Event of that reason was sent just now.
func (t *Told) Due(reason string, now time.Time) bool {
	last, sent := t.sent[reason]
	return !sent || now.Sub(last) >= quiet
}

// About is the pod that an Event is about, and an object that belongs to it.
type About struct {
	Pod     *corev1.Pod
	Related runtime.Object
}

// Send sends an Event. One that is dropped does not count as sent: it is Unsent.
func (t *Told) Send(to events.EventRecorder, about About, e Event, now time.Time) {
	e.Again = t.unsent != nil && t.unsent.Reason == e.Reason
	if !send(to, about.Pod, about.Related, e) {
		t.unsent = &e
		return
	}
	if t.sent == nil {
		t.sent = map[string]time.Time{}
	}
	t.sent[e.Reason], t.unsent = now, nil
}

package events

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Told is what was told of a pod in Events. The zero value is nothing.
type Told struct {
	sent   map[string]time.Time // by reason
	unsent []Event              // that were dropped, and not sent since; the last one of each reason
}

// quiet is how long an Event of the same reason is not repeated for a pod.
const quiet = 10 * time.Minute

// SendAgain is after which time, about, an Event that was dropped is sent again. Sooner has nodes looked at more
// often in trouble that many pods share; later tells of it later.
const SendAgain = time.Minute

// Unsent are the Events that were dropped while the pod was in the same state as now. Those about another
// state are forgotten.
func (t *Told) Unsent(state string) []Event {
	t.unsent = slices.DeleteFunc(t.unsent, func(e Event) bool { return e.State != state })
	return slices.Clone(t.unsent)
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

// Send sends an Event, and says whether it was sent. One that is dropped does not count as sent: it is Unsent.
func (t *Told) Send(to events.EventRecorder, about About, e Event, now time.Time) bool {
	i := slices.IndexFunc(t.unsent, func(u Event) bool { return u.Reason == e.Reason })
	e.Again = i >= 0
	switch sent := send(to, about.Pod, about.Related, e); {
	case !sent && e.Again:
		t.unsent[i] = e
		return false
	case !sent:
		t.unsent = append(t.unsent, e)
		return false
	case e.Again:
		t.unsent = slices.Delete(t.unsent, i, i+1)
	}
	if t.sent == nil {
		t.sent = map[string]time.Time{}
	}
	t.sent[e.Reason] = now
	return true
}

package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// TestFloodIsBounded: trouble of thousands of pods writes a burst of Events and then a steady rate; each
// one that is dropped is counted. Events of the other type are written.
func TestFloodIsBounded(t *testing.T) {
	const pods, seconds = 3000, 10
	to, dropped := events.NewFakeRecorder(pods*seconds), 0
	b := Bound(to, func() { dropped++ })
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	for range seconds {
		for i := range pods {
			b.Eventf(&corev1.Pod{}, nil, corev1.EventTypeWarning, "Refused", "Resize", "pod %d", i)
		}
		now = now.Add(time.Second)
	}
	written := len(to.Events)
	if most := Burst + PerSecond*(seconds-1); written < most-Burst/2 || written > most {
		t.Errorf("%d Events are written in %d s, want %d to %d", written, seconds, most-Burst/2, most)
	}
	if written+dropped != pods*seconds {
		t.Errorf("%d written and %d dropped of %d", written, dropped, pods*seconds)
	}
	for range Burst / 2 { // of a type that has a budget of its own
		b.Eventf(&corev1.Pod{}, nil, corev1.EventTypeNormal, "CPUResized", "Resize", "")
	}
	if got := len(to.Events) - written; got != Burst/2 {
		t.Errorf("%d of %d Events of the other type are written", got, Burst/2)
	}
	if first := <-to.Events; first != fmt.Sprintf("%s Refused pod 0", corev1.EventTypeWarning) {
		t.Errorf("the first Event is %q", first)
	}
}

// TestFloodOfOneNamespace: while a thousand pods of a namespace have a Warning each second, those of others are
// written: one each second of a namespace, and ten at once of another. Many namespaces are not
// remembered for ever.
func TestFloodOfOneNamespace(t *testing.T) {
	to, dropped := events.NewFakeRecorder(100000), 0
	b := Bound(to, func() { dropped++ })
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	warn := func(namespace string, again bool) bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		return send(b, pod, nil, Event{Type: corev1.EventTypeWarning, Reason: "Refused", Action: "Resize", Again: again})
	}
	flood, others := 0, 0
	for second := range 60 {
		for range 1000 {
			if warn("flood", false) {
				flood++
			}
		}
		if warn("quiet", false) {
			others++
		}
		if second == 30 {
			for range 10 {
				if warn("sudden", false) {
					others++
				}
			}
		}
		now = now.Add(time.Second)
	}
	if others != 70 || flood < 60*(PerSecond-2) || dropped != 60*1000-flood {
		t.Errorf("%d of 70 Events of others are written, and %d of the flood; %d count as dropped", others, flood, dropped)
	}
	if before := dropped; warn("flood", false) {
		for warn("flood", true) {
		}
		if dropped != before {
			t.Errorf("%d Events more count as dropped, though they did before", dropped-before)
		}
	}
	for i := range 5 * namespacesMost {
		b.Eventf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint(i)}}, nil, corev1.EventTypeWarning, "Refused", "Resize", "")
	}
	if n := len(b.warnings.of); n > namespacesMost {
		t.Errorf("%d namespaces are remembered", n)
	}
}

// TestSendWithoutBounds: a recorder without bounds gets every Event, with a note that the API server takes.
func TestSendWithoutBounds(t *testing.T) {
	to := events.NewFakeRecorder(10)
	e := Event{Type: corev1.EventTypeNormal, Reason: "CPUResized", Action: "Resize", Note: strings.Repeat("x", 999) + "ö%d"}
	if !send(to, &corev1.Pod{}, nil, e) {
		t.Error("the Event is dropped")
	}
	if got := <-to.Events; got != "Normal CPUResized "+strings.Repeat("x", 999) {
		t.Errorf("the Event is %q", got)
	}
}

// sender drops Events about some states of a pod.
type sender struct {
	events.EventRecorder
	drops string
	sent  []string
}

func (s *sender) Send(_ *corev1.Pod, _ runtime.Object, e Event) bool {
	if e.State == s.drops {
		return false
	}
	s.sent = append(s.sent, e.Reason+" "+e.Note)
	return true
}

// TestTold: an Event is not repeated within ten minutes; one that was dropped is unsent, and due, until the
// pod is in another state.
func TestTold(t *testing.T) {
	var told Told
	to, now := &sender{drops: "Full"}, time.Unix(1000, 0)
	send := func(reason, state, note string) {
		if told.Due(reason, now) {
			told.Send(to, About{Pod: &corev1.Pod{}}, Event{Reason: reason, State: state, Note: note}, now)
		}
	}
	send("Settled", "Settled", "first")
	send("Settled", "Settled", "again")
	send("Refused", "Full", "dropped")
	if e := told.Unsent("Full"); len(e) != 1 || e[0].Note != "dropped" || e[0].Again || !told.Due("Refused", now) {
		t.Errorf("unsent %+v, want the one that was dropped", e)
	}
	send("Refused", "Full", "dropped again")
	if e := told.Unsent("Full"); len(e) != 1 || e[0].Note != "dropped again" || !e[0].Again {
		t.Errorf("unsent %+v, want the last one, as one that was dropped before", e)
	}
	to.drops = ""
	send("Refused", "Full", "sent")
	if e := told.Unsent("Full"); len(e) > 0 {
		t.Errorf("%+v is unsent after it was sent", e)
	}
	to.drops = "Full"
	send("Other", "Full", "dropped")
	if len(told.Unsent("Settled"))+len(told.Unsent("Full")) > 0 {
		t.Error("an Event about another state is unsent")
	}
	now = now.Add(quiet)
	send("Settled", "Settled", "ten minutes later")
	if want := []string{"Settled first", "Refused sent", "Settled ten minutes later"}; !slices.Equal(to.sent, want) {
		t.Errorf("sent %v, want %v", to.sent, want)
	}
}

// TestUnsentOnesStay: of several Events about one state, each that was dropped stays unsent until it is sent
// itself, whatever others become of.
func TestUnsentOnesStay(t *testing.T) {
	var told Told
	to, now := &sender{drops: "Full"}, time.Unix(1000, 0)
	send := func(reason string) {
		told.Send(to, About{Pod: &corev1.Pod{}}, Event{Reason: reason, State: "Full"}, now)
	}
	unsent := func() (list []string) {
		for _, e := range told.Unsent("Full") {
			list = append(list, e.Reason)
		}
		return list
	}
	send("Refused")
	send("Skipped")
	if got, want := unsent(), []string{"Refused", "Skipped"}; !slices.Equal(got, want) {
		t.Errorf("unsent %v, want %v", got, want)
	}
	to.drops = ""
	send("Skipped")
	send("Resized")
	if got, want := unsent(), []string{"Refused"}; !slices.Equal(got, want) {
		t.Errorf("unsent %v after others were sent, want %v", got, want)
	}
}

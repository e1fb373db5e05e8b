package events

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	if want := Burst + PerSecond*(seconds-1); written != want {
		t.Errorf("%d Events are written in %d s, want %d", written, seconds, want)
	}
	if written+dropped != pods*seconds {
		t.Errorf("%d written and %d dropped of %d", written, dropped, pods*seconds)
	}
	for range Burst { // of a type that has a budget of its own
		b.Eventf(&corev1.Pod{}, nil, corev1.EventTypeNormal, "CPUResized", "Resize", "")
	}
	if got := len(to.Events) - written; got != Burst {
		t.Errorf("%d of %d Events of the other type are written", got, Burst)
	}
	if first := <-to.Events; first != fmt.Sprintf("%s Refused pod 0", corev1.EventTypeWarning) {
		t.Errorf("the first Event is %q", first)
	}
}

package flowcontrol

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// ask is when a pod asks for a token; asks has the soonest first.
type ask struct {
	pod types.UID
	at  time.Time
}
type asks []ask

func (a asks) Len() int           { return len(a) }
func (a asks) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a asks) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *asks) Push(x any)        { *a = append(*a, x.(ask)) }
func (a *asks) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// TestRateLimiter: however many pods wait they are looked at about as often as there are resizes, all
// get their turn, in the time that the rate takes, and the rate holds.
func TestRateLimiter(t *testing.T) {
	const rate, burst, pods = 10, 20, 5000
	l := NewRateLimiter(rate, burst)
	var waiting asks
	for i := range pods {
		heap.Push(&waiting, ask{types.UID(fmt.Sprint(i)), noon})
	}
	looks, resized, end := 0, 0, noon
	for len(waiting) > 0 {
		next := heap.Pop(&waiting).(ask)
		if next.at.After(noon) {
			looks++
		}
		if _, waits := l.Waiting(next.pod, next.at); waits {
			t.Fatalf("pod %s waits beyond its turn", next.pod)
		}
		p, ok := l.Take(next.pod, next.at)
		if !ok {
			if _, waits := l.Waiting(next.pod, p.At.Add(-time.Nanosecond)); !waits {
				t.Fatalf("pod %s may ask before its turn", next.pod)
			}
			heap.Push(&waiting, ask{next.pod, p.At})
			continue
		}
		resized, end = resized+1, next.at
		if most := burst + rate*next.at.Sub(noon).Seconds(); float64(resized) > most+1e-6 {
			t.Fatalf("%d resizes in %v", resized, next.at.Sub(noon))
		}
	}
	if looks > pods*11/10 || resized != pods || end.Sub(noon) > pods/rate*time.Second*11/10 {
		t.Errorf("%d resizes of %d pods in %v, with %d looks", resized, pods, end.Sub(noon), looks)
	}
	if len(l.waits) > 0 {
		t.Errorf("%d turns are kept", len(l.waits))
	}
}

// TestTokens: a pod that does not ask again is forgotten, and a resize that changes nothing takes
// nothing from the others.
func TestTokens(t *testing.T) {
	l := NewRateLimiter(1, 1)
	l.Take("a", noon)
	l.Take("gone", noon)
	l.Take("b", noon.Add(turnKept))
	if l.Take("c", noon.Add(3*turnKept)); len(l.waits) != 0 {
		t.Errorf("still kept: %v", l.waits)
	}
	l = NewRateLimiter(0.1, 1)
	for range 5 {
		if _, ok := l.Take("a", noon); !ok {
			t.Fatal("no token")
		}
		l.GiveBack()
	}
	_, first := l.Take("a", noon)
	if _, second := l.Take("b", noon); !first || second {
		t.Errorf("two tokens: %v and %v, want one", first, second)
	}
}

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// TestBreaker: a namespace whose webhooks do not answer gets one probe at a time, ever more seldom,
// and is open to all again with the first answer.
func TestBreaker(t *testing.T) {
	b, now := NewBreakers(exactly), noon
	admits := func(namespace string) bool {
		_, ok := b.Admit(namespace, now, true)
		return ok
	}
	for i := range breakAfter + 5 { // all are in flight when the third fails
		if !admits("sick") && i < breakAfter {
			t.Fatalf("closed after %d failures", i)
		}
		b.Failed("sick", now)
	}
	wait := probeAfter
	for range 8 {
		if until, admitted := b.Admit("sick", now, false); admitted || until.Sub(now) != wait {
			t.Fatalf("open until %v, want for %v", until, wait)
		}
		if !admits("healthy") {
			t.Fatal("another namespace has to wait")
		}
		now = now.Add(wait)
		if !admits("sick") || admits("sick") {
			t.Fatalf("no probe, or two at the same time, after %v", wait)
		}
		b.Failed("sick", now)
		wait = min(2*wait, probeAfterMost)
	}
	now = now.Add(wait)
	admits("sick")
	now = now.Add(probeLost)
	if !admits("sick") {
		t.Error("no probe after one that was lost")
	}
	b.Answered("sick")
	for range 2 {
		if !admits("sick") {
			t.Error("closed though the last probe was answered")
		}
	}
}

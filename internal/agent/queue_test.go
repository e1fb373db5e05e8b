package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// decided is a round at a time with one decision for each of some pods: limits by pod.
func decided(at time.Time, limits ...cpu.Milli) *played {
	r := &played{At: at, View: &view{}}
	for i, l := range limits {
		uid := fmt.Sprint("pod", i)
		r.View.Refs = append(r.View.Refs, ref{Namespace: "shop", Name: uid, UID: types.UID(uid), Allocation: types.UID("pa-" + uid)})
		r.View.Pods = append(r.View.Pods, round.PodInput{
			Pod:       demand.Pod{UID: uid},
			Published: round.Published{At: t0.Add(-time.Minute), Limits: map[string]cpu.Milli{"app": 500}},
		})
		if l == 0 { // a pod without a decision
			continue
		}
		r.Out.Decisions = append(r.Out.Decisions, round.Decision{
			UID: uid, Limit: l, Containers: []round.ContainerLimit{{Name: "app", Limit: l}}, Publish: true,
		})
	}
	return r
}

// take empties the queue as a writer would, and says what it wrote.
func take(t *testing.T, q *queue, now time.Time) []string {
	t.Helper()
	var got []string
	for {
		o, _, ok := q.next(now)
		if !ok {
			return got
		}
		got = append(got, fmt.Sprint(o.Ref.Name, "=", o.Decision.Limit))
		q.done(o, written, now)
	}
}

func want(t *testing.T, reason string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: wrote %v, want %v", reason, got, want)
	}
}

func TestLatestWins(t *testing.T) {
	q := newQueue(3 * time.Second)
	q.replace(offersOf(decided(t0, 400, 0, 600, 450, 700)), t0)
	want(t, "raises first, otherwise in order; a pod without a decision is passed over", take(t, q, t0),
		"pod2=600m", "pod4=700m", "pod0=400m", "pod3=450m")

	q.replace(offersOf(decided(t0, 400, 600)), t0)
	q.replace(offersOf(decided(t0.Add(time.Second), 350, 0)), t0.Add(time.Second))
	want(t, "what the newest round does not ask for is not written", take(t, q, t0.Add(time.Second)), "pod0=350m")

	silent := decided(t0, 900)
	silent.Out.Decisions[0].Publish = false
	q.replace(offersOf(silent), t0)
	want(t, "a decision that is not to be published", take(t, q, t0))
}

func TestOneWriteForAPodAtATime(t *testing.T) {
	q := newQueue(3 * time.Second)
	for _, c := range []struct {
		reason string
		next   cpu.Milli
		out    outcome
		want   []string
	}{
		{"the same again, and the write succeeded", 600, written, nil},
		{"something else was decided meanwhile", 800, written, []string{"pod0=800m"}},
		{"the write came to nothing, so after a pause the newest decision is written", 600, conflict, []string{"pod0=600m"}},
	} {
		q.replace(offersOf(decided(t0, 600)), t0)
		o, _, ok := q.next(t0)
		if !ok {
			t.Fatalf("%s: nothing to write", c.reason)
		}
		q.replace(offersOf(decided(t0.Add(time.Second), c.next)), t0.Add(time.Second))
		want(t, "while the first write is under way", take(t, q, t0.Add(time.Second)))
		q.done(o, c.out, t0.Add(time.Second))
		want(t, c.reason, take(t, q, t0.Add(2*time.Second)), c.want...)
	}
}

func TestStaleIsDropped(t *testing.T) {
	q := newQueue(3 * time.Second)
	q.replace(offersOf(decided(t0, 600, 400)), t0)
	want(t, "just young enough", take(t, q, t0.Add(3*time.Second)), "pod0=600m", "pod1=400m")
	q.replace(offersOf(decided(t0, 600, 400)), t0)
	_, stale, ok := q.next(t0.Add(3*time.Second + 1))
	if ok || stale != 2 {
		t.Errorf("after more than three samples: write %v, %d dropped; want none, 2", ok, stale)
	}
	if _, stale, ok = q.next(t0); ok || stale != 0 {
		t.Error("dropped decisions came back")
	}
}

// TestRests: after a failure a pod, or all of them, are left alone for a while that doubles, whatever rounds offer.
func TestRests(t *testing.T) {
	const seconds = 1000
	// tries counts the writes of two pods that end with these outcomes.
	tries := func(first, second outcome) (n [2]int) {
		q := newQueue(3 * time.Second)
		for s := range seconds {
			now := t0.Add(time.Duration(s) * time.Second)
			q.replace(offersOf(decided(now, 600, 400)), now)
			for {
				o, _, ok := q.next(now)
				if !ok {
					break
				}
				if o.Ref.Name == "pod0" {
					n[0]++
					q.done(o, first, now)
				} else {
					n[1]++
					q.done(o, second, now)
				}
			}
		}
		return n
	}
	for _, c := range []struct {
		first, second outcome
		reason        string
		least, most   [2]int
	}{
		{conflict, written, "1 s, doubling up to 5 minutes", [2]int{10, 1000}, [2]int{14, 1000}},
		{gone, written, "10 s, doubling up to 5 minutes, less up to a quarter", [2]int{8, 1000}, [2]int{11, 1000}},
		{refused, written, "30 s, doubling", [2]int{6, 1000}, [2]int{8, 1000}},
		{forbidden, written, "30 s, doubling", [2]int{6, 1000}, [2]int{8, 1000}},
		{unavailable, unavailable, "1 s, doubling up to 15 s, whichever pod is tried", [2]int{10, 10}, [2]int{85, 85}},
		{unavailable, written, "one pod alone: 1 s, doubling up to 15 s; the other is held up for a tick or two each time", [2]int{60, 500}, [2]int{92, 1000}},
	} {
		n := tries(c.first, c.second)
		for i := range n {
			if n[i] < c.least[i] || n[i] > c.most[i] {
				t.Errorf("%v and %v: pod %d was tried %d times in %d s, want %d to %d: %s", c.first, c.second, i, n[i], seconds, c.least[i], c.most[i], c.reason)
			}
		}
	}
}

// TestRestEndsWithSuccess: a pause does not outlive the trouble.
func TestRestEndsWithSuccess(t *testing.T) {
	q := newQueue(time.Hour)
	fail := func(out outcome, now time.Time) {
		t.Helper()
		q.replace(offersOf(decided(now, 600)), now)
		o, _, ok := q.next(now)
		if !ok {
			t.Fatalf("nothing to write at %v", now.Sub(t0))
		}
		q.done(o, out, now)
	}
	now := t0
	for range 10 {
		fail(unavailable, now)
		now = now.Add(longestOutage)
	}
	fail(written, now)
	fail(unavailable, now)
	now = now.Add(time.Second)
	fail(written, now) // the pause began at a second again
}

// TestRestsAreForgotten: pods that have gone leave nothing behind.
func TestRestsAreForgotten(t *testing.T) {
	q := newQueue(3 * time.Second)
	q.replace(offersOf(decided(t0, 600)), t0)
	o, _, _ := q.next(t0)
	q.done(o, gone, t0)
	q.replace(nil, t0.Add(time.Hour))
	if len(q.rests) != 0 || len(q.inFlight) != 0 {
		t.Errorf("left: %v %v", q.rests, q.inFlight)
	}
}

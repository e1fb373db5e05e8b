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

// decided is a round with a decision for each limit; 0 is a pod without a decision.
func decided(at time.Time, limits ...cpu.Milli) *roundResult {
	r := &roundResult{At: at, Snapshot: &snapshot{}}
	for i, l := range limits {
		uid := fmt.Sprint("pod", i)
		r.Snapshot.Refs = append(r.Snapshot.Refs,
			podRef{Namespace: "shop", Name: uid, UID: types.UID(uid), Allocation: types.UID("pa-" + uid)})
		r.Snapshot.Pods = append(r.Snapshot.Pods, round.PodInput{
			Pod:       demand.Pod{UID: uid},
			Published: round.Published{At: t0.Add(-time.Minute), Limits: map[string]cpu.Milli{"app": 500}},
		})
		if l == 0 {
			continue
		}
		r.Output.Decisions = append(r.Output.Decisions, round.Decision{
			UID: uid, Pod: i, Limit: l, Containers: []round.ContainerLimit{{Name: "app", Limit: l}}, Publish: true,
		})
	}
	return r
}

// drain empties the queue as a writer does, and returns the writes.
func drain(t *testing.T, q *publishQueue, now time.Time) []string {
	t.Helper()
	var got []string
	for {
		p, _, ok := q.next(now)
		if !ok {
			return got
		}
		got = append(got, fmt.Sprint(p.Ref.Name, "=", p.Decision.Limit))
		q.done(p, written, now)
	}
}

func want(t *testing.T, reason string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: wrote %v, want %v", reason, got, want)
	}
}

func TestLatestWins(t *testing.T) {
	q := newPublishQueue(3 * time.Second)
	q.replace(publicationsOf(decided(t0, 400, 0, 600, 450, 700)), t0)
	want(t, "increases first, otherwise in order; a pod without a decision is skipped", drain(t, q, t0),
		"pod2=600m", "pod4=700m", "pod0=400m", "pod3=450m")

	q.replace(publicationsOf(decided(t0, 400, 600)), t0)
	q.replace(publicationsOf(decided(t0.Add(time.Second), 350, 0)), t0.Add(time.Second))
	want(t, "a decision that the newest round does not publish is not written", drain(t, q, t0.Add(time.Second)),
		"pod0=350m")

	unpublished := decided(t0, 900)
	unpublished.Output.Decisions[0].Publish = false
	q.replace(publicationsOf(unpublished), t0)
	want(t, "a decision that is not to be published", drain(t, q, t0))
}

func TestOneWritePerPodInFlight(t *testing.T) {
	q := newPublishQueue(3 * time.Second)
	for _, c := range []struct {
		reason string
		next   cpu.Milli
		out    publishResult
		want   []string
	}{
		{"the same limits, and the write succeeds", 600, written, nil},
		{"other limits are decided meanwhile", 800, written, []string{"pod0=800m"}},
		{"the write fails, so after a back-off the newest decision is written", 600, conflict, []string{"pod0=600m"}},
	} {
		q.replace(publicationsOf(decided(t0, 600)), t0)
		p, _, ok := q.next(t0)
		if !ok {
			t.Fatalf("%s: nothing is queued", c.reason)
		}
		q.replace(publicationsOf(decided(t0.Add(time.Second), c.next)), t0.Add(time.Second))
		want(t, "while the first write is in flight", drain(t, q, t0.Add(time.Second)))
		q.done(p, c.out, t0.Add(time.Second))
		want(t, c.reason, drain(t, q, t0.Add(2*time.Second)), c.want...)
	}
}

func TestStaleIsDropped(t *testing.T) {
	q := newPublishQueue(3 * time.Second)
	q.replace(publicationsOf(decided(t0, 600, 400)), t0)
	want(t, "not too old", drain(t, q, t0.Add(3*time.Second)), "pod0=600m", "pod1=400m")
	q.replace(publicationsOf(decided(t0, 600, 400)), t0)
	_, dropped, ok := q.next(t0.Add(3*time.Second + 1))
	if ok || dropped != 2 {
		t.Errorf("after more than three samples: write %v, %d dropped; want none, 2", ok, dropped)
	}
	if _, dropped, ok = q.next(t0); ok || dropped != 0 {
		t.Error("dropped decisions came back")
	}
}

// TestBackoff: after a failure the writes of one pod, or of all, wait for a time that doubles,
// whatever the rounds decide.
func TestBackoff(t *testing.T) {
	const seconds = 1000
	// attempts counts the writes of two pods that end with these results.
	attempts := func(first, second publishResult) (n [2]int) {
		q := newPublishQueue(3 * time.Second)
		for s := range seconds {
			now := t0.Add(time.Duration(s) * time.Second)
			q.replace(publicationsOf(decided(now, 600, 400)), now)
			for {
				p, _, ok := q.next(now)
				if !ok {
					break
				}
				if p.Ref.Name == "pod0" {
					n[0]++
					q.done(p, first, now)
				} else {
					n[1]++
					q.done(p, second, now)
				}
			}
		}
		return n
	}
	for _, c := range []struct {
		first, second publishResult
		reason        string
		low, high     [2]int
	}{
		{conflict, written, "1 s, doubling up to 5 minutes", [2]int{10, 1000}, [2]int{14, 1000}},
		{notFound, written, "10 s, doubling up to 5 minutes, less up to a quarter", [2]int{8, 1000}, [2]int{11, 1000}},
		{invalid, written, "30 s, doubling", [2]int{6, 1000}, [2]int{8, 1000}},
		{forbidden, written, "30 s, doubling", [2]int{6, 1000}, [2]int{8, 1000}},
		{unavailable, unavailable, "1 s, doubling up to 15 s, whichever pod is tried", [2]int{10, 10}, [2]int{85, 85}},
		{unavailable, written, "one pod alone: 1 s, doubling up to 15 s; the other waits for a tick or two each time", [2]int{60, 500}, [2]int{92, 1000}},
	} {
		n := attempts(c.first, c.second)
		for i := range n {
			if n[i] < c.low[i] || n[i] > c.high[i] {
				t.Errorf("%v and %v: pod %d is tried %d times in %d s, want %d to %d: %s", c.first, c.second, i, n[i], seconds,
					c.low[i], c.high[i], c.reason)
			}
		}
	}
}

// TestBackoffEndsWithSuccess: after a successful write the back-off begins at its first wait again.
func TestBackoffEndsWithSuccess(t *testing.T) {
	q := newPublishQueue(time.Hour)
	write := func(out publishResult, now time.Time) {
		t.Helper()
		q.replace(publicationsOf(decided(now, 600)), now)
		p, _, ok := q.next(now)
		if !ok {
			t.Fatalf("nothing is queued at %v", now.Sub(t0))
		}
		q.done(p, out, now)
	}
	now := t0
	for range 10 {
		write(unavailable, now)
		now = now.Add(maxOutageBackoff)
	}
	write(written, now)
	write(unavailable, now)
	now = now.Add(time.Second)
	write(written, now) // the back-off began at a second again
}

// TestBackoffsAreRemoved: pods that do not exist any more leave nothing behind.
func TestBackoffsAreRemoved(t *testing.T) {
	q := newPublishQueue(3 * time.Second)
	q.replace(publicationsOf(decided(t0, 600)), t0)
	p, _, _ := q.next(t0)
	q.done(p, notFound, t0)
	q.replace(nil, t0.Add(time.Hour))
	if len(q.backoffs) != 0 || len(q.inFlight) != 0 {
		t.Errorf("left: %v %v", q.backoffs, q.inFlight)
	}
}

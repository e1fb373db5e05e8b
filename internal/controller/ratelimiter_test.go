package controller

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// ask is when a pod asks for budget; asks has the soonest first.
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

// TestRateLimiter: however many pods wait they are looked at about as often as there are resizes, all get their turn, in the time that the
// rate takes, and the rate holds.
func TestRateLimiter(t *testing.T) {
	const rate, burst, pods = 10, 20, 5000
	l := newRateLimiter(rate, burst)
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
		if _, waits := l.waiting(next.pod, next.at); waits {
			t.Fatalf("pod %s waits beyond its turn", next.pod)
		}
		p, ok := l.take(next.pod, next.at)
		if !ok {
			if _, waits := l.waiting(next.pod, p.at.Add(-time.Nanosecond)); !waits {
				t.Fatalf("pod %s may ask before its turn", next.pod)
			}
			heap.Push(&waiting, ask{next.pod, p.at})
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

// TestUnusedTurnsAreForgotten: a pod that does not ask again is forgotten.
func TestUnusedTurnsAreForgotten(t *testing.T) {
	l := newRateLimiter(1, 1)
	l.take("a", noon)
	l.take("gone", noon)
	l.take("b", noon.Add(turnKept))
	if len(l.waits) != 1 {
		t.Errorf("%d turns, want 1", len(l.waits))
	}
	l.take("c", noon.Add(3*turnKept))
	if len(l.waits) != 0 {
		t.Errorf("still kept: %v", l.waits)
	}
}

// TestAShortWaitIsNotWritten: a pod that waits some seconds for the budget is not written to, and told that it waits where it takes longer.
func TestAShortWaitIsNotWritten(t *testing.T) {
	r := newRig(t)
	r.config.Burst, r.config.Rate = 1, 1
	l := r.live(0, false)
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		pods = append(pods, r.pod(name, "100m", "500m"))
	}
	for _, pod := range pods {
		l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	}
	for _, pod := range pods {
		r.publish(pod, "0.000", app(2000))
	}
	before := l.writes.count()
	result, err := l.once()
	if err != nil {
		t.Fatal(err)
	}
	if wait := result.RequeueAfter; wait < 500*time.Millisecond || wait > 2*time.Second {
		t.Errorf("another look after %v, want one at the next turn", wait)
	}
	// The dry run, the resize and what became of it.
	if n := l.writes.count() - before; n != 3 || l.counter.resizes() != 1 {
		t.Errorf("%d writes and %d resizes, want 3 and 1", n, l.counter.resizes())
	}
	if _, err := l.once(); err != nil {
		t.Fatal(err)
	}
	if l.counter.resizes() > 1 {
		t.Error("resized before its turn")
	}
	for _, pod := range pods[1:] {
		if pa := r.stored(pod); pa.Status.Reason != string(reasons.NoDecisionYet) {
			t.Errorf("%s: %+v", pod.Name, pa.Status)
		}
	}
	l.ahead = 1500 * time.Millisecond
	l.until("both have had their turn", func() (bool, any) {
		l.ahead += 500 * time.Millisecond
		_, err := l.once()
		return err == nil && l.counter.resizes() == 3, l.counter.resizes()
	})
}

// TestALongWaitIsReported: a short wait leaves the status of a pod as it is, and no wait hides a failure.
func TestALongWaitIsReported(t *testing.T) {
	stored := lifecycle.Status{Phase: lifecycle.PhaseApplied, Reason: reasons.Settled}
	for wait, want := range map[time.Duration]reasons.Reason{unreportedWait: reasons.Settled, unreportedWait + time.Second: reasons.RateLimited} {
		waits := &task{Task: lifecycle.Task{Status: stored}, podState: &podState{facts: lifecycle.Pod{Status: stored}}}
		waits.awaitToken(turn{noon, noon.Add(wait)})
		if waits.Status.Reason != want || !waits.RecheckAt.Equal(noon.Add(wait)) {
			t.Errorf("a wait of %v: %+v, another look at %v", wait, waits.Status, waits.RecheckAt)
		}
	}
	failed := &task{Task: lifecycle.Task{Purpose: lifecycle.Revert}, podState: &podState{}}
	failed.Report(lifecycle.PhaseFailed, reasons.ResizeDeferred, "")
	if failed.awaitToken(turn{noon, noon.Add(time.Hour)}); failed.Status.Reason != reasons.ResizeDeferred {
		t.Errorf("the failure is not reported any more: %+v", failed.Status)
	}
}

// TestAwaitsDecreases: a pod that waits for decreases is not looked at before one of them has its turn.
func TestAwaitsDecreases(t *testing.T) {
	lower := &actuator.Move{Changes: []actuator.Change{{Container: "app", From: 500, To: 400}}}
	raise := &actuator.Move{Changes: []actuator.Change{{Container: "app", From: 400, To: 500}}}
	moves := func(m *actuator.Move, turn time.Time) *task { return &task{Task: lifecycle.Task{Move: m}, turn: turn} }
	for name, c := range map[string]struct {
		other *task
		want  time.Duration
	}{
		"a decrease waits for a token": {moves(lower, noon.Add(time.Minute)), time.Minute},
		"a decrease was just made":     {moves(lower, time.Time{}), time.Second},
		"no decrease":                  {moves(raise, noon.Add(time.Minute)), time.Second},
	} {
		waits := &task{Task: lifecycle.Task{RecheckAt: noon.Add(time.Second)}}
		waits.Status.Reason = reasons.WaitingForDecreases
		settled := &task{Task: lifecycle.Task{RecheckAt: noon.Add(time.Second)}}
		awaitDecreases([]*task{c.other}, []*task{waits, settled})
		if got := waits.RecheckAt.Sub(noon); got != c.want || settled.RecheckAt.Sub(noon) != time.Second {
			t.Errorf("%s: looked at in %v, want %v; another pod in %v", name, got, c.want, settled.RecheckAt.Sub(noon))
		}
	}
}

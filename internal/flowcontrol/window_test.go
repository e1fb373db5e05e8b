package flowcontrol

import (
	"fmt"
	"testing"
	"time"
)

// server is an API server that carries out one resize after the other.
type server struct {
	each time.Duration
	jobs []job
}

type job struct {
	Request[int]
	at, ends time.Time
}

// run sends what may be sent for a time, with more resizes to come in each namespace, and returns how many ended.
func (s *server) run(b *bench, length time.Duration, ended func(job)) (n int) {
	for until := b.now.Add(length); b.now.Before(until); b.now = b.now.Add(10 * time.Millisecond) {
		for len(s.jobs) > 0 && !b.now.Before(s.jobs[0].ends) {
			b.ends(s.jobs[0].Request, Charged)
			ended(s.jobs[0])
			s.jobs, n = s.jobs[1:], n+1
		}
		for _, r := range b.sends() {
			begins := b.now
			if len(s.jobs) > 0 {
				begins = s.jobs[len(s.jobs)-1].ends
			}
			s.jobs = append(s.jobs, job{r, b.now, begins.Add(s.each)})
		}
	}
	return n
}

// TestBusyServersGetFewAtOnce: while a server that carries out 20 resizes per second has 4,000 decreases to
// do, it is never idle, and an increase of a throttled pod takes less than a second, whenever it comes: behind
// 64 resizes it would take 3.2 s. Once the server is fast again, all workers are used.
func TestBusyServersGetFewAtOnce(t *testing.T) {
	b := manyTokens(64, 8)
	for i := range 4000 {
		b.comes(fmt.Sprint("team-", i%50), fmt.Sprint("node-", i%100), Decrease)
	}
	s := &server{each: 50 * time.Millisecond}
	ignore := func(job) {}
	s.run(b, 20*time.Second, ignore) // by then it is known to be busy
	for i := range 20 {
		came := b.now
		urgent := b.comes(fmt.Sprint("team-", i), "node-1", Needed)
		took := time.Duration(0)
		if n := s.run(b, 2*time.Second, func(j job) {
			if j.Pod == urgent {
				took = b.now.Sub(came)
			}
		}); n < 39 {
			t.Errorf("%d resizes in 2 s of a server that can do 40", n)
		}
		if took == 0 || took > time.Second {
			t.Errorf("increase %d of a throttled pod takes %v", i, took)
		}
	}
	s.each = time.Millisecond
	s.run(b, 5*time.Second, ignore)
	if b.window.size != b.cfg.Workers {
		t.Errorf("%d at once, want all %d workers", b.window.size, b.cfg.Workers)
	}
}

// TestHangingOnesFillNoWindow: where more resizes hang than may be under way now, a namespace that answers has
// its worker.
func TestHangingOnesFillNoWindow(t *testing.T) {
	b := manyTokens(64, 8)
	b.answered("healthy")
	for i := range 64 {
		b.comes(fmt.Sprint("new-", i), "node-1", Needed)
	}
	if n := len(b.sends()); n != 32 {
		t.Fatalf("%d resizes of new namespaces hang, want 32", n)
	}
	b.window.size = leastWindow
	b.comes("healthy", "node-2", Needed)
	if n := len(b.sends()); n != 1 {
		t.Errorf("%d resizes of a namespace that answers begin, want 1", n)
	}
}

// TestFewSlowWebhooksShrinkNothing: eight namespaces with a webhook that takes 1.9 s give most of the answers,
// beside twenty that are answered at once, or three alone. All workers stay in use.
func TestFewSlowWebhooksShrinkNothing(t *testing.T) {
	for _, c := range []struct{ slow, prompt int }{{8, 20}, {3, 0}} {
		w := newWindow(64)
		for i := range 3000 {
			for n := range c.slow {
				w.answer(fmt.Sprint("slow-", n), 1900*time.Millisecond, noon)
			}
			if c.prompt > 0 {
				w.answer(fmt.Sprint("prompt-", i%c.prompt), 20*time.Millisecond, noon)
				w.answer(fmt.Sprint("prompt-", (i*7+1)%c.prompt), 20*time.Millisecond, noon)
			}
			if w.size != 64 {
				t.Fatalf("%+v: %d at once after %d rounds", c, w.size, i+1)
			}
		}
	}
}

// TestWindowsRecoverWithTime: a minute after the last time that it shrank, a window has its full size, however
// few answers there were.
func TestWindowsRecoverWithTime(t *testing.T) {
	w := newWindow(64)
	for i := range 200 {
		w.answer(fmt.Sprint(i%10), time.Second, noon)
	}
	if w.size != leastWindow {
		t.Fatalf("%d at once, want %d", w.size, leastWindow)
	}
	if n := w.now(noon.Add(smallFor - time.Second)); n != leastWindow {
		t.Errorf("%d at once before a minute is over", n)
	}
	if n := w.now(noon.Add(smallFor)); n != 64 {
		t.Errorf("%d at once a minute later, want 64", n)
	}
}

// TestWindowsOfFewWorkers: it stays within one and the number of workers, however late the answers.
func TestWindowsOfFewWorkers(t *testing.T) {
	for _, workers := range []int{2, 7, 8, 9, 64} {
		w := newWindow(workers)
		for i := range 2000 {
			w.answer(fmt.Sprint(i%10), time.Duration(i%1000)*time.Millisecond*time.Duration(1+i/1000), noon)
			if least := min(leastWindow, workers); w.size < least || w.size > workers {
				t.Fatalf("%d workers: %d at once", workers, w.size)
			}
		}
	}
}

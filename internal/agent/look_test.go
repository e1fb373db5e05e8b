package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
)

// lookedAt is a round loop of one pod with a limit of 500m, whose usage in millicores is that of the load.
// At its limit it is throttled.
func lookedAt(load func(time.Duration) cpu.Milli) (*roundLoop, *fakeSampler) {
	const limit = 500
	s := smallNode().with("app")
	s.Refs[0].Allocation = "pa"
	s.Pods[0].Published = round.Published{At: time.Now(), Limits: map[string]cpu.Milli{"app": limit}}
	p, host := newLoop(nil)
	p.snapshot = func() *snapshot { return s }
	var stat kernel.Stat
	last := time.Now()
	read := func(sample kernel.Sample) kernel.Sample {
		now := time.Now()
		for ; last.Before(now); last = last.Add(100 * time.Millisecond) {
			use := load(last.Sub(host.start))
			stat.Usage += time.Duration(use) * 100 * time.Microsecond
			if stat.Periods++; use >= limit {
				stat.Throttled++
			}
		}
		sample.Node.At = now
		sample.Node.Idle = kernel.KnownTotal(2*now.Sub(host.start) - stat.Usage)
		sample.Node.Usage, sample.Node.Kubepods = kernel.KnownTotal(stat.Usage), kernel.KnownTotal(stat.Usage)
		for i := range sample.Pods {
			sample.Pods[i] = kernel.PodSample{Pod: "app", Containers: []kernel.Group{{
				ID: "app", Found: true, At: now, Stat: stat,
				Quota: kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond},
			}}}
		}
		return sample
	}
	host.sample = read
	host.look = func(targets []kernel.Target) kernel.Sample {
		return read(kernel.Sample{Pods: make([]kernel.PodSample, len(targets))})
	}
	return p, host
}

// steps is 20m for 15 s, then 100m, and 500m from the given time on.
func steps(from time.Duration) func(time.Duration) cpu.Milli {
	return func(at time.Duration) cpu.Milli {
		switch {
		case at < 15*time.Second:
			return 20
		case at < from:
			return 100
		}
		return 500
	}
}

// from are the looks from a second on.
func from(second float64, looks []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(looks), func(at float64) bool { return at < second })
}

func TestLooksBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := lookedAt(steps(20300 * time.Millisecond))
		if got := p.untilNext(time.Now().Add(time.Second)); got != time.Second {
			t.Errorf("with nothing to look at the loop wakes up after %v, want a second", got)
		}
		var raised []string
		p.raise = func(r *roundResult) {
			for _, pub := range publicationsOf(r) {
				raised = append(raised, time.Since(host.start).String()+" "+pub.Ref.Name+" "+pub.Decision.Limit.String())
			}
		}
		stop := start(p.Run)
		time.Sleep(17500 * time.Millisecond)
		host.mu.Lock()
		got := from(16, host.looks)
		host.mu.Unlock()
		// The last look before a round ends well before it.
		if d := cmp.Diff([]float64{16.2, 16.4, 16.6, 16.8, 17.2, 17.4}, got); d != "" {
			t.Errorf("looks (-want +got):\n%s", d)
		}
		time.Sleep(3400 * time.Millisecond)
		stop()
		if d := cmp.Diff([]string{"20.4s app 1200m"}, raised); d != "" {
			t.Errorf("raised by looks (-want +got):\n%s", d)
		}
		if n := testutil.ToFloat64(p.metrics.looks.raised); n != 1 {
			t.Errorf("%v looks are counted that raised a limit, want 1", n)
		}
		if got := host.reads(); len(got) != 21 || got[20] != 20 {
			t.Errorf("rounds at %v, want one on each second", got)
		}
	})
	for _, c := range []struct {
		name         string
		look, rounds time.Duration // their intervals
		looks        int           // from 16 s to 18 s
	}{
		{"off", 0, time.Second, 0},
		{"none in the last tenth of a second before a round", 300 * time.Millisecond, time.Second, 4},
		{"rounds as often as looks", 200 * time.Millisecond, 200 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, host := lookedAt(steps(time.Hour))
			p.cfg.LookInterval, p.interval = c.look, c.rounds
			stop := start(p.Run)
			time.Sleep(17950 * time.Millisecond)
			stop()
			if looks := from(16, host.looks); len(looks) != c.looks {
				t.Errorf("%s: looks at %v, want %d", c.name, looks, c.looks)
			}
		})
	}
}

// TestChangesDelayNoLook: a snapshot that changes more often than looks are made, as with each write of this agent,
// delays none of them.
func TestChangesDelayNoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := lookedAt(steps(20300 * time.Millisecond))
		changed := make(chan struct{}, 1)
		p.changed = changed
		quiet := start(func(ctx context.Context) {
			for ctx.Err() == nil {
				time.Sleep(150 * time.Millisecond)
				signal(changed)
			}
		})
		stop := start(p.Run)
		time.Sleep(18500 * time.Millisecond)
		stop()
		quiet()
		looks := slices.DeleteFunc(host.looks, func(at float64) bool { return at < 16 || at > 18 })
		if len(looks) != 8 {
			t.Errorf("looks in two seconds at %v, want 8", looks)
		}
	})
}

// TestNoLooksWithoutRounds: where a round cannot run there are no looks either.
func TestNoLooksWithoutRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := lookedAt(steps(time.Hour))
		ready := p.snapshot()
		p.snapshot = func() *snapshot {
			if time.Since(host.start) > 16500*time.Millisecond {
				return &snapshot{NotReady: "the node is gone"}
			}
			return ready
		}
		stop := start(p.Run)
		time.Sleep(30 * time.Second)
		stop()
		if d := cmp.Diff([]float64{16.2, 16.4, 16.6, 16.8}, from(16, host.looks)); d != "" {
			t.Errorf("looks after the last round, at 16 s (-want +got):\n%s", d)
		}
	})
}

func TestPanicCostsTheLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := lookedAt(steps(20300 * time.Millisecond))
		look := host.look
		host.look = func(targets []kernel.Target) kernel.Sample {
			if time.Since(host.start) > 18*time.Second && time.Since(host.start) < 20*time.Second {
				panic("a broken look")
			}
			return look(targets)
		}
		raised := 0
		p.raise = func(*roundResult) { raised++ }
		stop := start(p.Run)
		time.Sleep(20900 * time.Millisecond)
		stop()
		want := []float64{16.2, 16.4, 16.6, 16.8, 17.2, 17.4, 17.6, 17.8, 18.2, 19.2, 20.2, 20.4, 20.6, 20.8}
		if d := cmp.Diff(want, from(16, host.looks)); d != "" {
			t.Errorf("looks (-want +got):\n%s", d)
		}
		if n := testutil.ToFloat64(p.metrics.looks.panicked); n != 2 || testutil.ToFloat64(p.metrics.rounds.panicked) != 0 {
			t.Errorf("%v looks and %v rounds are counted as panicked, want 2 and none", n, testutil.ToFloat64(p.metrics.rounds.panicked))
		}
		if got := p.last.Load().Output; len(got.Decisions) != 1 || raised != 1 {
			t.Errorf("%d pods decided and %d raised; want the estimates of before, and a raise by the looks after the panics",
				len(got.Decisions), raised)
		}
	})
}

func TestLooksAreWrittenFirst(t *testing.T) {
	q := newPublishQueue(time.Hour)
	q.replace(publicationsOf(decided(t0, 600, 400, 700)), t0) // pod1 is lowered
	q.add(publicationsOf(decided(t0.Add(200*time.Millisecond), 0, 900, 0, 800)))
	want(t, "a look raises pod1 and pod3", drain(t, q, t0), "pod1=900m", "pod3=800m", "pod0=600m", "pod2=700m")

	q.replace(publicationsOf(decided(t0, 600, 400)), t0)
	first, _, _ := q.next(t0)
	lowered, _, _ := q.next(t0)
	q.add(publicationsOf(decided(t0.Add(200*time.Millisecond), 0, 900)))
	if p, _, ok := q.next(t0); ok {
		t.Errorf("%s=%v is handed out while a write for it is in flight", p.Ref.Name, p.Decision.Limit)
	}
	q.done(first, written, t0)
	q.done(lowered, written, t0)
	want(t, "after the decrease in flight", drain(t, q, t0), "pod1=900m")

	q.add(publicationsOf(decided(t0, 900)))
	raise, _, _ := q.next(t0)
	at := t0.Add(time.Second) // the next round does not know yet that it is written
	q.replace(publicationsOf(decided(at, 900)), at)
	q.done(raise, written, at)
	want(t, "the same limit again", drain(t, q, at))
	q.add(publicationsOf(decided(at, 900)))
	q.replace(publicationsOf(decided(at.Add(time.Second), 400)), at.Add(time.Second))
	want(t, "a round that decides otherwise", drain(t, q, at.Add(time.Second)), "pod0=400m")

	p, got := apiServer(t, accept)
	p.queue.replace(publicationsOf(decided(time.Now(), 600, 700, 400)), time.Now())
	p.queue.add(publicationsOf(decided(time.Now(), 0, 0, 900)))
	p.drain(t.Context())
	if head, _, _ := strings.Cut(<-got, "\n"); !strings.HasPrefix(head, "PATCH ") || !strings.Contains(head, "/pod2 ") {
		t.Errorf("the first request is %q, want a patch of the pod that a look raises", head)
	}
}

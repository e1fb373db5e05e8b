package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// fakeSampler records when it is read, in seconds after the start, and then calls do.
type fakeSampler struct {
	mu     sync.Mutex
	start  time.Time
	at     []float64
	do     func(read int)
	closed bool
	read   func([]kernel.Target) kernel.Sample // what a Read finds of these; nil: nothing
	sample func(kernel.Sample) kernel.Sample   // of a Read; nil: as it is
	looks  []float64                           // when it looked, in seconds after the start
	finds  []float64                           // when it was asked for new pods
	look   func([]kernel.Target) kernel.Sample
}

func (p *fakeSampler) Read(targets []kernel.Target) kernel.Sample {
	p.mu.Lock()
	p.at = append(p.at, time.Since(p.start).Seconds())
	n := len(p.at)
	p.mu.Unlock()
	if p.do != nil {
		p.do(n)
	}
	s := kernel.Sample{Node: kernel.NodeSample{At: time.Now()}, Pods: make([]kernel.PodSample, len(targets))}
	if p.read != nil {
		s = p.read(targets)
	}
	if p.sample != nil {
		s = p.sample(s)
	}
	return s
}

func (p *fakeSampler) Look(targets []kernel.Target) kernel.Sample {
	return p.between(&p.looks, targets)
}

// Find is a Look that is recorded apart.
func (p *fakeSampler) Find(targets []kernel.Target) kernel.Sample {
	return p.between(&p.finds, targets)
}

func (p *fakeSampler) between(at *[]float64, targets []kernel.Target) kernel.Sample {
	p.mu.Lock()
	*at = append(*at, time.Since(p.start).Seconds())
	p.mu.Unlock()
	if p.look != nil {
		return p.look(targets)
	}
	return kernel.Sample{Node: kernel.NodeSample{At: time.Now()}, Pods: make([]kernel.PodSample, len(targets))}
}

func (*fakeSampler) Descriptors() int { return 0 }

func (p *fakeSampler) Close() error {
	p.closed = true
	return nil
}

func (p *fakeSampler) reads() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.at)
}

// newLoop is the round loop of an empty node with rounds each second, and its sampler.
func newLoop(do func(read int)) (*roundLoop, *fakeSampler) {
	now := time.Now()
	host := &fakeSampler{start: now, do: do}
	return &roundLoop{
		interval: time.Second, cfg: round.DefaultConfig(), log: slog.New(slog.DiscardHandler),
		open:     func(context.Context) (Sampler, error) { return host, nil },
		snapshot: smallNode,
		publish:  func(*roundResult) {}, raise: func(*roundResult) {}, before: func() (market.Price, bool) { return 0, false },
		health: health.New(time.Second, now), metrics: newMetrics(),
	}, host
}

// smallNode is a node of two CPUs without pods.
func smallNode() *snapshot { return &snapshot{Node: round.Node{Capacity: 2000, Allocatable: 2000}} }

// start runs f until stop is called, which waits for its end.
func start(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func TestTicksNeverQueue(t *testing.T) {
	const ms = time.Millisecond
	type slow map[int]time.Duration // read -> how long it takes
	for name, c := range map[string]struct {
		slow slow
		want []float64 // rounds in the first 8.5 seconds
		late float64
	}{
		"a round within its second":          {slow{2: 900 * ms}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 0},
		"ticks that pass are not caught up":  {slow{3: 2500 * ms}, []float64{0, 1, 2, 5, 6, 7, 8}, 2},
		"a round that ends on a tick has it": {slow{3: time.Second}, []float64{0, 1, 2, 4, 5, 6, 7, 8}, 1},
		"rounds of 1.5 seconds start every other second": {
			slow{1: 1500 * ms, 2: 1500 * ms, 3: 1500 * ms, 4: 1500 * ms, 5: 1500 * ms}, []float64{0, 2, 4, 6, 8}, 4,
		},
		"the grid does not move": {slow{1: 3100 * ms}, []float64{0, 4, 5, 6, 7, 8}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, host := newLoop(func(read int) { time.Sleep(c.slow[read]) })
				stop := start(p.Run)
				time.Sleep(8500 * time.Millisecond)
				got, late := host.reads(), testutil.ToFloat64(p.metrics.late)
				stop()
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("rounds (-want +got):\n%s", d)
				}
				if late != c.late {
					t.Errorf("%v late ticks, want %v", late, c.late)
				}
				if !host.closed {
					t.Error("the files of the cgroups are left open")
				}
			})
		})
	}
}

func TestPanicSkipsARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := newLoop(func(read int) {
			if read >= 3 && read <= 6 || read >= 9 {
				panic("a broken round")
			}
		})
		stop := start(p.Run)
		defer stop()
		time.Sleep(6500 * time.Millisecond) // reads 1 to 7: four in a row panic, the seventh does not
		if got, want := host.reads(), []float64{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(got, want) {
			t.Errorf("rounds at %v, want %v", got, want)
		}
		if got := testutil.ToFloat64(p.metrics.rounds.panicked); got != 4 {
			t.Errorf("%v panics counted, want 4", got)
		}
		if err := p.health.Ready(time.Now()); err != nil {
			t.Errorf("after a completed round: %v", err)
		}
		time.Sleep(5 * time.Second) // reads 8 to 12: four panic
		if err := p.health.Healthy(time.Now()); err != nil {
			t.Errorf("after four panics: %v", err)
		}
		time.Sleep(time.Second)
		if err := p.health.Healthy(time.Now()); err == nil {
			t.Error("healthy after five panics in a row")
		}
	})
}

// TestPanicCostsItsPod: a panic about one pod sets that pod aside for five minutes, and says so; the
// round goes on with the others, and with the state of before.
func TestPanicCostsItsPod(t *testing.T) {
	var log bytes.Buffer
	p, host := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	s := smallNode().with("one").with("two").with("three")
	now, broken := time.Now(), true
	host.sample = func(sample kernel.Sample) kernel.Sample {
		sample.Node.At = now
		for i := range sample.Pods {
			sample.Pods[i].Containers = []kernel.Group{{
				ID: s.Refs[i].Name, Found: true, At: now, Stat: kernel.Stat{Usage: now.Sub(p.health.Started()) / 10},
				Quota: kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond},
			}}
		}
		if broken {
			sample.Pods[1].Containers = nil // the round counts on one for each of the pod
		}
		return sample
	}
	p.snapshot = func() *snapshot { return s }
	seconds := func(n int) {
		for range n {
			now = now.Add(time.Second)
			p.tick(t.Context(), now)
		}
	}
	seconds(20)
	if got := len(p.last.Load().Output.Decisions); got != 2 || testutil.ToFloat64(p.metrics.rounds.completed) != 20 || testutil.ToFloat64(p.metrics.rounds.panicked) != 0 {
		t.Errorf("%d decisions, %v rounds, %v lost; want the others decided in all 20", got,
			testutil.ToFloat64(p.metrics.rounds.completed), testutil.ToFloat64(p.metrics.rounds.panicked))
	}
	seconds(int(faultyFor/time.Second) - 10)
	if n := strings.Count(log.String(), "pod=two"); n != 2 || testutil.ToFloat64(p.metrics.podPanics) != 2 || strings.Contains(log.String(), "pod=one") {
		t.Errorf("%d lines, %v counted in 5 min; want one at the start and one after five minutes:\n%s", n, testutil.ToFloat64(p.metrics.podPanics), log.String())
	}
	broken = false
	seconds(int(faultyFor/time.Second) + 20)
	if got := len(p.last.Load().Output.Decisions); got != 3 {
		t.Errorf("%d decisions once nothing is broken, want 3", got)
	}
}

// TestPanicClearsTheState: estimates from before a panic are not used after it.
func TestPanicClearsTheState(t *testing.T) {
	bad := false
	p, _ := newLoop(func(int) {
		if bad {
			panic("a broken round")
		}
	})
	p.tick(t.Context(), time.Now())
	if reflect.ValueOf(p.state).IsZero() {
		t.Fatal("the round leaves no state, so this test proves nothing")
	}
	bad = true
	p.tick(t.Context(), time.Now())
	if !reflect.ValueOf(p.state).IsZero() {
		t.Errorf("state after a panic: %+v", p.state)
	}
}

func TestStuckRoundStopsTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, _ := newLoop(func(read int) {
			if read == 31 {
				<-release
			}
		})
		var mu sync.Mutex
		var renewals []float64
		renewed := func() []float64 {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(renewals)
		}
		begin := time.Now()
		h := newHeartbeat(func(context.Context, time.Time) error {
			mu.Lock()
			defer mu.Unlock()
			renewals = append(renewals, time.Since(begin).Seconds())
			return nil
		})
		h.live = p.health.Live
		stopLoop, stopHeartbeat := start(p.Run), start(h.Run)
		time.Sleep(100500 * time.Millisecond)
		if err := p.health.Healthy(time.Now()); err == nil {
			t.Error("healthy 70 seconds after the last round")
		}
		// The round of second 30 does not end; at 39 the one of 29 is recent, later it is not.
		before := renewed()
		if last := before[len(before)-1]; last > 39.5 {
			t.Errorf("renewed at second %v, long after the last round", last)
		}
		close(release)
		time.Sleep(15 * time.Second)
		if err := p.health.Ready(time.Now()); err != nil {
			t.Errorf("rounds run again: %v", err)
		}
		stopLoop()
		stopHeartbeat()
		if after := renewed()[len(before):]; len(after) != 2 || after[0] > 102.5 || after[1] != 115.5 {
			t.Errorf("renewed at %v after the rounds went on at 100.5, want within two seconds, and at the end", after)
		}
	})
}

// TestNoRoundWithoutAllInputs: while an input is missing no round runs, /readyz names it, and the
// agent is healthy.
func TestNoRoundWithoutAllInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := newLoop(nil)
		var opens atomic.Int64
		var found atomic.Bool
		var current atomic.Pointer[snapshot]
		open := p.open
		p.open = func(ctx context.Context) (Sampler, error) {
			if opens.Add(1); !found.Load() {
				return nil, errors.New("mount the host's /sys/fs/cgroup")
			}
			return open(ctx)
		}
		p.snapshot = current.Load
		stop := start(p.Run)
		defer stop()
		not := func(want string) {
			t.Helper()
			err := p.health.Ready(time.Now())
			if err == nil || err.Error() != "no rounds: "+want {
				t.Errorf("ready: %v, want no rounds: %s", err, want)
			}
			if err := p.health.Healthy(time.Now()); err != nil {
				t.Error(err)
			}
			if p.health.Live(time.Now()) {
				t.Error("the Lease would be renewed")
			}
		}
		time.Sleep(12500 * time.Millisecond)
		not("mount the host's /sys/fs/cgroup")
		if opens.Load() != 3 {
			t.Errorf("tried to open the cgroups %d times in 12 seconds, want 3", opens.Load())
		}
		found.Store(true)
		time.Sleep(5 * time.Second)
		not("waiting for the API server")
		current.Store(&snapshot{NotReady: "node n is not in the API server"})
		time.Sleep(time.Second)
		not("node n is not in the API server")
		if len(host.reads()) > 0 {
			t.Errorf("%d rounds, want none", len(host.reads()))
		}
		current.Store(smallNode())
		time.Sleep(time.Second)
		if err := p.health.Ready(time.Now()); err != nil {
			t.Error(err)
		}
	})
}

// TestBlockedPodsAreTold: the log says which pod's cgroup the kernel does not let be read, and when it
// does again; the round counts them.
func TestBlockedPodsAreTold(t *testing.T) {
	var log bytes.Buffer
	blocked := []bool{false, true}
	p, host := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	host.sample = func(s kernel.Sample) kernel.Sample {
		for i := range s.Pods {
			s.Pods[i].Blocked, s.Pods[i].Containers = blocked[i], make([]kernel.Group, 1)
		}
		return s
	}
	s := smallNode().with("one").with("two")
	p.snapshot = func() *snapshot { return s }
	for range 3 {
		p.tick(t.Context(), time.Now())
	}
	if n := strings.Count(log.String(), "pod=two"); n != 1 || strings.Contains(log.String(), "pod=one") || p.last.Load().Blocked != 1 {
		t.Errorf("%d lines about the pod, %d blocked; want one of each:\n%s", n, p.last.Load().Blocked, log.String())
	}
	blocked[1] = false
	p.tick(t.Context(), time.Now())
	if n := strings.Count(log.String(), "is read again"); n != 1 || p.last.Load().Blocked != 0 {
		t.Errorf("%d lines that it is read again, %d blocked:\n%s", n, p.last.Load().Blocked, log.String())
	}
}

// TestUnlikeQuotaIsTold: the log says once which pod's quota in the kernel has not been its limit for a
// minute, and when it is again; the round counts such pods. A resize under way is not told.
func TestUnlikeQuotaIsTold(t *testing.T) {
	var log bytes.Buffer
	p, host := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	s := smallNode().with("one").with("two")
	now, second := time.Now(), 300*time.Microsecond*100
	host.sample = func(sample kernel.Sample) kernel.Sample {
		for i := range sample.Pods {
			quota := kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond}
			if i == 1 {
				quota.Limit = second
			}
			sample.Pods[i].Containers = []kernel.Group{{ID: s.Refs[i].Name, Found: true, At: now, Quota: quota}}
		}
		return sample
	}
	p.snapshot = func() *snapshot { return s }
	check := func(seconds, unlike, lines int) {
		t.Helper()
		for range seconds {
			now = now.Add(time.Second)
			p.tick(t.Context(), now)
		}
		if got := p.last.Load().Quotas.Mismatches; got != unlike || strings.Count(log.String(), "pod=two") != lines || strings.Contains(log.String(), "pod=one") {
			t.Errorf("%d pods counted, want %d and %d lines:\n%s", got, unlike, lines, log.String())
		}
	}
	check(59, 0, 0)
	check(60, 1, 1)
	second = 50*time.Millisecond - 500*time.Microsecond // rounded
	check(1, 0, 2)
	second = 20 * time.Millisecond // a resize under way
	check(5, 0, 2)
	second = 50 * time.Millisecond
	check(5, 0, 2)
}

// TestPodQuotaIsTold: the Lease tells of a pod whose own cgroup has had another quota than the kubelet computes for 15 s,
// at that generation of the pod. It does not while the kubelet has something to do, where the pod has no quota, or where
// none is computed, or where MBCAS wrote no limit. Of many pods it tells of the newest.
func TestPodQuotaIsTold(t *testing.T) {
	var log bytes.Buffer
	p, host := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	s, quota := smallNode(), 30*time.Millisecond
	s.Told = true
	for i := range allocation.MaxQuotas + 4 {
		s = s.with(fmt.Sprintf("%06d", i))
		s.Quotas[i] = podQuota{CPU: 300, Generation: 1, Settled: true, Ours: true}
	}
	host.sample = func(sample kernel.Sample) kernel.Sample {
		for i := range sample.Pods {
			sample.Pods[i].Own = kernel.Group{Found: true, Quota: kernel.Quota{Limit: quota, Period: 100 * time.Millisecond}}
		}
		return sample
	}
	now := time.Unix(60_000_000, 0) // a minute begins
	p.snapshot = func() *snapshot { return s }
	after := func(seconds int) allocation.Quotas {
		for range seconds {
			now = now.Add(time.Second)
			p.tick(t.Context(), now)
		}
		return p.last.Load().Quotas.Wrong
	}
	unread := func(want bool) {
		t.Helper()
		if got := p.last.Load().Quotas.Unread; got != want {
			t.Errorf("not all are reported: %t, want %t", got, want)
		}
	}
	set := func(i int, q podQuota) {
		changed := *s
		changed.Quotas = slices.Clone(s.Quotas)
		changed.Quotas[i] = q
		s = &changed
	}
	after(15)
	unread(true) // it has just started
	if q := after(5); len(q) != 0 {
		t.Errorf("told of %v, and all are right", q)
	}
	unread(false)
	set(0, podQuota{CPU: 500, Generation: 1, Settled: true, Ours: true})
	set(1, podQuota{CPU: 500, Generation: 1, Ours: true})
	set(2, podQuota{Generation: 1, Settled: true, Ours: true})
	set(3, podQuota{CPU: 500, Generation: 1, Settled: true})
	if q := after(15); len(q) != 0 {
		t.Errorf("told of %v too soon", q)
	}
	if q := after(1); len(q) != 1 || q.Of("000000", 1) != 300 {
		t.Errorf("told of %v, want the first alone, with 300m at generation 1", q)
	}
	set(0, podQuota{CPU: 600, Generation: 2, Settled: true, Ours: true})
	if q := after(15); len(q) != 0 {
		t.Errorf("told of %v right after another resize", q)
	}
	set(0, podQuota{CPU: 600, Generation: 2, Ours: true})
	after(2) // the kubelet has something to do
	set(0, podQuota{CPU: 600, Generation: 3, Settled: true, Ours: true})
	after(30)
	if n := p.last.Load().Quotas.Mismatches; n != 2 || strings.Count(log.String(), "in the kernel is not its limit") != 2 {
		t.Errorf("%d pods counted and %d lines of the log, want two", n, strings.Count(log.String(), "in the kernel"))
	}
	quota = 0
	if q := after(20); len(q) != 0 {
		t.Errorf("told of %v, and no pod has a quota", q)
	}
	quota = 50 * time.Millisecond
	first := after(16)
	unread(true)
	set(8, podQuota{CPU: 400, Generation: 2, Settled: true, Ours: true})
	second := after(16)
	if len(first) != allocation.MaxQuotas || first.Of("000008", 1) != 0 || len(second) != allocation.MaxQuotas || second.Of("000008", 2) != 500 {
		t.Errorf("told of %v, after another resize of %v; want %d each, and the newest", first, second, allocation.MaxQuotas)
	}
	after(int(podQuotaNew / time.Second))
	unread(false) // what is not told of has been wrong for long
	changed := *s
	changed.Told, s = false, &changed
	after(1)
	unread(true)
}

// TestUnreadableSystemIsLoggedOnce: the log says when the system's usage becomes unreadable and
// readable, not in each round.
func TestUnreadableSystemIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	p, _ := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	good := round.NodeDecision{UsageKnown: true, SystemKnown: true}
	unreadable := round.NodeDecision{UsageKnown: true}
	for _, n := range []round.NodeDecision{{}, good, {}, good, unreadable, unreadable, {}, unreadable, good, good} {
		p.logChanges(round.Output{Node: n})
	}
	if warnings, lines := strings.Count(log.String(), "is not readable"), strings.Count(log.String(), "\n"); warnings != 1 ||
		lines != 2 {
		t.Errorf("want one line when it becomes unreadable and one when it is readable again:\n%s", log.String())
	}
	log.Reset()
	for range 3 {
		p.logChanges(round.Output{Node: good, Skipped: round.Skipped{Unenforced: 2}})
	}
	if n := strings.Count(log.String(), "cpuCFSQuota: true"); n != 1 {
		t.Errorf("%d lines, want one that says how to have limits enforced:\n%s", n, log.String())
	}
}

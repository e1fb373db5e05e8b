package sim

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// noChanges changes nothing.
type noChanges struct{}

func (noChanges) Decide(r *Snapshot) ([]Action, time.Duration) { return nil, r.Now + time.Hour }

// randomLimits changes limits at random; pods without one keep none.
type randomLimits struct{ next uint64 }

func (p *randomLimits) Decide(r *Snapshot) ([]Action, time.Duration) {
	var actions []Action
	for _, pod := range r.Pods {
		p.next = p.next*6364136223846793005 + 1442695040888963407
		if pod.Limit > 0 && p.next>>62 == 0 {
			actions = append(actions, Action{Pod: pod.ID, Limit: cpu.Milli(p.next>>40%300)*10 + 10, Delay: DirectDelay})
		}
	}
	return actions, r.Now + 70*time.Millisecond
}

func drawSetup(t *rapid.T) Setup {
	s := Setup{
		Machine: Machine{Cores: rapid.IntRange(1, 6).Draw(t, "cores")},
		Length:  3 * time.Second, Seed: rapid.Uint64().Draw(t, "seed"), Interval: 100 * time.Millisecond,
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
		p := PodSpec{
			Name:    fmt.Sprintf("p%d", i),
			Request: cpu.Milli(rapid.IntRange(0, 200).Draw(t, "request")) * 10,
			Limit:   cpu.Milli(rapid.IntRange(0, 300).Draw(t, "limit")) * 10,
			Threads: rapid.IntRange(1, 8).Draw(t, "threads"),
		}
		if rapid.Bool().Draw(t, "spins") {
			p.Spin = load.Burst{High: float64(rapid.IntRange(1, 6).Draw(t, "spinners")), Length: 300 * time.Millisecond, Period: 700 * time.Millisecond}
		} else {
			p.Requests = load.Requests{
				Rate: load.Constant(rapid.Float64Range(0, 200).Draw(t, "rate")), ServiceTime: 8 * time.Millisecond,
				Distribution: rapid.SampledFrom([]load.Distribution{load.Fixed, load.Exponential}).Draw(t, "spread"),
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "short") == 0 {
			p.Start = 500 * time.Millisecond
			p.End = 2 * time.Second
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// TestDeterministic: two simulations of a set-up end the same, even if one of them pauses.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		c := Start(s, &randomLimits{})
		latest := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "rests") {
			at := time.Duration(rapid.Int64Range(0, int64(s.Length)).Draw(t, "rest"))
			c.RunUntil(at)
			if latest = max(latest, at); c.node.now != latest {
				t.Fatalf("it pauses at %v, want %v", c.node.now, latest)
			}
		}
		c.RunUntil(2 * s.Length)
		if !reflect.DeepEqual(c.Result(), Run(s, &randomLimits{})) {
			t.Fatal("a run that paused ends differently")
		}
	})
}

func TestSameLoadForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		a, b := Run(s, noChanges{}), Run(s, &randomLimits{})
		for i := range a.Pods {
			if a.Pods[i].Arrived != b.Pods[i].Arrived || a.Pods[i].Offered != b.Pods[i].Offered {
				t.Fatalf("%s got %d requests under one policy and %d under another", a.Pods[i].Spec.Name, a.Pods[i].Arrived, b.Pods[i].Arrived)
			}
		}
	})
}

func TestCPUTimeIsConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		r := Run(s, &randomLimits{})
		var used time.Duration
		for _, p := range r.Pods {
			used += p.Usage
			if p.Useful > p.Offered {
				t.Fatalf("%s served %v of the %v offered", p.Spec.Name, p.Useful, p.Offered)
			}
			if p.Spec.Spin == nil && p.Usage != p.Useful {
				t.Fatalf("%s used %v, and %v of it for requests, though it does nothing else", p.Spec.Name, p.Usage, p.Useful)
			}
			if uint64(p.Latency.Count) < p.Served {
				t.Fatalf("%s served %d requests and counted %d latencies", p.Spec.Name, p.Served, p.Latency.Count)
			}
		}
		if total := time.Duration(s.Machine.Cores) * s.Length; used+r.IdleTime != total {
			t.Fatalf("%v used and %v idle: want %v together", used, r.IdleTime, total)
		}
	})
}

func TestWorkConserving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		s.Machine.Gaps, _ = drawGaps(t, s.Machine.Cores, time.Second)
		n := NewNode(s.Machine, s.Seed)
		for _, p := range s.Pods {
			if p.Start == 0 {
				n.Add(p)
			}
		}
		for at := time.Millisecond; at < time.Second; at += 1700 * time.Microsecond {
			n.Advance(at)
			empty, idle := 0, 0
			for i := range n.cores {
				if c := &n.cores[i]; c.current == nil {
					empty++
					if !n.inGap(c) {
						idle++
					}
				}
			}
			if empty != n.idle {
				t.Fatalf("%d cores run nothing, %d counted", empty, n.idle)
			}
			for i := range n.cores {
				c := &n.cores[i]
				if len(c.queue) > 0 && c.current == nil && !n.inGap(c) {
					t.Fatalf("core %d idles beside a thread of its own", i)
				}
				for _, e := range c.queue {
					// A thread may wait beside an idle core only where its pod has no quota.
					if waits := len(e.threads) > 1 || e != c.current; waits && idle > 0 && e.pod.quota == 0 {
						t.Fatalf("a thread of %s waits on core %d while %d cores idle", e.pod.spec.Name, i, idle)
					}
				}
			}
		}
	})
}

func TestQuotaHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		n := NewNode(s.Machine, s.Seed)
		for _, p := range s.Pods {
			p.Start, p.End = 0, 0
			n.Add(p)
		}
		before := make([]time.Duration, len(n.pods))
		for k := 1; k <= 20; k++ {
			n.Advance(time.Duration(k) * 100 * time.Millisecond)
			n.updateCounters()
			for i, p := range n.pods {
				used := p.Usage - before[i]
				before[i] = p.Usage
				// A window of one period touches two of the pod's.
				if most := 2*p.quota + 2*time.Duration(s.Machine.Cores)*bandwidthSlice; p.quota > 0 && used > most {
					t.Fatalf("%s used %v in 100 ms: its quota is %v", p.spec.Name, used, p.quota)
				}
			}
		}
		for i, p := range n.pods {
			if most := 21*p.quota + time.Duration(s.Machine.Cores)*bandwidthSlice; p.quota > 0 && before[i] > most {
				t.Fatalf("%s used %v in 2 s: its quota is %v a period", p.spec.Name, before[i], p.quota)
			}
		}
	})
}

func TestWeightsShare(t *testing.T) {
	spins := func(name string, request cpu.Milli, threads float64) PodSpec {
		return PodSpec{Name: name, Request: request, Spin: load.Constant(threads)}
	}
	for _, c := range []struct {
		name  string
		cores int
		pods  []PodSpec
		want  []float64 // cores
	}{
		{"as many threads as cores", 4, []PodSpec{spins("a", 500, 4), spins("b", 1000, 4), spins("c", 2500, 4)}, []float64{0.5, 1, 2.5}},
		{"few threads with a little", 16, []PodSpec{spins("a", 1500, 6), spins("b", 14500, 40)}, []float64{1.5, 14.5}},
		{"few threads with much", 16, []PodSpec{spins("a", 8000, 10), spins("b", 8000, 16)}, []float64{8, 8}},
		// What pods used on two cores with Linux 6.18: the mean of two runs of 10 s.
		{"one thread and three", 2, []PodSpec{spins("a", 500, 1), spins("b", 700, 3)}, []float64{0.81, 1.17}},
		{"one thread and four", 2, []PodSpec{spins("a", 200, 1), spins("b", 600, 4)}, []float64{0.48, 1.5}},
		{"more than a thread can use", 2, []PodSpec{spins("a", 1000, 1), spins("b", 300, 3)}, []float64{1, 0.99}},
	} {
		r := Run(Setup{Machine: Machine{Cores: c.cores}, Length: 20 * time.Second, Pods: c.pods}, noChanges{})
		for i, want := range c.want {
			if got := r.Pods[i].Usage.Seconds() / 20; math.Abs(got-want) > 0.05*want {
				t.Errorf("%s: %s used %.3f cores beside busy neighbours, want %.2f", c.name, c.pods[i].Name, got, want)
			}
		}
	}
}

func TestCappingTheBatchPodHelpsTheService(t *testing.T) {
	before := time.Hour
	for _, limit := range []cpu.Milli{0, 1200, 1000, 800, 600, 200} {
		service := load.Requests{Rate: load.Constant(60), ServiceTime: 10 * time.Millisecond}
		r := Run(Setup{Machine: Machine{Cores: 2}, Length: 120 * time.Second, WarmUp: 2 * time.Second, Seed: 1, Pods: []PodSpec{
			{Name: "service", Request: 125, Threads: 8, Requests: service},
			{Name: "batch", Request: 1000, Limit: limit, Spin: load.Constant(4)},
		}}, noChanges{})
		p99 := r.Pod("service").Latency.Quantile(0.99)
		if p99 >= before {
			t.Errorf("batch pod limited to %v: p99 %v, no better than %v", limit, p99, before)
		}
		before = p99
	}
}

// drawGaps draws gaps that do not overlap on a core and end within the length, and their sum.
func drawGaps(t *rapid.T, cores int, length time.Duration) (all []Gap, sum time.Duration) {
	ends := make([]time.Duration, cores)
	for at := time.Duration(0); ; {
		at += time.Duration(rapid.IntRange(0, 400).Draw(t, "between")) * time.Millisecond / 2
		g := Gap{rapid.IntRange(0, cores-1).Draw(t, "core"), at, time.Duration(rapid.IntRange(1, 300).Draw(t, "gap")) * time.Millisecond}
		g.At = max(at, ends[g.Core])
		if at = g.At; at+g.Duration > length {
			return rapid.Permutation(all).Draw(t, "order"), sum
		}
		ends[g.Core] = at + g.Duration
		sum += g.Duration
		all = append(all, g)
	}
}

// TestGapsAreLost: always busy cores lose exactly the gaps; a gap of a core that never wakes does
// not happen.
func TestGapsAreLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		busy := rapid.Bool().Draw(t, "busy")
		if busy {
			s.Pods = append(s.Pods, PodSpec{Name: "busy", Request: 100, Spin: load.Constant(2 * s.Machine.Cores)})
		}
		var gone time.Duration
		s.Machine.Gaps, gone = drawGaps(t, s.Machine.Cores, s.Length)
		r := Run(s, &randomLimits{})
		var used time.Duration
		for _, p := range r.Pods {
			used += p.Usage
		}
		total := time.Duration(s.Machine.Cores) * s.Length
		if given := used + r.IdleTime; given < total-gone || given > total || busy && used != total-gone {
			t.Fatalf("%v used and %v idle of %v, of which %v were lost", used, r.IdleTime, total, gone)
		}
	})
}

// TestGapsDelayThreads: the current thread continues after a gap, and a gap of an idle core starts
// when the core wakes.
func TestGapsDelayThreads(t *testing.T) {
	const ms = time.Millisecond
	for _, all := range [][]Gap{
		{{0, 1004 * ms, 50 * ms}},
		{{0, 700 * ms, 50 * ms}},
		{{0, 900 * ms, 20 * ms}, {0, 700 * ms, 50 * ms}, {0, -20 * ms, 10 * ms}},
	} {
		r := Run(Setup{
			Machine: Machine{Cores: 1, Gaps: all}, Length: 1900 * time.Millisecond,
			Pods: []PodSpec{{Name: "rare", Request: 100, Requests: load.Requests{Rate: load.Constant(1), ServiceTime: 10 * time.Millisecond, EvenlySpaced: true}}},
		}, noChanges{})
		if p := r.Pod("rare"); p.Served != 1 || p.Latency.Max != 60*time.Millisecond || p.Usage != 10*time.Millisecond {
			t.Errorf("gaps %v: %d requests served in up to %v with %v of CPU, want one that waits 50 ms and uses 10 ms", all, p.Served, p.Latency.Max, p.Usage)
		}
	}
}

// TestThrottlingIsCountedAsTheKernelDoes: a batch pod with a quota of one core and four threads on
// two cores runs for the first half of each period, and is throttled on both cores for the second.
func TestThrottlingIsCountedAsTheKernelDoes(t *testing.T) {
	s := Start(Setup{Machine: Machine{Cores: 2}, Length: 10 * time.Second, WarmUp: time.Second, Pods: []PodSpec{
		{Name: "batch", Request: 500, Limit: 1000, Spin: load.Constant(4)},
	}}, noChanges{})
	s.RunUntil(10 * time.Second)
	r := s.Result()
	batch := r.Pod("batch")
	if batch.Periods != 90 || batch.Throttled != 90 || batch.ThrottledIdle != 90 {
		t.Errorf("%d periods, %d throttled, %d of them on an idle node: want 90 of each in 9 s", batch.Periods, batch.Throttled, batch.ThrottledIdle)
	}
	if got, want := batch.ThrottledTime, 9*time.Second; got < want-100*time.Millisecond || got > want+100*time.Millisecond {
		t.Errorf("throttled for %v: want 50 ms on each of two cores in each of 90 periods, %v", got, want)
	}
	if got := s.node.pods[0].pressure.total; got < 9900*time.Millisecond || got > 10*time.Second {
		t.Errorf("pressure %v: want all of 10 s, as four threads on two cores never all run", got)
	}
}

// TestIdlePeriodsAreNotCounted: an idle group's timer stops after the period in which nothing ran.
func TestIdlePeriodsAreNotCounted(t *testing.T) {
	r := Run(Setup{Machine: Machine{Cores: 2}, Length: 100 * time.Second, Pods: []PodSpec{
		{Name: "rare", Request: 100, Limit: 1000, Requests: load.Requests{Rate: load.Constant(1), ServiceTime: 10 * time.Millisecond, EvenlySpaced: true}},
	}}, noChanges{})
	if got := r.Pod("rare").Periods; got < 190 || got > 210 {
		t.Errorf("%d periods for one short request a second over 100 s: want two for each", got)
	}
}

// TestLostRequestsAgeNoMore: the unfinished requests of a pod that ends count with their age at
// that time.
func TestLostRequestsAgeNoMore(t *testing.T) {
	busy := load.Requests{Rate: load.Constant(100), ServiceTime: 50 * time.Millisecond} // five times what it can do
	spec := func(name string, end time.Duration) PodSpec {
		return PodSpec{Name: name, Request: 1000, Limit: 1000, Requests: busy, End: end}
	}
	r := Run(Setup{
		Machine: Machine{Cores: 3}, Length: 60 * time.Second, WarmUp: 20 * time.Second, Seed: 1,
		Pods: []PodSpec{spec("before", 10*time.Second), spec("during", 30*time.Second)},
	}, noChanges{})
	before, during := r.Pod("before"), r.Pod("during")
	if before.Latency.Count != 0 || before.Backlog != 0 {
		t.Errorf("a pod that ended before the warm-up did has %d requests and a backlog of %v", before.Latency.Count, before.Backlog)
	}
	if most := during.Latency.Max; most < 20*time.Second || most > 30*time.Second || during.Backlog != 0 {
		t.Errorf("the pod lost requests after %v at most and has a backlog of %v: want 20 s to the 30 s that it ran, and none", most, during.Backlog)
	}
	if done := during.Latency.Count; done < during.Served+500 {
		t.Errorf("%d requests were done, and %d counted: want those in its queue, too", during.Served, done)
	}
}

// TestGapsCutNoSlice: after a gap the current entity completes its slice, even if another one
// waits.
func TestGapsCutNoSlice(t *testing.T) {
	for at := 100300 * time.Microsecond; at < 140*time.Millisecond; at += time.Millisecond {
		g := Gap{0, at, 50 * time.Millisecond}
		n := NewNode(Machine{Cores: 1, Slice: 20 * time.Millisecond, Gaps: []Gap{g}}, 1)
		for _, name := range []string{"a", "b"} {
			n.Add(PodSpec{Name: name, Request: 100, Spin: load.Constant(1)})
		}
		n.Advance(at)
		ran, over := n.cores[0].current, n.cores[0].current.vruntime >= n.cores[0].current.deadline
		n.Advance(at + g.Duration)
		if n.Advance(at + g.Duration + time.Microsecond); n.cores[0].current != ran && !over {
			t.Errorf("%s ran as the gap at %v began, and %s as it ended", ran.pod.spec.Name, at, n.cores[0].current.pod.spec.Name)
		}
	}
}

// resizing sets limits of the only pod, one in each second.
type resizing struct {
	delay  time.Duration
	limits []cpu.Milli
}

func (p *resizing) Decide(r *Snapshot) (actions []Action, next time.Duration) {
	for pod := range r.Managed() {
		if len(p.limits) > 0 {
			actions, p.limits = append(actions, Action{Pod: pod.ID, Limit: p.limits[0], Delay: p.delay}), p.limits[1:]
		}
	}
	return actions, r.Now + time.Second
}

// TestResizesCost: each resize takes its time outside of pods. A cgroup that a policy writes itself, and a limit that stays as
// it is, take none.
func TestResizesCost(t *testing.T) {
	for name, c := range map[string]struct {
		policy resizing
		want   time.Duration
	}{
		"two resizes":         {resizing{10 * time.Millisecond, []cpu.Milli{600, 700}}, 400 * time.Millisecond},
		"one, and no change":  {resizing{10 * time.Millisecond, []cpu.Milli{600, 600, 600}}, 200 * time.Millisecond},
		"the cgroups written": {resizing{DirectDelay, []cpu.Milli{600, 700}}, 0},
	} {
		result := Run(Setup{
			Machine: Machine{Cores: 2}, Length: 10 * time.Second, Seed: 1, ResizeCost: 200 * time.Millisecond,
			Pods: []PodSpec{{Name: "system", System: true}, {Name: "pod", Request: 100, Limit: 500}},
		}, &c.policy)
		if got := result.Pod("system").Usage; got < c.want || got > c.want+time.Millisecond {
			t.Errorf("%s: %v outside of pods, want %v", name, got, c.want)
		}
	}
}

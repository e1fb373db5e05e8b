package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// A pod with request 500m and limit 1000m uses 1 core. Buckets begin at 0.2 x (1.05^n - 1): 1 core
// lies in n = 36, as ln 6 / ln 1.05 = 36.7, which ends at 0.2 x (6.0814 - 1) = 1.01628. Target =
// 1.01628 x 1.15 = 1.16872: 1168m. Samples come at 60 s, 120 s and so on, so at 60 s x k the
// confidence is min((k - 1)/1440, k/1440) = (k - 1)/1440, and the lower bound 1168.72 x (1 +
// 1.44/(k - 1))^-2: 196m at k = 2, 395m at 3, 533m at 4, which is the first above 500m. Limit =
// 1168 x 1000/500.
func TestVPAIncreasesWithConfidence(t *testing.T) {
	v := NewVPA(0)
	w := simtest.NewNode(8, sim.PodSpec{Request: 500, Limit: 1000})
	for w.Now < 4*time.Minute {
		if actions, _ := v.Decide(&w.Snapshot); len(actions) > 0 {
			t.Fatalf("changed at %v: %v", w.Now, actions)
		}
		w.Advance(15*time.Second, 1)
	}
	actions, _ := v.Decide(&w.Snapshot)
	want := sim.Action{Pod: 0, Request: 1168, Limit: 2336, Delay: sim.ResizeDelay}
	if len(actions) != 1 || actions[0] != want {
		t.Fatalf("got %v at 4 min, want %v", actions, want)
	}
	if got := v.models["/pod/pod-0"].bounds.lower; got != 533 {
		t.Errorf("lower bound %v, want 533m", got)
	}
}

// Weights of 93 % at 1 core, 4 % at 4 cores and 3 % at 8: p50 and p90 lie at 1 core, p95 at 4. With
// the margin the ends of their buckets are 1168.72m and 4743.45m. In half a day the confidence is
// 1/2, so the bounds are 1168.72 x 1.002^-2 and 4743.45 x 3; with 360 samples in two days it is
// 1/4, and they are 1168.72 x 1.004^-2 and 4743.45 x 5. No pod is recommended less than 25m.
func TestVPABoundsByHand(t *testing.T) {
	for _, c := range []struct {
		use     float64
		last    time.Duration
		samples int
		want    vpaBounds
	}{
		{1, 12 * time.Hour, 1440, vpaBounds{1164, 1168, 14230}},
		{1, 48 * time.Hour, 360, vpaBounds{1159, 1168, 23717}},
		{0, 24 * time.Hour, 1440, vpaBounds{25, 25, 25}},
	} {
		m := &vpaModel{last: c.last, samples: c.samples}
		m.use.add(c.use, 0.93, 0)
		m.use.add(4*c.use, 0.04, 0)
		m.use.add(8*c.use, 0.03, 0)
		m.recommend()
		if m.bounds != c.want {
			t.Errorf("use %v, %d samples in %v: %v, want %v", c.use, c.samples, c.last, m.bounds, c.want)
		}
	}
}

// The bounds are 400m and 2000m, the target 1100m. Within the bounds a pod of 12 h is changed when
// it is off by a tenth of its request. For one that is there from the beginning its history counts.
func TestVPAUpdatesWhatIsOutOfBoundsOrOld(t *testing.T) {
	for _, c := range []struct {
		request           cpu.Milli
		age, now, history time.Duration
		changes           bool
	}{
		{399, time.Hour, 99 * time.Hour, 0, true},
		{400, time.Hour, 99 * time.Hour, 0, false},
		{2000, time.Hour, 99 * time.Hour, 0, false},
		{2001, time.Hour, 99 * time.Hour, 0, true},
		{1000, 12 * time.Hour, 99 * time.Hour, 0, true},
		{1001, 12 * time.Hour, 99 * time.Hour, 0, false},
		{1000, 11 * time.Hour, 99 * time.Hour, 0, false},
		{1000, time.Hour, time.Hour, 11 * time.Hour, true},
		{1000, time.Hour, 2 * time.Hour, 11 * time.Hour, false},
	} {
		v := NewVPA(c.history)
		w := simtest.NewNode(16, sim.PodSpec{Request: c.request, Limit: 2 * c.request})
		w.Now, w.Pods[0].Age = c.now, c.age
		v.models["/pod/pod-0"] = &vpaModel{known: true, bounds: vpaBounds{400, 1100, 2000}}
		if actions := v.update(&w.Snapshot); len(actions) > 0 != c.changes {
			t.Errorf("request %v, age %v at %v, history %v: %v", c.request, c.age, c.now, c.history, actions)
		}
	}
}

// The third and the second are to be raised, by 1 and 0.25 of their requests, the fourth and the
// first lowered, by 0.9 and 0.8. On a node that is too small they can only be lowered.
func TestVPARaisesFirst(t *testing.T) {
	for allocatable, want := range map[cpu.Milli][]int{99000: {2, 1, 3, 0}, 0: {3, 0}} {
		v := NewVPA(0)
		w := simtest.NewNode(16, sim.PodSpec{Request: 5000, Limit: 6000}, sim.PodSpec{Request: 800, Limit: 900}, sim.PodSpec{Request: 500, Limit: 600}, sim.PodSpec{Request: 10000, Limit: 11000})
		w.Allocatable = allocatable
		for i := range w.Pods {
			v.models[fmt.Sprint("/pod/pod-", i)] = &vpaModel{known: true, bounds: vpaBounds{1000, 1000, 1000}}
		}
		var got []int
		for _, a := range v.update(&w.Snapshot) {
			got = append(got, a.Pod)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v allocatable: pods %v are changed, want %v", allocatable, got, want)
		}
	}
}

// The limit keeps its proportion, 5/3 here, and stays above the request.
func TestVPAScalesLimits(t *testing.T) {
	v := NewVPA(0)
	for _, c := range []struct{ request, limit, to, want cpu.Milli }{{300, 500, 1000, 1667}, {1000, 1001, 25, 26}} {
		spec := sim.PodSpec{Request: c.request, Limit: c.limit}
		if got := v.resize(sim.PodSnapshot{Spec: &spec}, c.to).Limit; got != c.want {
			t.Errorf("%v of %v, request %v: limit %v, want %v", c.limit, c.request, c.to, got, c.want)
		}
	}
}

// The load is the mean of a minute. Rates of 10 and 30 requests of 10 ms make 0.1 and 0.3 cores,
// half a minute each, and spinning is in whole threads.
func TestVPADeclaredUse(t *testing.T) {
	at := 40 * time.Second
	for want, s := range map[float64]sim.PodSpec{
		0.2: {Requests: load.Requests{Rate: load.Step{Before: 10, After: 30, Time: at}, ServiceTime: 10 * time.Millisecond}},
		2:   {Spin: load.Step{Before: 1.4, After: 2.7, Time: at}},
	} {
		if got := declaredUse(&s, 10*time.Second); !simtest.AlmostEqual(got, want) {
			t.Errorf("%v cores, want %v", got, want)
		}
	}
}

// After a run of the updater pods come: a replica begins with what is known of its workload, and
// one of a workload with a history of its own with that, which is no more than its limit: 1168m
// each. One that opted out and one without a request are left alone. Without a history only the
// workload that ran is known.
func TestVPAAdmitsPods(t *testing.T) {
	web := sim.PodSpec{Workload: "web", Request: 200, Limit: 1000, Spin: load.Constant(1)}
	out, asks, other := web, web, sim.PodSpec{Workload: "other", Request: 200, Limit: 1000, Spin: load.Step{Before: 4, Time: 95 * time.Second}}
	out.OptOut, asks.Request, asks.Workload = true, 0, "asks"
	for history, want := range map[time.Duration][]int{24 * time.Hour: {1, 4}, 0: {1}} {
		v := NewVPA(history)
		w := simtest.NewNode(16, web, web, out, asks, other)
		coming := w.Pods[1:]
		coming[3].Age = 30 * time.Second
		w.Pods = w.Pods[:1:1]
		if _, next := v.Decide(&w.Snapshot); next != time.Second {
			t.Errorf("next call at %v, want after a look in 1 s", next)
		}
		if history > 0 {
			m := v.models["/web"]
			if m.first != -history || m.last != -time.Minute || m.samples != 1440 {
				t.Errorf("%d samples from %v to %v", m.samples, m.first, m.last)
			}
		}
		w.Advance(59500*time.Millisecond, 1)
		if _, next := v.Decide(&w.Snapshot); next != time.Minute {
			t.Errorf("next call at %v, want the updater's at 1m", next)
		}
		w.Advance(500*time.Millisecond, 1)
		v.Decide(&w.Snapshot)
		w.Advance(time.Second, 1)
		w.Pods = append(w.Pods, coming...)
		actions, _ := v.Decide(&w.Snapshot)
		var got []int
		for _, a := range actions {
			got = append(got, a.Pod)
			if a.Request != 1168 || a.Limit != 5840 {
				t.Errorf("pod %d begins with %v of %v, want 1168m of 5840m", a.Pod, a.Request, a.Limit)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("history %v: pods %v are changed, want %v", history, got, want)
		}
	}
}

// Both want 1168m, 868m and 968m more. The node has room for so much in all, 500m are taken: the
// one that is off the most (968/200) is raised where it fits, and the other one waits; else that
// one is raised where it fits.
func TestVPADefersWhatDoesNotFit(t *testing.T) {
	for allocatable, want := range map[cpu.Milli][]sim.Action{
		1500: {{Pod: 1, Request: 1168, Limit: 8760, Delay: sim.ResizeDelay}},
		1468: {{Pod: 1, Request: 1168, Limit: 8760, Delay: sim.ResizeDelay}},
		1467: {{Pod: 0, Request: 1168, Limit: 5840, Delay: sim.ResizeDelay}},
		1300: nil,
	} {
		w := simtest.NewNode(16, sim.PodSpec{Request: 300, Limit: 1500, Spin: load.Constant(1)}, sim.PodSpec{Request: 200, Limit: 1500, Spin: load.Constant(1)})
		w.Allocatable = allocatable
		if actions, _ := NewVPA(24 * time.Hour).Decide(&w.Snapshot); !slices.Equal(actions, want) {
			t.Errorf("%v allocatable: %v, want %v", allocatable, actions, want)
		}
	}
}

func TestHistogramForgetsByHalf(t *testing.T) {
	var h histogram
	const days = 20*(maxExponent+1) + 1 // the last one moves the reference
	for day := range days {
		h.add(1, 0.1, time.Duration(day)*24*time.Hour)
	}
	// All samples but the last weigh 1/2 + 1/4 + ... of it: 1. One of three times the weight at 2
	// cores makes p50 that of 2 cores, and p35 not.
	h.add(2, 0.3, (days-1)*24*time.Hour)
	if low, high := h.percentile(0.35), h.percentile(0.5); low > 1.05 || high < 2 {
		t.Errorf("p35 %v and p50 %v, want just above 1 and 2", low, high)
	}
}

// The first bucket ends at 0.01 and the second at 0.0205. What weighs less than 1e-4 does not
// count.
func TestHistogramPercentiles(t *testing.T) {
	for name, c := range map[string]struct {
		weights     []float64
		share, want float64
	}{
		"nothing":             {nil, 0.5, 0},
		"nothing that counts": {[]float64{0.9e-4}, 0.5, 0},
		"one bucket":          {[]float64{1}, 0.9, 0.01},
		"half":                {[]float64{1, 1}, 0.5, 0.01},
		"more than half":      {[]float64{1, 1}, 0.51, 0.0205},
		"all that counts":     {[]float64{1, 0.9e-4}, 1, 0.01},
		"all, just enough":    {[]float64{1, 1e-4}, 1, 0.0205},
		"least that counts":   {[]float64{0.9e-4, 1}, 0, 0.0205},
		"least, just enough":  {[]float64{1e-4, 1}, 0, 0.01},
	} {
		h := histogram{weights: c.weights}
		for _, w := range c.weights {
			h.total += w
		}
		if got := h.percentile(c.share); !simtest.AlmostEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The second bucket begins at 0.01. All that is above the most shares the last one. One sample a
// half-life before counts half.
func TestHistogramBuckets(t *testing.T) {
	var h histogram
	for cores, want := range map[float64]int{0.009: 0, 0.01: 1, 0.0204: 1, 0.0206: 2, 2000: bucketOf(1000)} {
		if got := bucketOf(cores); got != want {
			t.Errorf("%v cores: bucket %d, want %d", cores, got, want)
		}
	}
	if h.steady(1, 0.1, 1, 24*time.Hour, 48*time.Hour); !simtest.AlmostEqual(h.total, 0.05) {
		t.Errorf("weight %v, want 0.05", h.total)
	}
}

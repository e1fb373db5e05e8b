package sense

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sample is one pod of one container after the given time.
func sample(at time.Duration, id string, s kernel.Stat) kernel.Sample {
	g := kernel.Group{ID: id, Found: true, At: start.Add(at), Stat: s,
		Quota:    kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond},
		Pressure: kernel.Pressure{Known: true, Some: at / 4}}
	return kernel.Sample{
		Node: kernel.NodeSample{At: start.Add(at), Usage: kernel.KnownTotal(at), Kubepods: kernel.KnownTotal(at / 2)},
		Pods: []kernel.PodSample{{Pod: "p", Containers: []kernel.Group{g}}},
	}
}

func TestRates(t *testing.T) {
	before := sample(0, "c", kernel.Stat{Usage: time.Second, Periods: 100, Throttled: 10})
	after := sample(2*time.Second, "c",
		kernel.Stat{Usage: 2 * time.Second, Periods: 120, Throttled: 15, ThrottledTime: time.Second})
	r := Compare(before, after, 3*time.Second)
	got := r.Pods[0].Containers[0]
	want := Rate{Validity: Valid, Elapsed: 2 * time.Second, Usage: 500, ThrottleRatio: 0.25,
		Pressure: Ratio{true, 0.25}, Quota: 500, QuotaKnown: true, MinLimit: 10}
	if got != want {
		t.Errorf("rate = %+v, want %+v", got, want)
	}
	for quota, known := range map[kernel.Quota]bool{{}: false, {Period: 100 * time.Millisecond}: true} {
		after.Pods[0].Containers[0].Quota = quota
		if got := Compare(before, after, 3*time.Second).Pods[0].Containers[0]; got.Quota != 0 || got.QuotaKnown != known ||
			got.MinLimit > 0 != known {
			t.Errorf("quota %+v: %+v, want none, and known %v", quota, got, known)
		}
	}
	if n := r.Node; n.Usage != 1000 || !n.UsageKnown || n.Kubepods != 500 || !n.KubepodsKnown {
		t.Errorf("node = %+v, want 1000m and 500m", r.Node)
	}
}

func TestStalls(t *testing.T) {
	known := func(some, full time.Duration) kernel.Pressure {
		return kernel.Pressure{Known: true, Some: some, Full: full}
	}
	for name, c := range map[string]struct {
		before, after *kernel.Stalls
		memory, io    Ratio
	}{
		"half of the time": {
			&kernel.Stalls{Memory: known(9, 0), IO: known(9, 9)},
			&kernel.Stalls{Memory: known(9+ms(2000), ms(1000)), IO: known(9, 9)}, Ratio{true, 0.5}, Ratio{true, 0},
		},
		"some is no stall":   {&kernel.Stalls{IO: known(0, 0)}, &kernel.Stalls{IO: known(ms(2000), 0)}, Ratio{}, Ratio{true, 0}},
		"a little more":      {&kernel.Stalls{IO: known(0, 0)}, &kernel.Stalls{IO: known(0, ms(2050))}, Ratio{}, Ratio{true, 1}},
		"it decreased":       {&kernel.Stalls{Memory: known(0, ms(5))}, &kernel.Stalls{Memory: known(0, ms(4))}, Ratio{}, Ratio{}},
		"hidden before":      {&kernel.Stalls{}, &kernel.Stalls{Memory: known(0, ms(5))}, Ratio{}, Ratio{}},
		"hidden since":       {&kernel.Stalls{Memory: known(0, ms(5))}, &kernel.Stalls{}, Ratio{}, Ratio{}},
		"not read before":    {nil, &kernel.Stalls{Memory: known(0, ms(5))}, Ratio{}, Ratio{}},
		"not read any more":  {&kernel.Stalls{Memory: known(0, ms(5))}, nil, Ratio{}, Ratio{}},
		"not read, as usual": {nil, nil, Ratio{}, Ratio{}},
	} {
		before, after := sample(0, "c", kernel.Stat{}), sample(2*time.Second, "c", kernel.Stat{})
		before.Pods[0].Containers[0].Stalls, after.Pods[0].Containers[0].Stalls = c.before, c.after
		got := Compare(before, after, 3*time.Second).Pods[0].Containers[0]
		var stalls Stalls
		if got.Stalls != nil {
			stalls = *got.Stalls
		}
		read := c.before != nil && c.after != nil
		if got.Validity != Valid || (got.Stalls != nil) != read || stalls != (Stalls{c.memory, c.io}) {
			t.Errorf("%s: %+v, stalls %+v, want memory %v and IO %v", name, got, stalls, c.memory, c.io)
		}
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestMinLimitIsAccepted(t *testing.T) {
	for q, want := range map[kernel.Quota]cpu.Milli{
		{Period: ms(100)}:                  10,
		{Period: ms(20)}:                   50,
		{Period: ms(10)}:                   100,
		{Period: ms(5)}:                    200,
		{Period: ms(1)}:                    1000,
		{Period: ms(1000)}:                 10, // 1m, in whole quanta
		{Period: 33333 * time.Microsecond}: 40, // 30.0003m
		{Period: ms(100), Burst: ms(20)}:   200,
		{Period: ms(100), Burst: 20001 * time.Microsecond}: 210,
		{Period: ms(10), Burst: 500 * time.Microsecond}:    100, // below the least quota of a millisecond
		{Limit: ms(50), Period: ms(100), Burst: ms(50)}:    500,
		{Period: time.Microsecond, Burst: math.MaxInt64}:   0, // no kernel has such a burst
	} {
		if got := minLimit(q); got != want {
			t.Errorf("%+v: %v, want %v", q, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		q := kernel.Quota{
			Period: time.Duration(rapid.Int64Range(1_000, 1_000_000).Draw(t, "period")) * time.Microsecond,
			Burst:  time.Duration(rapid.Int64Range(0, 5_000_000).Draw(t, "burst")) * time.Microsecond,
		}
		quota := func(limit cpu.Milli) time.Duration { // as the kubelet sets it
			return time.Duration(int64(limit)*q.Period.Microseconds()/1000) * time.Microsecond
		}
		l := minLimit(q)
		if l%cpu.Quantum != 0 || quota(l) < q.Min() || quota(l-cpu.Quantum) >= q.Min() {
			t.Fatalf("%+v: minimum %v, so a quota of %v; want the first multiple of %v from %v on", q, l, quota(l), cpu.Quantum,
				q.Min())
		}
	})
}

func TestUnknownIsNotZero(t *testing.T) {
	podsOnly := NodeRates{Validity: Valid, Elapsed: time.Second, Kubepods: 500, KubepodsKnown: true}
	usageOnly := NodeRates{Validity: Valid, Elapsed: time.Second, Usage: 1000, UsageKnown: true}
	both := podsOnly
	both.Usage, both.UsageKnown = 1000, true
	unread := func(n *kernel.NodeSample) { n.Usage = kernel.Total{} }
	noPods := func(n *kernel.NodeSample) { n.Kubepods = kernel.Total{} }
	none := func(*kernel.NodeSample) {}
	for name, c := range map[string]struct {
		before, after func(*kernel.NodeSample)
		want          NodeRates
	}{
		"unread at first": {unread, none, podsOnly},
		"unread at last":  {none, unread, podsOnly},
		"never read":      {unread, unread, podsOnly},
		"pods unread":     {none, noPods, usageOnly},
		"both read":       {none, none, both},
	} {
		before, after := sample(time.Second, "c", kernel.Stat{}).Node, sample(2*time.Second, "c", kernel.Stat{}).Node
		before.Pressure, after.Pressure = kernel.Pressure{}, kernel.Pressure{}
		c.before(&before)
		c.after(&after)
		if got := nodeRates(before, after, 3*time.Second); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestImpossibleIdleTimeIsUnknown(t *testing.T) {
	at := func(after, idle time.Duration) kernel.NodeSample {
		return kernel.NodeSample{At: start.Add(after), Idle: kernel.KnownTotal(idle)}
	}
	unread := at(time.Second, time.Second)
	unread.Idle.Known = false
	for name, c := range map[string]struct {
		before, after kernel.NodeSample
		want          Idle
	}{
		"half of two cores":        {at(0, time.Second), at(time.Second, 2*time.Second), Idle{true, 1000}},
		"none":                     {at(0, time.Second), at(time.Second, time.Second), Idle{true, 0}},
		"a tick more than all":     {at(0, 0), at(200*time.Millisecond, 410*time.Millisecond), Idle{true, 2050}},
		"far more than all":        {at(0, 0), at(time.Second, 3*time.Second), Idle{}},
		"it decreased":             {at(0, 2*time.Second), at(time.Second, time.Second), Idle{}},
		"the samples are far off":  {at(0, 0), at(4*time.Second, time.Second), Idle{}},
		"no time passed":           {at(0, 0), at(0, 0), Idle{}},
		"it was not read":          {at(0, 0), unread, Idle{}},
		"there is no first sample": {kernel.NodeSample{Idle: kernel.KnownTotal(0)}, at(time.Second, time.Second), Idle{}},
	} {
		if got := IdleBetween(c.before, c.after, 3*time.Second, 2000); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestResetYieldsNoRate(t *testing.T) {
	before := sample(0, "c", kernel.Stat{Usage: time.Second, Periods: 100, Throttled: 10})
	for name, s := range map[string]kernel.Stat{
		"usage decreased":     {Usage: 0, Periods: 110, Throttled: 10},
		"usage jumped":        {Usage: 1 << 62, Periods: 110, Throttled: 10},
		"usage overflowed":    {Usage: math.MinInt64, Periods: 110, Throttled: 10},
		"periods decreased":   {Usage: 2 * time.Second, Periods: 0, Throttled: 10},
		"throttled decreased": {Usage: 2 * time.Second, Periods: 110, Throttled: 0},
	} {
		got := Compare(before, sample(time.Second, "c", s), 3*time.Second).Pods[0].Containers[0]
		if got != (Rate{Validity: Reset}) {
			t.Errorf("%s: %+v, want Reset alone", name, got)
		}
	}
}

func TestGapYieldsNoRate(t *testing.T) {
	for _, at := range []time.Duration{0, -time.Second, 4 * time.Second, time.Hour} {
		r := Compare(sample(0, "c", kernel.Stat{}), sample(at, "c", kernel.Stat{Usage: time.Second}), 3*time.Second)
		if got := r.Pods[0].Containers[0].Validity; got != Gap {
			t.Errorf("%v later: %v, want Gap", at, got)
		}
		if r.Node.Validity != Gap {
			t.Errorf("%v later: node %v, want Gap", at, r.Node.Validity)
		}
	}
}

func TestNewContainersHaveNoRate(t *testing.T) {
	r := Compare(sample(0, "old", kernel.Stat{Usage: time.Hour}),
		sample(time.Second, "new", kernel.Stat{Usage: time.Second}), 3*time.Second)
	if got := r.Pods[0].Containers[0]; got != (Rate{Validity: NoEarlierSample}) {
		t.Errorf("a new container: %+v, want NoEarlierSample alone", got)
	}
	after := sample(time.Second, "old", kernel.Stat{})
	after.Pods[0].Containers[0].Found = false
	if got := Compare(sample(0, "old", kernel.Stat{}), after, 3*time.Second).Pods[0].Containers[0].Validity; got != Missing {
		t.Errorf("a removed container: %v, want Missing", got)
	}
	if got := Compare(kernel.Sample{}, after, 3*time.Second).Node.Validity; got != NoEarlierSample {
		t.Errorf("the first node sample: %v, want NoEarlierSample", got)
	}
}

func TestRatiosAreBounded(t *testing.T) {
	stat := rapid.Custom(func(t *rapid.T) kernel.Stat {
		return kernel.Stat{
			Usage:         time.Duration(rapid.Int64().Draw(t, "usage")),
			Periods:       rapid.Uint64().Draw(t, "periods"),
			Throttled:     rapid.Uint64().Draw(t, "throttled"),
			ThrottledTime: time.Duration(rapid.Int64().Draw(t, "time")),
		}
	})
	pressure := rapid.Custom(func(t *rapid.T) kernel.Pressure {
		return kernel.Pressure{
			Known: rapid.Bool().Draw(t, "known"),
			Full:  time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "full")),
		}
	})
	stalls := rapid.Custom(func(t *rapid.T) *kernel.Stalls {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &kernel.Stalls{Memory: pressure.Draw(t, "memory"), IO: pressure.Draw(t, "io")}
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := sample(0, "c", stat.Draw(t, "before")), sample(time.Second, "c", stat.Draw(t, "after"))
		before.Pods[0].Containers[0].Stalls, after.Pods[0].Containers[0].Stalls = stalls.Draw(t, "before"), stalls.Draw(
			t,
			"after",
		)
		r := Compare(before, after, 3*time.Second).Pods[0].Containers[0]
		if r.Stalls == nil {
			r.Stalls = new(Stalls)
		}
		for _, s := range []Ratio{r.Stalls.Memory, r.Stalls.IO} {
			if !(s.Value >= 0 && s.Value <= 1) || !s.Known && s.Value != 0 {
				t.Fatalf("ratio %+v is out of bounds", s)
			}
		}
		if !(r.ThrottleRatio >= 0 && r.ThrottleRatio <= 1) || r.Usage < 0 {
			t.Fatalf("rate %+v is out of bounds", r)
		}
		if r.Validity != Valid && (*r.Stalls != Stalls{} || r != Rate{Validity: r.Validity, Stalls: r.Stalls}) {
			t.Fatalf("%v has figures: %+v", r.Validity, r)
		}
	})
}

// TestPressureHasItsOwnTime: a pressure that was read 10 s ago and now is a share of these 10 s, whatever
// the time between the samples; one that was not read since the earlier sample is unread.
func TestPressureHasItsOwnTime(t *testing.T) {
	of := func(some, read time.Duration, at time.Duration) kernel.Sample {
		s := sample(at, "c", kernel.Stat{Usage: at})
		g := &s.Pods[0].Containers[0]
		g.Pressure = kernel.Pressure{Known: true, Some: some}
		if read != at {
			g.PressureAt = start.Add(read)
		}
		return s
	}
	hidden := of(0, ms(9000), ms(9000))
	hidden.Pods[0].Containers[0].Pressure = kernel.Pressure{}
	for name, c := range map[string]struct {
		before, after kernel.Sample
		want          Ratio
		unread        bool
	}{
		"read in both":                {of(ms(100), ms(9000), ms(9000)), of(ms(600), ms(10000), ms(10000)), Ratio{true, 0.5}, false},
		"read after 10 s":             {of(ms(100), 0, ms(9000)), of(ms(2100), ms(10000), ms(10000)), Ratio{true, 0.2}, false},
		"not read since":              {of(ms(100), 0, ms(9000)), of(ms(100), 0, ms(10000)), Ratio{}, true},
		"not read in the last second": {of(ms(100), ms(9000), ms(9000)), of(ms(100), ms(9000), ms(10000)), Ratio{}, true},
		"hidden":                      {of(ms(100), ms(8000), ms(8000)), hidden, Ratio{}, false},
		"shown again":                 {hidden, of(ms(100), ms(10000), ms(10000)), Ratio{}, false},
	} {
		r := Compare(c.before, c.after, 3*time.Second).Pods[0].Containers[0]
		if r.Validity != Valid || r.Pressure != c.want || r.PressureUnread != c.unread {
			t.Errorf("%s: %+v, unread %v; want %+v, %v", name, r.Pressure, r.PressureUnread, c.want, c.unread)
		}
	}
}

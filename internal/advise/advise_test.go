package advise

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/internal/testing/must"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// second is what a container does in a second.
type second struct {
	usage     cpu.Milli
	throttled uint64 // of 10 periods
}

// recorded is a node with one pod, shop/cart-1, whose container does this, second by second.
func recorded(t rapid.TB, request, limit cpu.Milli, seconds []second) *record.Recording {
	r := record.NewRecorder(record.Limits{Keep: time.Hour, Bytes: 1 << 30})
	cfg := round.DefaultConfig()
	c := demand.Container{Name: "app", ID: "id", Request: request, Declared: limit, Limit: limit}.Within(0, 8000)
	pods := []round.PodInput{{Pod: demand.Pod{UID: "uid", Budget: 500, Containers: []demand.Container{c}}}}
	var used time.Duration
	var periods, throttled uint64
	for i, s := range append([]second{{}}, seconds...) {
		now := noon.Add(time.Duration(i) * time.Second)
		used += time.Duration(s.usage.Cores() * float64(time.Second))
		periods, throttled = periods+10, throttled+s.throttled
		in := round.Input{Now: now, Node: round.Node{Capacity: 8000, Allocatable: 8000}, Pods: pods}
		in.Sample.Node = kernel.NodeSample{At: now}
		in.Sample.Pods = []kernel.PodSample{{Pod: "uid", Containers: []kernel.Group{{
			ID: "id", Found: true, At: now, Stat: kernel.Stat{Usage: used, Periods: periods, Throttled: throttled},
		}}}}
		r.Begin(now, cfg, &round.State{})
		r.Round(in, []record.Name{{Namespace: "shop", Name: "cart-1"}}, &round.Output{})
	}
	var b bytes.Buffer
	must.Succeed(t, r.WriteTo(&b, record.About{Node: "node-1"}, 0))
	rec, err := record.Open(&b)
	must.Succeed(t, err)
	return rec
}

func cart(n record.Name) (string, bool) { return "Deployment/cart", n.Name == "cart-1" }

// advised is the advice for the only container.
func advised(t rapid.TB, cfg Config, recs ...*record.Recording) Advice {
	var s Seen
	for _, rec := range recs {
		must.Succeed(t, s.Add(rec, cart))
	}
	got := s.Advise(cfg)
	if len(got) != 1 || got[0].Key != (Key{"shop", "Deployment/cart", "app"}) {
		t.Fatalf("%+v", got)
	}
	return got[0]
}

// exact has no headroom and takes any time.
func exact(request, limit float64) Config {
	return Config{RequestPercentile: request, LimitPercentile: limit}
}

func steady(n int, s second) []second {
	all := make([]second, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// TestPercentiles: of 100 seconds, 90 at 100m, 9 at 400m and one at 700m. The values in the fifths of the time tell
// that the load came late.
func TestPercentiles(t *testing.T) {
	load := append(append(steady(90, second{usage: 100}), steady(9, second{usage: 400})...), second{usage: 700})
	rec := recorded(t, 500, 1000, load)
	a := advised(t, exact(90, 99), rec)
	if *a.Advised != (Amounts{100, 400}) || a.Declared != (Amounts{500, 1000}) || a.Covered != 100*time.Second || a.Hindered != 0 || a.Pods != 1 {
		t.Errorf("%+v, %+v", a, a.Advised)
	}
	if a.Requests != (Range{100, 400}) || a.Limits != (Range{100, 700}) {
		t.Errorf("ranges %+v and %+v", a.Requests, a.Limits)
	}
	if a := advised(t, exact(91, 100), rec); *a.Advised != (Amounts{400, 700}) {
		t.Errorf("one rank further: %+v", a.Advised)
	}
	with := exact(90, 99)
	with.Headroom = 0.15
	if a := advised(t, with, rec); *a.Advised != (Amounts{120, 460}) {
		t.Errorf("with 15%% of headroom, in steps of %v: %+v", cpu.Quantum, a.Advised)
	}
	if a := advised(t, exact(90, 99), rec, rec); *a.Advised != (Amounts{100, 400}) || a.Covered != 200*time.Second {
		t.Errorf("two recordings: %+v", a)
	}
}

// TestPercentilesProperty: for any usage, the share of seconds above the advised amounts is at most what the
// percentiles leave, and one step less would leave more.
func TestPercentilesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		usages := rapid.SliceOfN(rapid.IntRange(1, 400), 1, 60).Draw(t, "usage in steps")
		p := float64(rapid.IntRange(1, 100).Draw(t, "percentile"))
		var load []second
		for _, u := range usages {
			load = append(load, second{usage: cpu.Milli(u) * cpu.Quantum})
		}
		got := advised(t, exact(p, 100), recorded(t, 10, 9000, load)).Advised.Request
		above := func(m cpu.Milli) (n int) {
			for _, s := range load {
				if s.usage > m {
					n++
				}
			}
			return n
		}
		most := (1 - p/100) * float64(len(load))
		if float64(above(got)) > most+1e-9 || float64(above(got-cpu.Quantum)) <= most-1e-9 {
			t.Fatalf("%v: %d of %d seconds are above it, want at most %.2f", got, above(got), len(load), most)
		}
	})
}

// TestHindered: a container that is throttled at its limit in most seconds demands more than its limit; the advice
// says so, and that it is an estimate.
func TestHindered(t *testing.T) {
	a := advised(t, exact(50, 99), recorded(t, 200, 300, steady(60, second{300, 9})))
	if a.Hindered != 1 || a.Advised.Request <= 300 || a.Advised.Limit <= 300 {
		t.Errorf("%+v, %+v", a, a.Advised)
	}
	free := advised(t, exact(50, 99), recorded(t, 200, 300, steady(60, second{300, 0})))
	if free.Hindered != 0 || *free.Advised != (Amounts{300, 300 + cpu.Quantum}) {
		t.Errorf("not throttled: %+v, %+v", free, free.Advised)
	}
}

// TestKeepsClass: equal requests and limits stay equal, a container without a limit gets none, and no limit is below its
// request.
func TestKeepsClass(t *testing.T) {
	load := append(steady(90, second{usage: 100}), steady(10, second{usage: 400})...)
	for name, tc := range map[string]struct {
		request, limit cpu.Milli
		cfg            Config
		want           Amounts
	}{
		"burstable":           {200, 600, exact(90, 99), Amounts{100, 400}},
		"equal":               {600, 600, exact(90, 99), Amounts{400, 400}},
		"no limit":            {200, 0, exact(90, 99), Amounts{100, 0}},
		"percentiles crossed": {200, 600, exact(99, 50), Amounts{400, 400 + cpu.Quantum}},
	} {
		if a := advised(t, tc.cfg, recorded(t, tc.request, tc.limit, load)); *a.Advised != tc.want {
			t.Errorf("%s: %+v, want %+v", name, *a.Advised, tc.want)
		}
	}
	if a := advised(t, exact(90, 99), recorded(t, 200, 600, steady(20, second{}))); *a.Advised != (Amounts{cpu.Quantum, 2 * cpu.Quantum}) {
		t.Errorf("idle: %+v", *a.Advised)
	}
}

// TestTooShort: less time than is needed gives a reason in place of advice; pods of no known workload are counted.
func TestTooShort(t *testing.T) {
	rec := recorded(t, 200, 600, steady(599, second{usage: 100}))
	a := advised(t, DefaultConfig(), rec)
	if a.Advised != nil || a.Reason != "seen for 9m59s only; at least 10m0s are needed" {
		t.Errorf("%+v", a)
	}
	if text := Patch([]Advice{a}); text != "# shop Deployment/cart, container app: "+a.Reason+"\n" {
		t.Errorf("patch:\n%s", text)
	}
	var s Seen
	if err := s.Add(rec, func(record.Name) (string, bool) { return "", false }); err != nil || s.Unknown != 1 || len(s.Advise(DefaultConfig())) != 0 {
		t.Errorf("%v, %+v", err, s)
	}
	if !s.From.Equal(noon) || !s.To.Equal(noon.Add(599*time.Second)) {
		t.Errorf("from %v to %v", s.From, s.To)
	}
}

// TestValidate: faults are named, all of them.
func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{RequestPercentile: 0, LimitPercentile: 101, Headroom: -1, Least: -1}.Validate()
	for _, want := range []string{"request percentile is 0", "limit percentile is 101", "headroom is -1", "least time is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

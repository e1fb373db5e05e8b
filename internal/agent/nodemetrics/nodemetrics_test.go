package nodemetrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/market"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is a round at that second.
func at(second float64, r Round) Round {
	r.At = t0.Add(time.Duration(second * float64(time.Second)))
	return r
}

// pod has one container with these limits.
func pod(declared, limit cpu.Milli) round.PodInput {
	return round.PodInput{Pod: demand.Pod{Containers: []demand.Container{{Name: "app", ID: "1", Declared: declared, Limit: limit}}}}
}

// quota is the sample of a pod with one container and that quota.
func quota(limit cpu.Milli) kernel.PodSample {
	q := kernel.Quota{Period: 100 * time.Millisecond, Limit: time.Duration(limit) * 100 * time.Microsecond}
	return kernel.PodSample{Containers: []kernel.Group{{Quota: q}}}
}

// values are the metrics that a collector collects, as the text format names them.
func values(t interface{ Fatal(...any) }, c prometheus.Collector) map[string]float64 {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			found[f.GetName()+labels(m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

func labels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// TestCountsOfARound: a round with known inputs adds the figures that a person works out by hand.
func TestCountsOfARound(t *testing.T) {
	busy := Round{
		Pods: []round.PodInput{pod(500, 800), pod(1000, 700), pod(300, 300), pod(200, 2000), {Pod: demand.Pod{Unmanaged: true}}},
		Sample: kernel.Sample{Pods: []kernel.PodSample{
			quota(800), quota(700), {Containers: []kernel.Group{{}}}, quota(2000), {},
		}},
		Output: round.Output{
			Node: round.NodeDecision{
				Price: .5, Cleared: .6, Supply: 3600, Demand: 5000, Usage: 3550, UsageKnown: true, System: 250, SystemKnown: true,
				Pressure: sense.Ratio{Known: true, Value: .25}, FloorsExceedSupply: true,
			},
			Decisions: []round.Decision{
				// 300m above the declared limit; 400m of its demand are withheld by the price.
				{Pod: 0, Limit: 800, Usage: 800, Demand: 1200, ThrottleRatio: .5, Bound: market.ByPrice},
				// Below the declared limit; 50m are withheld by the floor.
				{Pod: 1, Limit: 700, Usage: 650, Demand: 750, ThrottleRatio: .25, Bound: market.ByFloor},
				// Its demand fits.
				{Pod: 2, Limit: 300, Usage: 100, Demand: 100, Bound: market.ByNothing},
				// 1800m above the declared limit; 1000m are withheld by the ceiling.
				{Pod: 3, Limit: 2000, Usage: 2000, Demand: 3000, ThrottleRatio: 1, Bound: market.ByCeiling},
			},
		},
		Files: 12, Blocked: 1, QuotaMismatches: 2,
	}
	idle := busy
	idle.Output.Node.Usage = 3500 // 100m below the supply
	unknown := busy
	unknown.Output.Node.UsageKnown, unknown.Output.Node.SystemKnown, unknown.Output.Node.Pressure = false, false, sense.Ratio{}

	c := &Collector{}
	if got := values(t, c); len(got) != 0 {
		t.Errorf("before the first round there is %v", got)
	}
	want := map[string]float64{
		"mbcas_node_price": .5, "mbcas_node_cleared_price": .6, "mbcas_node_supply_cores": 3.6, "mbcas_node_demand_cores": 5,
		"mbcas_node_usage_cores": 3.55, "mbcas_node_system_cores": .25, "mbcas_node_pressure_ratio": .25,
		"mbcas_node_floors_exceed_supply":    1,
		`mbcas_node_pods{part="bidding"}`:    4,
		`mbcas_node_pods{part="unmanaged"}`:  1,
		`mbcas_node_pods{part="warming"}`:    0,
		`mbcas_node_pods{part="stale"}`:      0,
		`mbcas_node_pods{part="unenforced"}`: 0,
		`mbcas_node_bound_pods{by="Price"}`:  1, `mbcas_node_bound_pods{by="Floor"}`: 1,
		`mbcas_node_bound_pods{by="Ceiling"}`: 1, `mbcas_node_bound_pods{by="Nothing"}`: 1,
		`mbcas_node_limit_cores{of="declared"}`: 2, `mbcas_node_limit_cores{of="decided"}`: 3.8,
		`mbcas_node_limit_cores{of="kernel"}`:                3.5, // the third has no quota
		`mbcas_node_throttled_seconds_total{while="idle"}`:   0,
		"mbcas_node_beyond_declared_core_seconds_total":      0,
		`mbcas_node_withheld_core_seconds_total{by="price"}`: 0, `mbcas_node_withheld_core_seconds_total{by="floor"}`: 0,
		`mbcas_node_withheld_core_seconds_total{by="ceiling"}`: 0,
		`mbcas_node_throttled_seconds_total{while="scarce"}`:   0,
		"mbcas_agent_open_files":                               12,
		"mbcas_agent_blocked_pods":                             1, "mbcas_agent_quota_mismatch_pods": 2,
	}
	check := func(when string) {
		t.Helper()
		if d := cmp.Diff(want, values(t, c), cmpopts.EquateApprox(0, 1e-9)); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	c.Observe(at(0, busy)) // the time before it is not known
	check("after the first round")

	c.Observe(at(2, busy)) // two seconds
	want[`mbcas_node_throttled_seconds_total{while="scarce"}`] = 2 * (.5 + .25 + 1)
	want["mbcas_node_beyond_declared_core_seconds_total"] = 2 * (.3 + 1.8)
	want[`mbcas_node_withheld_core_seconds_total{by="price"}`] = 2 * .4
	want[`mbcas_node_withheld_core_seconds_total{by="floor"}`] = 2 * .05
	want[`mbcas_node_withheld_core_seconds_total{by="ceiling"}`] = 2 * 1
	check("after a round without idle CPU")

	c.Observe(at(3, idle)) // one second
	want["mbcas_node_usage_cores"] = 3.5
	want[`mbcas_node_throttled_seconds_total{while="idle"}`] = 1.75
	want["mbcas_node_beyond_declared_core_seconds_total"] += 2.1
	want[`mbcas_node_withheld_core_seconds_total{by="price"}`] += .4
	want[`mbcas_node_withheld_core_seconds_total{by="floor"}`] += .05
	want[`mbcas_node_withheld_core_seconds_total{by="ceiling"}`]++
	check("after a round with idle CPU")

	c.Observe(at(4, unknown)) // whether CPU was idle is not known
	delete(want, "mbcas_node_usage_cores")
	delete(want, "mbcas_node_system_cores")
	delete(want, "mbcas_node_pressure_ratio")
	want["mbcas_node_beyond_declared_core_seconds_total"] += 2.1
	want[`mbcas_node_withheld_core_seconds_total{by="price"}`] += .4
	want[`mbcas_node_withheld_core_seconds_total{by="floor"}`] += .05
	want[`mbcas_node_withheld_core_seconds_total{by="ceiling"}`]++
	check("after a round whose usage is not known")
}

// rounds draws rounds with any pods in them.
func rounds(t *rapid.T) (drawn []Round) {
	name := rapid.StringN(1, 30, 60)
	second := 0.0
	for range rapid.IntRange(1, 6).Draw(t, "rounds") {
		var r Round
		n := &r.Output.Node
		n.Supply = cpu.Milli(rapid.IntRange(0, 8000).Draw(t, "supply"))
		n.Usage, n.UsageKnown = cpu.Milli(rapid.IntRange(0, 8000).Draw(t, "usage")), rapid.Bool().Draw(t, "known")
		n.SystemKnown, n.Pressure.Known = true, true
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			p := pod(cpu.Milli(rapid.IntRange(1, 4000).Draw(t, "declared")), cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "limit")))
			p.UID, p.Containers[0].Name, p.Containers[0].ID = name.Draw(t, "uid"), name.Draw(t, "name"), name.Draw(t, "id")
			r.Pods = append(r.Pods, p)
			r.Sample.Pods = append(r.Sample.Pods, quota(cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "quota"))))
			if rapid.Bool().Draw(t, "decided") {
				r.Output.Decisions = append(r.Output.Decisions, round.Decision{
					UID: p.UID, Pod: i, Limit: cpu.Milli(rapid.IntRange(10, 4000).Draw(t, "decision")),
					Usage:         cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "used")),
					Demand:        cpu.Milli(rapid.IntRange(0, 9000).Draw(t, "demand")),
					ThrottleRatio: rapid.Float64Range(0, 1).Draw(t, "throttled"),
					Bound:         market.Bound(rapid.IntRange(0, int(market.ByCeiling)).Draw(t, "bound")),
				})
			}
		}
		second += rapid.Float64Range(.1, 10).Draw(t, "seconds")
		drawn = append(drawn, at(second, r))
	}
	return drawn
}

// TestNoLabelFromAPod: whatever pods are called, the series are the same.
func TestNoLabelFromAPod(t *testing.T) {
	empty := Round{Output: round.Output{Node: round.NodeDecision{SystemKnown: true, UsageKnown: true}}}
	empty.Output.Node.Pressure.Known = true
	alone := &Collector{}
	alone.Observe(at(0, empty))
	want := slices.Sorted(maps.Keys(values(t, alone)))
	rapid.Check(t, func(t *rapid.T) {
		c := &Collector{}
		drawn := rounds(t)
		drawn[len(drawn)-1].Output.Node.UsageKnown = true
		for _, r := range drawn {
			c.Observe(r)
		}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(values(t, c)))); d != "" {
			t.Errorf("series (-of a node without pods +of these):\n%s", d)
		}
	})
}

// TestSamplesAddUp: whatever the rounds are, no counter falls, and none grows faster than the pods used,
// demanded or waited.
func TestSamplesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, before := &Collector{}, map[string]float64(nil)
		drawn := rounds(t)
		for i, r := range drawn {
			c.Observe(r)
			now := values(t, c)
			var used, demanded, waited float64
			if i > 0 {
				seconds := r.At.Sub(drawn[i-1].At).Seconds()
				for _, d := range r.Output.Decisions {
					used += seconds * d.Usage.Cores()
					demanded += seconds * d.Demand.Cores()
					waited += seconds * d.ThrottleRatio
				}
			}
			for prefix, most := range map[string]float64{
				"mbcas_node_beyond_declared_": used, "mbcas_node_withheld_": demanded, "mbcas_node_throttled_": waited,
			} {
				grown := 0.0
				for name, v := range now {
					if !strings.HasPrefix(name, prefix) {
						continue
					}
					if v < before[name] || math.IsNaN(v) {
						t.Errorf("%s fell from %v to %v", name, before[name], v)
					}
					grown += v - before[name]
				}
				if grown > most+1e-9 {
					t.Errorf("%s* grew by %v in a round in which it could grow by %v", prefix, grown, most)
				}
			}
			before = now
		}
	})
}

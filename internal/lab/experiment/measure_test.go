package experiment

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// latencies are n requests of each duration.
func latencies(n int, of ...time.Duration) *sim.Latencies {
	l := new(sim.Latencies)
	for _, d := range of {
		for range n {
			l.Add(d)
		}
	}
	return l
}

func role(pod string) scenario.Role {
	switch pod {
	case "web", "shop":
		return scenario.Service
	case "batch":
		return scenario.Batch
	case "liar":
		return scenario.Liar
	case "honest":
		return scenario.Honest
	}
	return scenario.Other
}

// smallRun is a node of 2 cores for 10 s, the first 2 of them warm-up: a service that asks for 0.5
// cores and is held to 0.4 until its limit goes to 1 at 6 s, beside a batch pod of two threads that
// gets the rest.
func smallRun() *Run {
	web := sim.PodResult{
		Spec: sim.PodSpec{Name: "web", Request: 300, Limit: 400, Requests: load.Requests{Rate: load.Step{Before: 20, After: 50, Time: 4 * time.Second}, ServiceTime: 10 * time.Millisecond}},
		Counters: sim.Counters{
			Usage: 3800 * time.Millisecond, Useful: 3800 * time.Millisecond, Periods: 80, Throttled: 20, ThrottledIdle: 4,
			Latency: latencies(50, 10*time.Millisecond, 200*time.Millisecond),
		},
		Changes: []sim.Change{{At: time.Second, From: 400, To: 410}, {At: 6 * time.Second, From: 410, To: 1000}},
	}
	batch := sim.PodResult{
		Spec:     sim.PodSpec{Name: "batch", Request: 100, Limit: 2000, Spin: load.Constant(2)},
		Counters: sim.Counters{Usage: 8 * time.Second, Periods: 80, Throttled: 60, ThrottledIdle: 12, Latency: new(sim.Latencies)},
		Changes:  []sim.Change{{At: 5 * time.Second, From: 2000, To: 1000}},
	}
	// Second by second. 0.2 cores are asked for up to 4 s, then 0.5; 0.4 are given up to 6 s, then
	// the rest.
	use := []cpu.Milli{200, 200, 200, 200, 400, 400, 700, 500, 500, 500}
	left := []cpu.Milli{0, 0, 0, 0, 100, 200, 0, 0, 0, 0} // that waits, core milliseconds
	for k := range 10 {
		offered := cpu.Milli(200)
		if k >= 4 {
			offered = 500
		}
		limit := cpu.Milli(400)
		if k >= 6 {
			limit = 1000
		}
		throttle := 0.0
		if k == 4 || k == 5 {
			throttle = 1
		}
		web.Points = append(web.Points, sim.PodPoint{
			Usage: use[k], Useful: use[k], Offered: offered, Limit: limit, Throttle: throttle, Backlog: time.Duration(left[k]) * time.Millisecond,
		})
		batchLimit := cpu.Milli(2000)
		if k >= 5 {
			batchLimit = 1000
		}
		batch.Points = append(batch.Points, sim.PodPoint{Usage: 1000, Limit: batchLimit})
	}
	return &Run{
		Role: role, Steps: func(string) []time.Duration { return []time.Duration{4 * time.Second} },
		Nodes: []Node{{
			Setup:  sim.Setup{Machine: sim.Machine{Cores: 2}, Length: 10 * time.Second, WarmUp: 2 * time.Second, Pods: []sim.PodSpec{web.Spec, batch.Spec}},
			Result: sim.Result{Pods: []sim.PodResult{web, batch}, Idle: make([]float64, 10), IdleTime: 4 * time.Second},
		}},
	}
}

// TestEveryMeasureIsWorkedByHand: the comments are the sums on paper. Seconds 2 to 9 are measured.
func TestEveryMeasureIsWorkedByHand(t *testing.T) {
	want := Values{
		"p50-ms":   200, // 50 at 10 ms and 50 at 200 ms: the 51st is 200 ms
		"p99-ms":   200,
		"p99.9-ms": 200,
		// 0.1 + 0.2 core seconds wait at the ends of seconds 4 and 5; 2 x 0.2 + 6 x 0.5 = 3.4 core
		// seconds arrive.
		"backlog-s":        0.3 / 3.4,
		"throttled-%":      100 * 20.0 / 80,
		"throttled-idle-%": 100 * 16.0 / 160,
		// Budgets 300 and 100 of 2 cores: 1.5 and 0.5. The web uses 0.4 at least, due min(0.5 +
		// 0.1, 1.5): more than half; the batch pod 1, due 0.5.
		"starved-%":   0,
		"batch-cores": 8.0 / 8,
		"util-%":      75, // 4 of 16 core seconds idle
		// Limits: web 4 x 0.4 + 4 x 1 = 5.6, batch 3 x 2 + 5 x 1 = 11. Needs: web uses 3.4 and
		// waiting work grows by 0 over all, batch 8.
		"limit/need":        16.6 / 11.4,
		"changes":           2, // the one at 1 s is warm-up
		"changes/pod/10min": 2 * 600 / 16.0,
		"changes/pod/h":     2 * 3600 / 16.0,
		// The web wants 0.5 from 4 s on; its limit is 0.41 until 6 s.
		"react-p50-s":   2,
		"react-worst-s": 2,
		"settle-s":      2, // the web's limit moves at 6 s, the batch pod's at 5 s, and then they rest
		// Late changes: all load is constant from 5 s on; the web's change at 6 s counts, the batch pod's
		// at 5 s does not.
		"late-changes/pod": 0.5,
		"cycling-pods":     0,
		// Contended: the web in seconds 4 and 5 with 0.4 per budget 300, the batch pod all the time with
		// 1 per 100.
		"jain": math.Pow(0.4/300+1.0/100, 2) / (2 * (math.Pow(0.4/300, 2) + math.Pow(1.0/100, 2))),
		// The web gets 2 x 0.2 + 2 x 0.4 + 0.7 + 3 x 0.5 = 3.4, due 3.4; the batch pod 8, due 4.
		"worst-share": 1,
		// Loads 0.425 and 2 on 2 cores: the best is 0.425 and 1.575; 0.425 (all of its best) and 1
		// were had.
		"nash": math.Exp(100 * math.Log(1/1.575) / 400),
	}
	got := MeasureRun(smallRun())
	for unit, v := range want {
		have, ok := got[unit]
		if !ok {
			t.Errorf("%s: absent, want %v", unit, v)
		} else if tolerance := 0.01 * math.Abs(v); math.Abs(have-v) > tolerance+1e-9 { // latencies are kept in buckets of 1/64
			t.Errorf("%s = %v, want %v", unit, have, v)
		}
	}
	for _, m := range Measures() {
		if _, ok := want[m.Unit]; !ok && m.of != nil {
			t.Errorf("%s is not worked by hand", m.Unit)
		}
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	r := smallRun()
	r.Steps = func(string) []time.Duration { return nil }
	r.Role = func(string) scenario.Role { return scenario.Other }
	got := MeasureRun(r)
	for _, unit := range []string{"p99-ms", "backlog-s", "throttled-%", "batch-cores", "react-p50-s", "react-worst-s", "settle-s", LiarGain, HonestLoss} {
		if v, ok := got[unit]; ok {
			t.Errorf("%s = %v, want it absent", unit, v)
		}
	}
	r = smallRun()
	r.Nodes[0].Setup.Pods[0].Requests.Rate = load.Sine{Mean: 1, Amplitude: 1, Period: time.Second}
	if v, ok := MeasureRun(r)["late-changes/pod"]; ok {
		t.Errorf("late changes of a load that is not constant are %v, want none", v)
	}
	if got := MeasureRun(&Run{Role: role, Steps: r.Steps}); len(got) != 1 || got["changes"] != 0 {
		t.Errorf("no node at all measures %v, want no more than that nothing changed", got)
	}
}

// TestStarvation: a pod that waits and gets less than half of its due.
func TestStarvation(t *testing.T) {
	for _, c := range []struct {
		use    cpu.Milli
		begin  time.Duration // that waits
		end    time.Duration
		want   float64
		reason string
	}{
		{200, time.Second, time.Second, 100, "0.2 of min(0.5 + 1, 1.5) cores"},
		{800, time.Second, time.Second, 0, "more than half of 1.5"},
		{200, 0, time.Second, 0, "nothing waited at the begin"},
		{200, time.Second, 0, 0, "nothing waits at the end"},
	} {
		r := smallRun()
		n := &r.Nodes[0]
		n.Result.Pods = n.Result.Pods[:1]
		n.Result.Pods[0].Spec.Request = 300
		n.Setup.Machine.Allocatable = 1500
		points := n.Result.Pods[0].Points
		for k := range points {
			points[k] = sim.PodPoint{Usage: c.use, Useful: c.use, Offered: 500, Backlog: c.end}
			if k%2 == 0 && c.begin != c.end {
				points[k].Backlog = c.begin
			}
		}
		if got := MeasureRun(r)["starved-%"]; got != c.want {
			t.Errorf("use %v with %v and %v waiting: starved %v %%, want %v: %s", c.use, c.begin, c.end, got, c.want, c.reason)
		}
	}
}

func TestReaction(t *testing.T) {
	for _, c := range []struct {
		changes []sim.Change
		limit   cpu.Milli
		want    float64
		reason  string
	}{
		{nil, 400, 6, "never: the time to the end of the run"},
		{nil, 500, 0, "high enough already"},
		{nil, 0, 0, "no limit is high enough"},
		{[]sim.Change{{At: 4500 * time.Millisecond, From: 400, To: 0}}, 400, 0.5, "taken away"},
		{[]sim.Change{{At: 5 * time.Second, From: 400, To: 450}, {At: 7 * time.Second, From: 450, To: 500}}, 400, 3, "in two moves"},
		{[]sim.Change{{At: 3 * time.Second, From: 800, To: 300}, {At: 5 * time.Second, From: 300, To: 800}}, 800, 1, "lowered before the step"},
	} {
		r := smallRun()
		web := &r.Nodes[0].Result.Pods[0]
		web.Spec.Limit, web.Changes = c.limit, c.changes
		got := MeasureRun(r)["react-worst-s"]
		if c.limit == 0 { // then it is not managed, and no pod is left to react
			if _, ok := MeasureRun(r)["react-worst-s"]; ok {
				t.Errorf("%s: reaction %v of a pod that is not managed", c.reason, got)
			}
			continue
		}
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("limit %v, changes %v: reaction %v s, want %v: %s", c.limit, c.changes, got, c.want, c.reason)
		}
	}
	// A pod that did not get more to do does not count.
	r := smallRun()
	r.Nodes[0].Setup.Pods[0].Requests.Rate = load.Constant(50)
	if v, ok := MeasureRun(r)["react-worst-s"]; ok {
		t.Errorf("reaction %v to a step that was none", v)
	}
}

func TestCycle(t *testing.T) {
	r := smallRun()
	batch := &r.Nodes[0].Result.Pods[1]
	batch.Changes = nil
	for i := range 6 { // up and down: five turns
		c := sim.Change{At: time.Duration(5500+500*i) * time.Millisecond, From: 1000, To: 2000}
		if i%2 == 1 {
			c.From, c.To = c.To, c.From
		}
		batch.Changes = append(batch.Changes, c)
	}
	if got := MeasureRun(r); got["cycling-pods"] != 1 || got["late-changes/pod"] != 3.5 {
		t.Errorf("%v pods cycle with %v late changes, want 1 and 3.5", got["cycling-pods"], got["late-changes/pod"])
	}
	for i := range batch.Changes { // a staircase is no cycle
		batch.Changes[i].From, batch.Changes[i].To = cpu.Milli(1000+10*i), cpu.Milli(1010+10*i)
	}
	if got := MeasureRun(r)["cycling-pods"]; got != 0 {
		t.Errorf("a staircase counts as %v cycles", got)
	}
}

func TestJainOfEquals(t *testing.T) {
	r := smallRun()
	pods := r.Nodes[0].Result.Pods
	for i := range pods {
		pods[i].Spec.Requests, pods[i].Spec.Spin = load.Requests{}, load.Constant(2)
		pods[i].Spec.Request = cpu.Milli(200 + 400*i) // budgets 200 and 600
		for k := range pods[i].Points {
			pods[i].Points[k] = sim.PodPoint{Usage: cpu.Milli(500 + 1000*i)} // 0.5 and 1.5 cores
		}
	}
	got := MeasureRun(r)
	if got["jain"] != 1 || got[WorstShare] != 1 || math.Abs(got["nash"]-1) > 1e-9 {
		t.Errorf("a split by budget has Jain index %v, worst share %v and Nash welfare %v, want 1 each", got["jain"], got[WorstShare], got["nash"])
	}
	for k := range pods[0].Points {
		pods[0].Points[k].Usage, pods[1].Points[k].Usage = 1000, 1000
	}
	// Per budget 1/200 and 1/600: (4/600)^2 / (2 x 10/360000) = 0.8. The second has 1 of 1.5 cores.
	got = MeasureRun(r)
	want := math.Exp((200*math.Log(1/0.5) + 600*math.Log(1/1.5)) / 800)
	if math.Abs(got["jain"]-0.8) > 1e-9 || math.Abs(got[WorstShare]-2.0/3) > 1e-9 || math.Abs(got["nash"]-want) > 1e-9 {
		t.Errorf("an even split at budgets of 1 to 3: %v, %v, %v, want 0.8, 0.667, %v", got["jain"], got[WorstShare], got["nash"], want)
	}
}

func TestCompareWithTruth(t *testing.T) {
	lie := Summary{Values: Values{}, Useful: []Useful{{0, "a/liar", scenario.Liar, 0.66}, {0, "a/honest", scenario.Honest, 0.9}, {1, "a/honest", scenario.Honest, 1.2}, {0, "a/new", scenario.Liar, 5}}}
	truth := Summary{Useful: []Useful{{0, "a/liar", scenario.Honest, 0.6}, {0, "a/honest", scenario.Honest, 1}, {1, "a/honest", scenario.Honest, 1}}}
	lie.CompareWithTruth(truth)
	if fmt.Sprintf("%.3f %.3f", lie.Values[LiarGain], lie.Values[HonestLoss]) != "10.000 10.000" {
		t.Errorf("gain %v %%, loss %v %%, want 10 and 10", lie.Values[LiarGain], lie.Values[HonestLoss])
	}
	alone := Summary{Values: Values{}}
	if alone.CompareWithTruth(truth); len(alone.Values) != 0 {
		t.Errorf("no pod lies, and yet %v", alone.Values)
	}
}

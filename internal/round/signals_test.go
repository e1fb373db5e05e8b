package round

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

func TestStalledIsNotRaised(t *testing.T) {
	// Bursts of the service are throttled in all its periods, although it uses less than its share.
	// The saturating pod makes CPU scarce.
	for name, c := range map[string]struct {
		stalls            bool // they are read
		stalled           float64
		demand, limit     cpu.Milli // of the service, before
		factor, wantLimit cpu.Milli // of the usage: its demand
	}{
		"throttled":                        {true, 0.1, 200, 600, 2, 4000},
		"stalled":                          {true, 0.9, 200, 600, 1, 600},
		"stalled, and stalls are not read": {false, 0.9, 200, 600, 2, 4000},
		"its usage counts":                 {true, 1, 800, 900, 1, 1800}, // its share: it seems to saturate
	} {
		batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
		service := &fakePod{name: "service", request: 500, declared: c.limit, demand: c.demand, bursts: 1, stalled: c.stalled}
		w := newWorld(batch, service)
		w.stalls = c.stalls
		out := w.run(60)
		d, ok := decision(out, "service")
		if !ok || out.Node.Price == 0 {
			t.Fatalf("%s: price %v, decided %v: want CPU to be scarce", name, out.Node.Price, ok)
		}
		if service.limit != c.wantLimit || d.Demand != c.factor*d.Usage || d.ThrottleRatio != 1 {
			t.Errorf("%s: limit %v, %+v: want %v, %d times its usage as its demand, and the throttle ratio as measured",
				name, service.limit, d, c.wantLimit, c.factor)
		}
		if read := d.Stalls != nil; read != c.stalls || read && (d.Stalls.Memory.Value < c.stalled-0.01 || d.Stalls.IO.Known) {
			t.Errorf("%s: stalls %+v", name, d.Stalls)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawPods(t, 16_000)...)
		w.stalls = true
		highest := map[string]cpu.Milli{} // usage of any second
		for _, p := range w.pods {
			p.waits = rapid.Float64Range(0, 1).Draw(t, "waits")
			if rapid.Bool().Draw(t, "is stalled") {
				p.stalled = rapid.Float64Range(w.cfg.Demand.StallThreshold, 1).Draw(t, "stalled") + 1e-6
			}
		}
		for range 90 {
			out := w.tick()
			for _, p := range w.pods {
				highest[p.name] = max(highest[p.name], cpu.FromCores(w.state.estimates[p.id].Latest))
			}
			for _, d := range out.Decisions {
				e := w.state.estimates[w.pod(d.UID).id]
				if w.pod(d.UID).stalled > 0 && (d.Demand > highest[d.UID] || e.LatestDemand() != d.Usage || e.ThrottleRatio != 0) {
					t.Fatalf("%s is stalled, uses %v, at most %v, with a demand of %v: %+v", d.UID, d.Usage, highest[d.UID], d.Demand,
						e)
				}
			}
		}
	})
}

func TestKernelMinimumIsKept(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		quota             kernel.Quota
		request, declared cpu.Milli
		want              cpu.Milli // the floor
	}{
		"as usual":              {kernel.Quota{Limit: 50 * ms, Period: 100 * ms}, 50, 500, 100},
		"unknown to the kernel": {kernel.Quota{}, 50, 500, 100},
		"a period of 10 ms":     {kernel.Quota{Limit: 5 * ms, Period: 10 * ms}, 20, 60, 100},
		"a period of 5 ms":      {kernel.Quota{Limit: 5 * ms, Period: 5 * ms}, 50, 500, 200},
		"a burst of 30 ms":      {kernel.Quota{Limit: 50 * ms, Period: 100 * ms, Burst: 30 * ms}, 50, 500, 300},
		"a burst of 30.1 ms":    {kernel.Quota{Limit: 50 * ms, Period: 100 * ms, Burst: 30*ms + ms/10}, 50, 500, 310},
		"a higher request":      {kernel.Quota{Limit: 50 * ms, Period: 100 * ms, Burst: 30 * ms}, 400, 500, 410},
	} {
		pod := &fakePod{name: "pod", request: c.request, declared: c.declared, demand: 8000, quota: c.quota}
		// The share of the other is nearly everything.
		vip := &fakePod{name: "vip", request: 3000, budget: 1_000_000, declared: 4000, demand: 8000}
		w := priceAlone(pod, vip)
		out := w.run(60)
		d, ok := decision(out, "pod")
		if !ok || d.Floor != c.want || d.Limit != c.want || d.Bound != market.ByFloor || d.Containers[0].Limit != c.want {
			t.Errorf("%s: %+v (decided: %v), want the floor %v as the limit", name, d, ok, c.want)
		}
	}
}

// A higher constraint floor stays, and what the caller gave is not changed.
func TestKernelMinimumOnlyRaises(t *testing.T) {
	app := demand.Container{Declared: 500, Limit: 500}.Within(400, 1000)
	pods := []PodInput{{Pod: demand.Pod{Containers: []demand.Container{app, {}}}}}
	rates := []sense.PodRates{{Containers: []sense.Rate{{MinLimit: 300}, {MinLimit: 300}}}}
	if got := new(State).bounded(pods, rates); got[0].Containers[0].Floor != 400 || got[0].Containers[1].Floor != 0 {
		t.Errorf("%+v: want no change", got)
	}
	rates[0].Containers[0].MinLimit = 410
	if got := new(State).bounded(pods, rates); got[0].Containers[0].Floor != 410 || pods[0].Containers[0].Floor != 400 {
		t.Errorf("%+v from %+v: want 410m, and the input unchanged", got, pods)
	}
}

// The stalls of a pod are the highest of its limited containers.
func TestHighestStallsCount(t *testing.T) {
	known := func(memory, io float64) *sense.Stalls {
		return &sense.Stalls{Memory: sense.Ratio{Known: true, Value: memory}, IO: sense.Ratio{Known: true, Value: io}}
	}
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 100}}
	rates, estimates := sense.PodRates{}, map[string]demand.Estimate{}
	onlyIO := &sense.Stalls{IO: sense.Ratio{Known: true, Value: 0.2}}
	for i, stalls := range []*sense.Stalls{nil, known(0.1, 0.4), nil, known(0.3, 0.2), onlyIO, known(1, 1)} {
		c := demand.Container{Name: fmt.Sprint("c", i), ID: fmt.Sprint(i), Declared: 500, Limit: 500}
		if i == 5 {
			c.Declared, c.Limit = 0, 0
		}
		pod.Containers = append(pod.Containers, c.Within(0, 4000))
		rates.Containers = append(rates.Containers, sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Stalls: stalls})
		estimates[c.ID] = demand.Estimate{Samples: 99}
	}
	d, _ := decidePod(t, pod, rates, estimates, 0)
	if d.Stalls == nil || *d.Stalls != *known(0.3, 0.4) {
		t.Errorf("%+v, stalled %+v, want memory 0.3 and IO 0.4", d, d.Stalls)
	}
}

// The quota of a whole pod has a minimum of its own.
func TestPodQuotaMinimumIsKept(t *testing.T) {
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 1, Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 100, Declared: 500, Limit: 500}.Within(0, 1000),
		demand.Container{Name: "proxy", ID: "2", Request: 50, Declared: 200, Limit: 200}.Within(0, 1000),
	}}}
	known := map[string]demand.Estimate{"1": {Samples: 99, Mean: 3, Latest: 3}, "2": {Samples: 99, Mean: 1, Latest: 1}}
	for minimum, want := range map[cpu.Milli]cpu.Milli{0: 210, 200: 210, 600: 600, 5000: 2000} {
		rates := sense.PodRates{
			Own:        sense.Rate{Validity: sense.Valid, MinLimit: minimum},
			Containers: []sense.Rate{{Validity: sense.Valid}, {Validity: sense.Valid}},
		}
		if d, _ := decidePod(t, pod, rates, known, 100); d.Floor != want || d.Limit != want {
			t.Errorf("the minimum of the pod's quota is %v: %+v, want the floor %v as the limit", minimum, d, want)
		}
	}
}

// The bounds of a pod may be narrower than the sum of its containers'; then limits change that
// would have stayed.
func TestBoundsOfThePodHold(t *testing.T) {
	p := PodInput{Pod: demand.Pod{Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Declared: 500, Limit: 500}.Within(0, 4000),
		demand.Container{Name: "proxy", ID: "2", Declared: 200, Limit: 200}.Within(0, 4000),
	}}}
	bid := market.Bid{Budget: 10, Demand: 700, Floor: 200, Ceiling: 600}
	e := bidder{managed: true, warmingUp: true, limit: 700, bid: bid}
	if limit, parts := limits(DefaultConfig(), State{}, p, e, Decision{Floor: 200, Ceiling: 600}); limit != 600 ||
		parts[0].Limit+parts[1].Limit != 600 {
		t.Errorf("a new pod with 700m where 600m are allowed gets %v, %v", limit, parts)
	}
}

func TestBoundsHoldForOddLimits(t *testing.T) {
	for name, c := range map[string]struct {
		declared, ceiling []cpu.Milli
		warmingUp         bool
		price             market.Price
		want              []cpu.Milli
	}{
		"below what the kernel accepts":         {[]cpu.Milli{5, 100}, []cpu.Milli{4000, 4000}, true, 100, []cpu.Milli{10, 100}},
		"the same, with enough samples":         {[]cpu.Milli{5, 100}, []cpu.Milli{4000, 4000}, false, 100, []cpu.Milli{10, 100}},
		"more than the node has":                {[]cpu.Milli{1_000_000}, []cpu.Milli{4000}, true, 100, []cpu.Milli{4000}},
		"odd, and it stays":                     {[]cpu.Milli{105}, []cpu.Milli{4000}, true, 100, []cpu.Milli{105}},
		"odd, and the budget buys a milli more": {[]cpu.Milli{105}, []cpu.Milli{4000}, true, 10. / 107.5, []cpu.Milli{105}},
		"odd, and the budget buys a step more":  {[]cpu.Milli{105}, []cpu.Milli{4000}, true, 10. / 119.5, []cpu.Milli{110}},
		"odd, and less than its entitlement":    {[]cpu.Milli{636, 46, 1}, []cpu.Milli{0, 2000, 40}, false, 0.01403808, []cpu.Milli{636, 50, 20}},
	} {
		d := podLimits{c.declared, c.ceiling, nil, c.warmingUp}.decide(t, c.price)
		var got []cpu.Milli
		for _, part := range d.Containers {
			got = append(got, part.Limit)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %v", name, d, c.want)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(r, "containers")
		milli := func(what string, low, high int64) (list []cpu.Milli) {
			for range n {
				list = append(list, cpu.Milli(rapid.Int64Range(low, high).Draw(r, what)))
			}
			return list
		}
		declared, ceilings, requests := milli("declared", 1, 1200), milli("ceiling", 0, 200), milli("request", 0, 1200)
		for i := range n {
			ceilings[i] *= cpu.Quantum // as package constraints sets them
			requests[i] = min(requests[i], declared[i])
		}
		warmingUp := rapid.Bool().Draw(r, "warming up")
		pod := podLimits{declared, ceilings, requests, warmingUp}
		d := pod.decide(t, market.Price(rapid.Float64Range(0, 1).Draw(r, "price")))
		var sum, before cpu.Milli
		for i, part := range d.Containers {
			c := demand.Container{Request: requests[i], Declared: declared[i], Limit: declared[i]}.Within(0, ceilings[i])
			floor, ceiling := c.Floor, c.Ceiling
			switch l := part.Limit; {
			case l < requests[i]+cpu.Quantum && l != declared[i] || l < floor || l > ceiling:
				r.Fatalf("container %d gets %v, outside %v to %v: %+v", i, l, floor, ceiling, d)
			case l%cpu.Quantum != 0 && l != declared[i]:
				r.Fatalf("container %d gets %v, which is no multiple of the quantum and not its limit of %v: %+v", i, l,
					declared[i], d)
			}
			sum += part.Limit
			before += min(declared[i], ceiling)
		}
		if sum != d.Limit || d.Limit < d.Floor || d.Limit > d.Ceiling {
			r.Fatalf("%+v: want the sum of its parts, from floor to ceiling", d)
		}
		if warmingUp && d.Limit < before {
			r.Fatalf("a new pod with %v within its ceilings gets %v", before, d.Limit)
		}
	})
}

// podLimits are of a pod with a budget of 10 and a container for each declared limit, which is in force.
type podLimits struct {
	declared, ceilings, requests []cpu.Milli // requests may be nil
	warmingUp                    bool
}

func (o podLimits) decide(t testing.TB, p market.Price) Decision {
	t.Helper()
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 10}}
	rates, known := sense.PodRates{}, map[string]demand.Estimate{}
	samples := DefaultConfig().Demand.WarmUpSamples
	if o.warmingUp {
		samples = 1
	}
	for i, d := range o.declared {
		c := demand.Container{Name: fmt.Sprint("c", i), ID: fmt.Sprint(i), Declared: d, Limit: d}
		if o.requests != nil {
			c.Request = o.requests[i]
		}
		pod.Containers = append(pod.Containers, c.Within(0, o.ceilings[i]))
		rates.Containers = append(rates.Containers, sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: d})
		known[c.ID] = demand.Estimate{Samples: samples, Mean: 8 / float64(i+1), Latest: 8}
	}
	d, _ := decidePod(t, pod, rates, known, p)
	return d
}

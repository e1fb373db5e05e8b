package round

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/market"
)

// noisyPods are 30 pods with a mean usage of 2m to 50m each.
func noisyPods() ([]*fakePod, []cpu.Milli) {
	var pods []*fakePod
	var means []cpu.Milli
	for i := range 30 {
		mean := cpu.Milli(2 + 48*i/29)
		means = append(means, mean)
		pods = append(pods, &fakePod{name: fmt.Sprintf("p%d", i), request: 50, declared: 1000, demand: mean})
	}
	return pods, means
}

// noises are loads that vary about a mean, as recorded ones do from second to second.
var noises = map[string]func(*rand.Rand) func(mean float64) float64{
	"Poisson": poisson, "5 %": autoregressive(0.05), "10 %": autoregressive(0.1), "30 %": autoregressive(0.3),
	"60 %": autoregressive(0.6),
}

func autoregressive(sigma float64) func(*rand.Rand) func(mean float64) float64 {
	const rho = 0.8 // from one second to the next
	return func(r *rand.Rand) func(float64) float64 {
		x := 0.0
		return func(mean float64) float64 {
			x = rho*x + math.Sqrt(1-rho*rho)*r.NormFloat64()
			return mean * (1 + sigma*x)
		}
	}
}

// poisson is requests of 1 ms of CPU time each.
func poisson(r *rand.Rand) func(mean float64) float64 {
	return func(mean float64) float64 {
		n, product := 0, r.Float64()
		for limit := math.Exp(-min(mean, 500)); product > limit; n++ {
			product *= r.Float64()
		}
		return float64(n)
	}
}

// figuresAlone runs pods whose load varies about their present demand, for some minutes after all of them were
// decided on, and returns how many decisions were published although no limit changed by more than a quantum.
func figuresAlone(w *world, noise func(*rand.Rand) func(float64) float64, minutes int, recommend bool) (published int) {
	r := rand.New(rand.NewPCG(1, 2))
	vary, means := make([]func(float64) float64, len(w.pods)), make([]float64, len(w.pods))
	for i, p := range w.pods {
		vary[i], means[i] = noise(r), float64(p.demand)
	}
	for range w.cfg.Demand.WarmUpSamples + 60*minutes {
		before := map[string]Published{}
		for i, p := range w.pods {
			p.demand = cpu.Milli(max(0, math.Round(vary[i](means[i]))))
			before[p.name] = p.published
		}
		for _, d := range w.tick().Decisions {
			was := before[d.UID]
			change := d.Limit - was.Limits["c"]
			if d.Publish && !was.At.IsZero() && max(change, -change) <= cpu.Quantum {
				published++
			}
		}
		for _, p := range w.pods {
			if recommend && !p.unmanaged {
				p.limit = p.declared
			}
		}
	}
	return published
}

// TestNoisePublishesNothing: pods whose load varies about a constant mean are decided on once where
// CPU is not scarce, whether limits are applied or, as in mode recommend, not.
func TestNoisePublishesNothing(t *testing.T) {
	for name, noise := range noises {
		for _, recommend := range []bool{false, true} {
			pods, _ := noisyPods()
			w := newWorld(pods...)
			if n := figuresAlone(w, noise, atlength.Of(4, 10), recommend); n > 0 {
				t.Errorf("%s: %d publications, want 0 (recommend: %v)", name, n, recommend)
			}
			for _, p := range pods {
				if p.published.At.IsZero() || p.limit != p.declared {
					t.Errorf("%s: %s has the limit %v, published at %v: want its declared limit", name, p.name, p.limit, p.published.At)
				}
			}
		}
	}
}

// TestNoiseWritesLittle: where CPU is scarce and limits change with the price, decisions that change no
// limit are published at most 0.05 times per pod and minute, whatever the noise.
func TestNoiseWritesLittle(t *testing.T) {
	const most = 0.05
	minutes := atlength.Of(15, 60)
	for name, noise := range noises {
		for _, recommend := range []bool{false, true} {
			var pods []*fakePod
			for i := range 30 {
				pods = append(pods, &fakePod{
					name: fmt.Sprintf("p%d", i), request: 100, declared: 1000, demand: 20 + 15*cpu.Milli(i), // 7.1 of 4 CPUs
				})
			}
			w := newWorld(pods...)
			n := figuresAlone(w, noise, minutes, recommend)
			perMinute := float64(n) / float64(len(pods)*minutes)
			if w.state.price.inForce == 0 || perMinute > most {
				t.Errorf("%s: price %v, %.3f publications per pod and minute that change no limit, want at most %v (recommend: %v)",
					name, w.state.price.inForce, perMinute, most, recommend)
			}
			t.Logf("%s, recommend %v: %.4f per pod and minute", name, recommend, perMinute)
		}
	}
}

// TestPriceAloneIsNotPublished: a price that changes no limit is in the agent's Lease only.
func TestPriceAloneIsNotPublished(t *testing.T) {
	pods, _ := noisyPods()
	busy := &fakePod{name: "busy", request: 3500, demand: 1000, unmanaged: true} // its limit is never published
	w := newWorld(append(pods, busy)...)
	w.run(60)
	busy.demand = 4000
	published := 0
	for range 1800 {
		for _, d := range w.tick().Decisions {
			if d.Publish {
				published++
			}
		}
	}
	if w.state.price.inForce == 0 || published > 0 {
		t.Errorf("price %v: %d publications, want 0", w.state.price.inForce, published)
	}
}

// TestSteadyLoadPublishesNothing: from four minutes after the last change of the load, a limit changes at most twice in
// five minutes, and at most twice in the five minutes after those.
func TestSteadyLoadPublishesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawPods(t, 16_000)...)
		w.run(240)
		for range 2 {
			for _, p := range w.pods {
				p.changes = 0
			}
			w.run(300)
			for _, p := range w.pods {
				if p.changes > 2 {
					t.Errorf("the limit of %s changed %d times in five minutes of steady load", p.name, p.changes)
				}
			}
		}
	})
}

// TestThrottlingOfWaitingPodIsPublished: a pod that has bursts at its limit says so, though its demand is
// lower.
func TestThrottlingOfWaitingPodIsPublished(t *testing.T) {
	service := &fakePod{name: "service", request: 500, declared: 1000, demand: 400}
	w := newWorld(service)
	published := 0
	for i := range 120 {
		if i == 60 {
			service.bursts, published = 0.3, 0
		}
		out := w.tick()
		service.limit = service.declared // as in mode recommend
		if d, ok := decision(out, "service"); ok && d.Publish {
			published++
		}
	}
	p := service.published
	if published != 1 || p.ThrottleRatio < w.cfg.Demand.ThrottleThreshold || p.Demand >= service.declared {
		t.Errorf("%d publications in a minute of bursts, the last %+v: want one that says so", published, p)
	}
}

// TestDemandOfWaitingPodIsPublished: a pod that comes to demand its limit while a higher one is published
// and not in force, says so at once, and an hour later that it does not any more: twice an hour at most.
func TestDemandOfWaitingPodIsPublished(t *testing.T) {
	service := &fakePod{name: "service", request: 500, declared: 1000, demand: 600}
	w := newWorld(service)
	tick := func() bool {
		out := w.tick()
		service.limit = service.declared // as in mode recommend
		d, ok := decision(out, "service")
		return ok && d.Publish
	}
	for range 60 {
		tick()
	}
	if p := service.published; p.Limits["c"] != 2400 || p.Demand >= service.declared {
		t.Fatalf("published %+v, want four times the demand and a demand below the limit", p)
	}
	const hours = 3
	published, first := 0, 0
	for i := range hours * 3600 {
		if service.demand = 200; i/600%2 == 0 {
			service.demand = 1500
		}
		if tick() {
			if published++; published == 1 {
				first = i
			}
		}
	}
	last := service.published
	waits := last.Demand >= service.declared || last.ThrottleRatio >= DefaultConfig().Demand.ThrottleThreshold
	if first > 5 || !waits || published < 3 || published > 2*hours {
		t.Errorf("%d publications in %d hours, the first after %d s, want 3 to %d, at once; the last is %+v, want %v or throttled",
			published, hours, first, 2*hours, last, service.declared)
	}
}

func TestChangeDue(t *testing.T) {
	cfg := DefaultConfig()
	was := Published{At: epoch, Limits: map[string]cpu.Milli{"c": 1000}, Demand: 500, Price: 1}
	for _, c := range []struct {
		name   string
		limit  cpu.Milli
		demand cpu.Milli
		age    time.Duration
		want   bool
	}{
		{"a raise is published at once", 1200, 500, time.Second, true},
		{"a raise within the band is not", 1050, 500, time.Hour, false},
		{"a decrease waits", 800, 500, 4 * time.Second, false},
		{"and is published after the interval", 800, 500, 5 * time.Second, true},
		{"no change is not published", 1000, 500, time.Hour, false},
	} {
		d := Decision{Limit: c.limit, Containers: []ContainerLimit{{"c", c.limit}}, Demand: c.demand, Price: 1}
		if got := changeDue(cfg, epoch.Add(c.age), was, d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	low := Decision{Limit: 800, Ceiling: 800, RevokedFor: time.Second, Containers: []ContainerLimit{{"c", 800}}, Demand: 500, Price: 1}
	if !changeDue(cfg, epoch.Add(time.Second), was, low) {
		t.Error("a decrease after a raise was revoked waits")
	}
	if low.Ceiling = 1000; changeDue(cfg, epoch.Add(time.Second), was, low) {
		t.Error("a decrease below the declared limit does not wait")
	}
	if !changeDue(cfg, epoch, Published{}, Decision{}) {
		t.Error("the first decision is not published")
	}
}

// TestFiguresDue: of the figures only those that others count on are published, and seldom.
func TestFiguresDue(t *testing.T) {
	cfg := DefaultConfig()
	was := Published{At: epoch, Limits: map[string]cpu.Milli{"c": 1000}, Demand: 500, Price: 1}
	long := cfg.FiguresInterval
	for _, c := range []struct {
		name   string
		demand cpu.Milli
		price  market.Price
		bound  market.Bound
		quota  bool
		age    time.Duration
		want   bool
	}{
		{"a demand at a price waits", 1000, 1, 0, false, long - 1, false},
		{"and is published after its interval", 1000, 1, 0, false, long, true},
		{"nothing depends on it without a price", 1000, 0, 0, false, 24 * time.Hour, false},
		{"less than a quarter is not published", 620, 1, 0, true, 24 * time.Hour, false},
		{"a short quota depends on it", 1000, 0, 0, true, cfg.QuotaInterval, true},
		{"not at once", 1000, 0, 0, true, cfg.QuotaInterval - 1, false},
		{"another bound waits", 500, 0, market.ByFloor, false, long - 1, false},
		{"and is published after its interval", 500, 0, market.ByFloor, false, long, true},
		{"another price is not published", 500, 9, 0, true, 24 * time.Hour, false},
	} {
		d := Decision{Limit: 1000, Demand: c.demand, Price: c.price, Bound: c.bound}
		in := Input{Now: epoch.Add(c.age), Node: Node{Allocatable: 10_000}}
		p := PodInput{Published: was, Pod: demand.Pod{IncreaseOnNeed: c.quota}}
		if got := figuresDue(cfg, in, p, d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	small := PodInput{Published: Published{At: epoch, Demand: 10}, Pod: demand.Pod{IncreaseOnNeed: true}}
	in := Input{Now: epoch.Add(24 * time.Hour), Node: Node{Allocatable: 10_000}}
	if figuresDue(cfg, in, small, Decision{Demand: 100, Price: 1}) {
		t.Error("a change of less than a percent of the node is published")
	}
}

// What one container gets from another of its pod waits as a decrease does, unless it is throttled.
func TestResplitWaits(t *testing.T) {
	cfg := DefaultConfig()
	was := Published{At: epoch, Limits: map[string]cpu.Milli{"app": 700, "proxy": 300}, Demand: 500, Price: 1}
	pod := PodInput{Published: was, Pod: demand.Pod{Containers: []demand.Container{
		{Name: "init", ID: "0"},
		{Name: "app", ID: "1", Declared: 500, Limit: 700},
		{Name: "proxy", ID: "2", Declared: 500, Limit: 300},
	}}}
	for _, c := range []struct {
		name       string
		app, proxy cpu.Milli
		throttled  [2]float64
		age        time.Duration
		want       bool
	}{
		{"from one to the other waits", 500, 500, [2]float64{}, time.Second, false},
		{"and is published after the interval", 500, 500, [2]float64{}, cfg.PublishInterval, true},
		{"to a throttled one at once", 500, 500, [2]float64{0, 0.5}, time.Second, true},
		{"from a throttled one not", 500, 500, [2]float64{0.5, 0}, time.Second, false},
		{"what the pod gains is published at once", 700, 500, [2]float64{}, time.Second, true},
		{"also with a little from the other", 690, 350, [2]float64{}, time.Second, true},
		{"a quantum more for the pod is no raise", 510, 500, [2]float64{}, time.Second, false},
		{"less for the pod neither", 400, 500, [2]float64{}, time.Second, false},
		{"within the band never", 670, 320, [2]float64{0.5, 0.5}, time.Hour, false},
	} {
		parts := []ContainerLimit{{"app", c.app}, {"proxy", c.proxy}}
		d := Decision{Limit: c.app + c.proxy, Containers: parts, Demand: 500, Price: 1}
		rates := sense.PodRates{Containers: []sense.Rate{{}, {ThrottleRatio: c.throttled[0]}, {ThrottleRatio: c.throttled[1]}}}
		if got := changeDue(cfg, epoch.Add(c.age), was, d) || relievesThrottling(cfg, pod, rates, d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

package demand

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/market"
)

func tick(usage cpu.Milli, throttle float64) sense.Rate {
	return sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: usage, ThrottleRatio: throttle}
}

// after is the estimate after n equal ticks.
func after(n int, r sense.Rate) (e Estimate) {
	for range n {
		e = DefaultConfig().Next(e, r, 0)
	}
	return e
}

func TestBurstsKeepTheirMean(t *testing.T) {
	for _, throttle := range []float64{0, 0.1, 0.5} {
		if got := after(20, tick(300, throttle)).Demand(); got != 300 {
			t.Errorf("throttled in %v of its periods: demand %v, want its usage of 300m", throttle, got)
		}
	}
}

func TestSaturationDoublesAtMost(t *testing.T) {
	if got := after(20, tick(300, 1)).Demand(); got != 600 {
		t.Errorf("throttled in every period: demand %v, want 600m", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		u := cpu.Milli(rapid.Int64Range(0, 64_000).Draw(t, "usage"))
		d := after(1, tick(u, rapid.Float64Range(0, 1).Draw(t, "throttle"))).Demand()
		if d < u || d > 2*u {
			t.Fatalf("usage %v gives demand %v: want between it and twice it", u, d)
		}
	})
}

func TestThrottlingKeepsTheEstimate(t *testing.T) {
	cfg := DefaultConfig()
	e := after(20, tick(1000, 0))
	next := func(throttle float64, quota cpu.Milli) cpu.Milli {
		r := tick(100, throttle)
		r.Quota, r.QuotaKnown = quota, true
		return cfg.Next(e, r, 0).Demand()
	}
	if got := next(1, 100); got != 1000 {
		t.Errorf("lowered to 100m and throttled in every period: demand %v, want 1000m", got)
	}
	partly, free := next(0.75, 100), next(0, 100)
	if !(free < partly && partly < 1000) {
		t.Errorf("demand falls to %v with some throttling, and to %v without: want the latter to be lower", partly, free)
	}
	if got := next(1, 1000); got >= 1000 {
		t.Errorf("throttled in all its periods, but far below its quota: demand %v, want less than 1000m", got)
	}
}

// TestThrottlingShowsMoreDemand: at its quota, a container that is throttled in some periods demands more than
// the quota, by more than the bands of limits; one that is hardly throttled, or stalled, shows its demand.
func TestThrottlingShowsMoreDemand(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		name        string
		before      cpu.Milli
		throttle    float64
		stalled     float64
		least, most cpu.Milli
	}{
		{"in some periods", 3000, 0.4, 0, 1100, 1200},
		{"in most", 3000, 0.7, 0, 1100, 1450},
		{"at a demand within the bands", 1050, 0.4, 0, 1050, 1050},
		{"in hardly any", 3000, 0.05, 0, 1000, 1001},
		{"while it is stalled", 3000, 0.4, 0.9, 1000, 1001},
	} {
		e, r := after(20, tick(c.before, 0)), tick(1000, c.throttle)
		r.Quota, r.QuotaKnown = 1000, true
		r.Stalls = &sense.Stalls{Memory: sense.Ratio{Known: true, Value: c.stalled}}
		for range 600 {
			e = cfg.Next(e, r, 0)
		}
		if got := e.Demand(); got < c.least || got > c.most {
			t.Errorf("ten minutes at its quota, throttled %s: demand %v, want %v to %v", c.name, got, c.least, c.most)
		}
	}
}

func TestStarvationIsSeen(t *testing.T) {
	waits := tick(200, 0)
	waits.Pressure = sense.Ratio{Known: true, Value: 0.6} // halfway from 0.2 to 1
	unknown, off := waits, DefaultConfig()
	unknown.Pressure.Known = false
	off.StarvationThreshold = 1
	for name, c := range map[string]struct {
		cfg   Config
		rate  sense.Rate
		share cpu.Milli
		want  cpu.Milli
	}{
		"far below its share":        {DefaultConfig(), waits, 1000, 300},
		"near its share":             {DefaultConfig(), waits, 250, 250},
		"above its share":            {DefaultConfig(), waits, 150, 200},
		"CPU is idle":                {DefaultConfig(), waits, 0, 200},
		"pressure is not known":      {DefaultConfig(), unknown, 1000, 200},
		"starvation is switched off": {off, waits, 1000, 200},
	} {
		if got := c.cfg.Next(Estimate{}, c.rate, c.share).Demand(); got != c.want {
			t.Errorf("%s: demand %v, want %v", name, got, c.want)
		}
	}
}

func TestStarvationEndsAtTheShare(t *testing.T) {
	r := tick(200, 0)
	r.Pressure = sense.Ratio{Known: true, Value: 1}
	e := after(20, tick(4000, 0))
	for range 100 {
		e = DefaultConfig().Next(e, r, 300)
	}
	if got := e.Demand(); got < 300 || got > 301 {
		t.Errorf("a pod that used 4 cores and now waits below its share of 300m: demand %v, want 300m", got)
	}
}

func TestStallsBoundDemand(t *testing.T) {
	known := func(part float64) sense.Ratio { return sense.Ratio{Known: true, Value: part} }
	for name, c := range map[string]struct {
		cfg                cpu.Milli // StallThreshold in thousandths; 0: the default
		memory, io         sense.Ratio
		throttle, pressure float64
		want               cpu.Milli
	}{
		"throttled alone":                         {throttle: 1, want: 400},
		"throttled, not stalled":                  {throttle: 1, memory: known(0), io: known(0), want: 400},
		"throttled, stalled for half of the time": {throttle: 1, io: known(0.5), want: 400},
		"throttled, stalled for more than that":   {throttle: 1, io: known(0.64), want: 313}, // 200 / 0.64
		"a little throttled, which is less":       {throttle: 0.6, io: known(0.64), want: 240},
		"throttled, stalled most of the time":     {throttle: 1, memory: known(0.8), want: 200},
		"the higher of the two counts":            {throttle: 1, memory: known(0.1), io: known(0.9), want: 200},
		"they do not add up":                      {throttle: 1, memory: known(0.5), io: known(0.5), want: 400},
		"starved":                                 {pressure: 1, want: 400},
		"starved, stalled for more than half":     {pressure: 1, memory: known(0.625), want: 320},
		"starved, stalled most of the time":       {pressure: 1, memory: known(1), want: 200},
		"stalled and nothing else":                {io: known(1), want: 200},
		"only the bound, nearly always stalled":   {cfg: 1000, throttle: 1, memory: known(0.95), want: 211},
		"only the bound, always stalled":          {cfg: 1000, throttle: 1, memory: known(1), want: 200},
	} {
		cfg := DefaultConfig()
		if c.cfg > 0 {
			cfg.StallThreshold = c.cfg.Cores()
		}
		r := tick(200, c.throttle)
		r.Pressure = known(c.pressure)
		if c.memory.Known || c.io.Known {
			r.Stalls = &sense.Stalls{Memory: c.memory, IO: c.io}
		}
		if got := cfg.Next(Estimate{}, r, 10_000); got.Demand() != c.want || got.LatestDemand() != c.want {
			t.Errorf("%s: demand %v, of the tick alone %v, want %v", name, got.Demand(), got.LatestDemand(), c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		cfg.StallThreshold = rapid.Float64Range(0.01, 1).Draw(t, "from")
		r := tick(cpu.Milli(rapid.Int64Range(0, 64_000).Draw(t, "usage")), rapid.Float64Range(0, 1).Draw(t, "throttle"))
		r.Pressure = known(rapid.Float64Range(0, 1).Draw(t, "pressure"))
		plain, s := r, rapid.Float64Range(0, 1).Draw(t, "stalled")
		r.Stalls = &sense.Stalls{IO: known(s)}
		share := cpu.Milli(rapid.Int64Range(0, 64_000).Draw(t, "share"))
		use := r.Usage
		got, without := cfg.Next(Estimate{}, r, share), cfg.Next(Estimate{}, plain, share)
		if d := got.Demand(); d < use || d > without.Demand() || s > 0 && d.Cores() > use.Cores()/s+0.001 ||
			s >= cfg.StallThreshold && d != use {
			t.Fatalf("uses %v, stalled for %v of the time: demand %v, and %v without stalls", use, s, d, without.Demand())
		}
		if got.ThrottleRatio > r.ThrottleRatio || s >= cfg.StallThreshold && got.ThrottleRatio != 0 {
			t.Fatalf("throttle ratio %v counts as %v", r.ThrottleRatio, got.ThrottleRatio)
		}
	})
}

// Throttling at the quota keeps the estimate, but not for a stalled container.
func TestStallsLowerTheEstimate(t *testing.T) {
	e := after(20, tick(1000, 0))
	r := tick(100, 1)
	r.Quota, r.QuotaKnown, r.Stalls = 100, true, &sense.Stalls{Memory: sense.Ratio{Known: true, Value: 0.9}}
	for range 60 {
		e = DefaultConfig().Next(e, r, 0)
	}
	if got := e.Demand(); got < 100 || got > 102 {
		t.Errorf("a minute after its stall began: demand %v, want its usage of 100m", got)
	}
}

func TestGapDropsTheWindow(t *testing.T) {
	cfg := DefaultConfig()
	warm := after(cfg.WarmUpSamples, tick(300, 0))
	if !warm.Warm(cfg) || after(cfg.WarmUpSamples-1, tick(300, 0)).Warm(cfg) {
		t.Fatalf("warm after %d samples: want exactly that many", cfg.WarmUpSamples)
	}
	for _, v := range []sense.Validity{sense.NoEarlierSample, sense.Gap, sense.Reset, sense.Missing} {
		e := cfg.Next(warm, sense.Rate{Validity: v, Usage: 1 << 40}, 0)
		if e.Samples != 0 || e.Latest != 0 || e.ThrottleRatio != 0 || e.Warm(cfg) {
			t.Errorf("after %v: %+v, want no samples", v, e)
		}
		if e.Demand() <= 200 || e.Demand() > 300 {
			t.Errorf("after %v: demand %v: want most of the 300m before, never more", v, e.Demand())
		}
		if e = cfg.Next(e, tick(50, 0), 0); e.Demand() != 50 || e.Samples != 1 {
			t.Errorf("the first tick after %v: %+v, want 50m from one sample", v, e)
		}
	}
}

func TestRisesFastFallsSlowly(t *testing.T) {
	cfg := DefaultConfig()
	up := cfg.Next(after(20, tick(100, 0)), tick(1100, 0), 0).Demand() - 100
	down := 1100 - cfg.Next(after(20, tick(1100, 0)), tick(100, 0), 0).Demand()
	if up != 300 || down != 100 {
		t.Errorf("a step of 1000m moves the estimate by %v up and %v down, want 300m and 100m", up, down)
	}
	// Two half seconds move the estimate as far as one second.
	half := tick(1100, 0)
	half.Elapsed = 500 * time.Millisecond
	if got := cfg.Next(cfg.Next(after(20, tick(100, 0)), half, 0), half, 0).Demand() - 100; got != up {
		t.Errorf("two half ticks move the estimate by %v, want %v", got, up)
	}
}

func TestEntitlement(t *testing.T) {
	for _, c := range []struct {
		request, declared, want cpu.Milli
		reason                  string
	}{
		{100, 500, 110, "one quantum above the request, so that the pod stays Burstable"},
		{0, 500, 100, "at least 100m"},
		{0, 1_000_000, 100, "at least 100m"},
		{0, 101, 100, "at least 100m"},
		{0, 40, 40, "the declared limit where it is lower than 100m"},
		{0, 11, 20, "the declared limit in whole quanta"},
		{0, 99, 100, "the declared limit in whole quanta"},
		{0, 5, 10, "never below what the kernel can enforce"},
		{0, 1, 10, "never below what the kernel can enforce"},
		{0, 10, 10, "never below what the kernel can enforce"},
		{105, 500, 120, "above the request in whole quanta"},
		{1, 1, 20, "above the request in whole quanta"},
		{1, 5, 20, "above the request in whole quanta"},
		{95, 101, 110, "above the request in whole quanta"},
		{999_999, 1_000_000, 1_000_010, "above the request in whole quanta"},
		{10, 11, 20, "above the request even where no more was declared"},
		{500, 500, 510, "above the request even where no more was declared"},
	} {
		if got := Entitlement(c.request, c.declared); got != c.want {
			t.Errorf("request %v, declared %v: %v, want %v: %s", c.request, c.declared, got, c.want, c.reason)
		}
	}
}

// TestBounds: a floor gives way to a ceiling, a declared limit in force may stay, and so does the
// limit of a container for which no settable limit is within the ceiling.
func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		request, declared, limit, floor, ceiling cpu.Milli
		want                                     Bounds // Settable, Minimum, Entitlement, Floor, Ceiling
	}{
		"increased before":                       {500, 500, 1000, 0, 4000, Bounds{510, 510, 510, 510, 4000}},
		"declared limit is the request":          {500, 500, 500, 0, 4000, Bounds{510, 500, 510, 500, 4000}},
		"declared limit is just above":           {50, 55, 55, 0, 4000, Bounds{60, 55, 60, 55, 4000}},
		"floor above the declared limit":         {500, 500, 500, 600, 4000, Bounds{510, 500, 510, 600, 4000}},
		"declared limit below the quantum":       {1, 4, 4, 0, 4000, Bounds{20, 20, 20, 20, 4000}},
		"ceiling is the request":                 {500, 500, 500, 600, 500, Bounds{510, 500, 510, 500, 500}},
		"ceiling is the request, limit is above": {500, 800, 900, 0, 500, Bounds{510, 900, 510, 900, 900}},
		"floor above the ceiling":                {100, 500, 500, 600, 400, Bounds{110, 110, 110, 400, 400}},
		"entitlement above the ceiling":          {10, 500, 500, 0, 50, Bounds{20, 20, 100, 50, 50}},
	} {
		got := Container{Request: c.request, Declared: c.declared, Limit: c.limit}.Within(c.floor, c.ceiling).Bounds
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Container{Declared: cpu.Milli(rapid.Int64Range(1, 2000).Draw(t, "declared"))}
		c.Request = cpu.Milli(rapid.Int64Range(0, int64(c.Declared)).Draw(t, "request"))
		c.Limit = max(c.Request+cpu.Quantum, cpu.Milli(rapid.Int64Range(10, 3000).Draw(t, "limit")))
		if rapid.Bool().Draw(t, "as declared") {
			c.Limit = c.Declared
		}
		ceiling := 10 * cpu.Milli(rapid.Int64Range(0, 300).Draw(t, "ceiling"))
		c = c.Within(10*cpu.Milli(rapid.Int64Range(0, 300).Draw(t, "floor")), ceiling)
		switch stays := c.Floor == c.Limit; {
		case c.Floor > c.Ceiling || c.Ceiling > ceiling && !(stays && c.Ceiling == c.Floor):
			t.Fatalf("%+v exceeds its ceiling of %v", c, ceiling)
		case !stays && c.Floor < c.Request+cpu.Quantum:
			t.Fatalf("%+v: the floor might be the request", c)
		case stays && c.Floor < c.Request+cpu.Quantum && c.Limit != c.Declared && c.Limit != c.Ceiling:
			t.Fatalf("%+v: the floor is a limit too near to the request", c)
		case c.BidFloor() > c.Floor || c.BidFloor() > c.Entitlement:
			t.Fatalf("%+v bids a floor of %v", c, c.BidFloor())
		}
	})
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		request  cpu.Milli
		priority int32
		want     market.Budget
	}{
		{1000, 0, 1000}, {1000, 1000, 1000}, {1000, 2000, 1500}, {1000, 4000, 2000}, {1000, -1, 500},
		{1000, 2_000_000_000, 8000}, {0, 0, 2}, {1, -5, 2},
	} {
		if got := Budget(c.request, c.priority); got != c.want {
			t.Errorf("request %v at priority %d: budget %d, want %d", c.request, c.priority, got, c.want)
		}
	}
	for _, c := range []struct {
		Weights
		request cpu.Milli
		want    market.Budget
	}{{Weights{100, 0}, 250, 250}, {Weights{150, 200}, 250, 750}, {Weights{50, 50}, 250, 63}, {Weights{100, 0}, 0, 2}} {
		if got := c.Budget(c.request); got != c.want {
			t.Errorf("%+v of %v: %v, want %v", c.Weights, c.request, got, c.want)
		}
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Rise: 2, Fall: 0, WarmUpSamples: 0, SaturationThreshold: 1, StallThreshold: 0, ThrottleThreshold: 0}
	err := bad.Validate()
	for range 20 {
		if again := bad.Validate(); again.Error() != err.Error() {
			t.Fatalf("the same config has other faults:\n%v\n%v", err, again)
		}
	}
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 6 {
		t.Errorf("Validate = %v, want six faults", err)
	}
}

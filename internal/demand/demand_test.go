package demand

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

func tick(usage cpu.Milli, throttle float64) sense.Rate {
	return sense.Rate{Verdict: sense.Fresh, Elapsed: time.Second, Usage: usage, Throttle: throttle}
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
			t.Errorf("throttled in %v of its periods: demand %v, want the 300m it uses", throttle, got)
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

func TestHeldBackShowsNoLess(t *testing.T) {
	cfg := DefaultConfig()
	e := after(20, tick(1000, 0))
	next := func(throttle float64, quota cpu.Milli) cpu.Milli {
		r := tick(100, throttle)
		r.Quota, r.QuotaKnown = quota, true
		return cfg.Next(e, r, 0).Demand()
	}
	if got := next(1, 100); got != 1000 {
		t.Errorf("lowered to 100m and throttled in every period, it is taken to want %v, want still 1000m", got)
	}
	partly, free := next(0.75, 100), next(0, 100)
	if !(free < partly && partly < 1000) {
		t.Errorf("demand falls to %v where it is throttled now and then, and to %v where it is not: want the latter to be less", partly, free)
	}
	if got := next(1, 1000); got >= 1000 {
		t.Errorf("throttled in all periods in which it ran, but far below its quota over all: still taken to want %v", got)
	}
}

func TestStarvedIsSeen(t *testing.T) {
	waits := tick(200, 0)
	waits.Pressure, waits.PressureKnown = 0.6, true // halfway from 0.2 to 1
	unknown, off := waits, DefaultConfig()
	unknown.PressureKnown = false
	off.StarvedFrom = 1
	for name, c := range map[string]struct {
		cfg      Config
		rate     sense.Rate
		entitled cpu.Milli
		want     cpu.Milli
	}{
		"its share is far":            {DefaultConfig(), waits, 1000, 300},
		"its share is near":           {DefaultConfig(), waits, 250, 250},
		"it has its share":            {DefaultConfig(), waits, 150, 200},
		"the node is not full":        {DefaultConfig(), waits, 0, 200},
		"the kernel does not tell":    {DefaultConfig(), unknown, 1000, 200},
		"starvation is not looked at": {off, waits, 1000, 200},
	} {
		if got := c.cfg.Next(Estimate{}, c.rate, c.entitled).Demand(); got != c.want {
			t.Errorf("%s: demand %v, want %v", name, got, c.want)
		}
	}
}

func TestStarvationEndsAtTheShare(t *testing.T) {
	r := tick(200, 0)
	r.Pressure, r.PressureKnown = 1, true
	e := after(20, tick(4000, 0))
	for range 100 {
		e = DefaultConfig().Next(e, r, 300)
	}
	if got := e.Demand(); got < 300 || got > 301 {
		t.Errorf("a pod that once used 4 cores and now waits beside its share of 300m is taken to want %v", got)
	}
}

func TestGapDropsTheWindow(t *testing.T) {
	cfg := DefaultConfig()
	warm := after(cfg.WarmUp, tick(300, 0))
	if !warm.Warm(cfg) || after(cfg.WarmUp-1, tick(300, 0)).Warm(cfg) {
		t.Fatalf("warm after %d samples: want just that many", cfg.WarmUp)
	}
	for _, v := range []sense.Verdict{sense.First, sense.Gap, sense.Reset, sense.Missing} {
		e := cfg.Next(warm, sense.Rate{Verdict: v, Usage: 1 << 40}, 0)
		if e.Samples != 0 || e.Latest != 0 || e.Throttle != 0 || e.Warm(cfg) {
			t.Errorf("after %v: %+v, want no window", v, e)
		}
		if e.Demand() <= 200 || e.Demand() > 300 {
			t.Errorf("after %v: demand %v: want most of the 300m that it had, never more", v, e.Demand())
		}
		if e = cfg.Next(e, tick(50, 0), 0); e.Demand() != 50 || e.Samples != 1 {
			t.Errorf("the first tick after %v: %+v, want 50m from one sample", v, e)
		}
	}
}

func TestReadsFastUpSlowDown(t *testing.T) {
	cfg := DefaultConfig()
	up := cfg.Next(after(20, tick(100, 0)), tick(1100, 0), 0).Demand() - 100
	down := 1100 - cfg.Next(after(20, tick(1100, 0)), tick(100, 0), 0).Demand()
	if up != 300 || down != 100 {
		t.Errorf("a step of 1000m moves the estimate by %v up and %v down, want 300m and 100m", up, down)
	}
	// Two half seconds move it as far as one second.
	half := tick(1100, 0)
	half.Elapsed = 500 * time.Millisecond
	if got := cfg.Next(cfg.Next(after(20, tick(100, 0)), half, 0), half, 0).Demand() - 100; got != up {
		t.Errorf("two half ticks move the estimate by %v, want %v", got, up)
	}
}

func TestFloor(t *testing.T) {
	for _, c := range []struct {
		request, declared, want cpu.Milli
		reason                  string
	}{
		{100, 500, 110, "one quantum above the request, so that the pod stays Burstable"},
		{0, 500, 100, "at least 100m"},
		{0, 40, 40, "or what was declared, if that is less"},
		{0, 5, 10, "never below what the kernel can enforce"},
		{105, 500, 120, "in whole quanta"},
		{500, 500, 510, "above the request even where no more was declared"},
	} {
		if got := Floor(c.request, c.declared); got != c.want {
			t.Errorf("request %v, declared %v: floor %v, want %v: %s", c.request, c.declared, got, c.want, c.reason)
		}
	}
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
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Rise: 2, Fall: 0, WarmUp: 0, SaturationFrom: 1, ThrottleThreshold: 0}
	err := bad.Validate()
	for range 20 {
		if again := bad.Validate(); again.Error() != err.Error() {
			t.Fatalf("the same config is wrong in another way:\n%v\n%v", err, again)
		}
	}
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 5 {
		t.Errorf("Validate = %v, want five complaints", err)
	}
}

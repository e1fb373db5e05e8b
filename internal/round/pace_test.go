package round

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/pacing"
)

// bursting is a node on which a service exceeds its share for some of every twenty seconds, beside a job that
// saturates.
func bursting(p pacing.Config, request cpu.Milli, busy int) (w *world, service, job *fakePod) {
	service = &fakePod{name: "service", request: request, declared: 2000, demand: 200}
	job = &fakePod{name: "job", request: 2000 - request, declared: 4000, demand: 4000, waits: 1}
	w = newWorld(service, job)
	w.cfg.Pacing = p
	for s := range 1200 {
		if service.demand = 200; s%20 >= 20-busy {
			service.demand = 3400
		}
		w.tick()
	}
	return w, service, job
}

// paced is what the lab plays as mbcas-paced.
func paced() pacing.Config {
	return pacing.Config{
		BurstAllowance: 4 * time.Second, SaturatedAfter: 30 * time.Second,
		LeastDelay: 2 * time.Second, LongestDelay: 8 * time.Second,
	}
}

// TestBurstsHaveAnAllowance: a burst within its allowance is not capped.
func TestBurstsHaveAnAllowance(t *testing.T) {
	off := pacing.Off()
	for _, c := range []struct {
		name    string
		pacing  pacing.Config
		busy    int
		lowered bool
	}{
		{"no allowance", off, 8, true},
		{"bursts within the allowance", pacing.Config{BurstAllowance: 20 * time.Second, SaturatedAfter: 30 * time.Second}, 8, false},
		{"longer ones", pacing.Config{BurstAllowance: 2 * time.Second, SaturatedAfter: 30 * time.Second}, 8, true},
	} {
		w, service, job := bursting(c.pacing, 500, c.busy)
		lowered := false
		for s := range 200 {
			if service.demand = 200; s%20 >= 20-c.busy {
				service.demand = 3400
			}
			w.tick()
			lowered = lowered || service.limit < 3000
		}
		if lowered != c.lowered {
			t.Errorf("%s: lowered %v, want %v", c.name, lowered, c.lowered)
		}
		if job.limit > 3000 {
			t.Errorf("%s: the limit of the job is %v", c.name, job.limit)
		}
	}
}

// TestIncreasesFollowFewerLulls: an increase that a burst of another pod takes back delays the next one, so that
// the limit of a pod that saturates follows fewer lulls.
func TestIncreasesFollowFewerLulls(t *testing.T) {
	increases := func(p pacing.Config) (n int) {
		w, service, job := bursting(p, 1000, 10)
		for s := range 600 {
			if service.demand = 200; s%20 >= 10 {
				service.demand = 3400
			}
			before := job.limit
			if w.tick(); job.limit > before {
				n++
			}
		}
		return n
	}
	without, with := increases(DefaultConfig().Pacing), increases(pacing.Config{
		SaturatedAfter: 30 * time.Second, LeastDelay: 10 * time.Second, LongestDelay: time.Minute,
	})
	if without < 10 || with > without/2 {
		t.Errorf("%d increases with delays, %d without: want at most half, and at least 10 without", with, without)
	}
}

// TestPacedPodsAreRaisedInTheEnd: when the load of the others ends, a pod that waits gets its ceiling.
func TestPacedPodsAreRaisedInTheEnd(t *testing.T) {
	w, service, job := bursting(paced(), 1000, 10)
	service.demand = 0
	w.run(60)
	if job.limit < 3600 { // the ceiling, less the band
		t.Errorf("a minute after the others have ended, the limit is %v", job.limit)
	}
}

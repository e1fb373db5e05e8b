package round

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/internal/pacing"
)

// bursting is a node on which a service exceeds its share for ten of every twenty seconds, beside a job that
// saturates. It has run for twenty minutes.
func bursting(p pacing.Config) (w *world, service, job *fakePod) {
	service = &fakePod{name: "service", request: 1000, declared: 2000, demand: 200}
	job = &fakePod{name: "job", request: 1000, declared: 4000, demand: 4000, waits: 1}
	w = priceAlone(service, job)
	w.cfg.Pacing = p
	for s := range 1200 {
		service.burst(s)
		w.lookAndRun()
	}
	return w, service, job
}

func (p *fakePod) burst(second int) {
	if p.demand = 200; second%20 >= 10 {
		p.demand = 3400
	}
}

// TestIncreasesFollowFewerLulls: the limit of a pod that saturates is raised once in IncreaseInterval, however
// often the others rest; without a bound it is raised in each lull.
func TestIncreasesFollowFewerLulls(t *testing.T) {
	increases := func(p pacing.Config) (n int) {
		w, service, job := bursting(p)
		for s := range 600 {
			service.burst(s)
			before := job.limit
			if w.lookAndRun(); job.limit > before {
				n++
			}
		}
		return n
	}
	rarely := pacing.Config{SaturatedAfter: 30 * time.Second, IncreaseInterval: 100 * time.Second, Burst: 1}
	if with, without := increases(rarely), increases(pacing.DefaultConfig()); with < 5 || with > 6 || without < 20 {
		t.Errorf("%d increases in ten minutes, and %d without a bound: want 5 or 6, and one in nearly each of 30 lulls",
			with, without)
	}
}

// TestPacedPodsAreRaisedInTheEnd: when the load of the others ends, a pod that waits gets its ceiling.
func TestPacedPodsAreRaisedInTheEnd(t *testing.T) {
	p := pacing.Config{SaturatedAfter: 30 * time.Second, IncreaseInterval: 30 * time.Second, Burst: 1}
	w, service, job := bursting(p)
	service.demand = 0
	w.run(70)
	if job.limit < 3600 { // the ceiling, less the band
		t.Errorf("70 s after the others have ended, the limit is %v", job.limit)
	}
}

// TestTokensArePublications: whatever becomes of publications, a pod that saturates is raised as often as it has
// tokens. In each of many lulls an increase is decided; looks are played between the rounds.
func TestTokensArePublications(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 5).Draw(rt, "burst")
		kept := rapid.SampledFrom([]int{100, 50, 10}).Draw(rt, "percent of publications that are kept")
		service := &fakePod{name: "service", request: 3000, declared: 3600, demand: 2600} // it is not capped
		job := &fakePod{name: "job", request: 1000, declared: 4000, demand: 4000, waits: 1}
		w := priceAlone(service, job)
		w.cfg.Pacing = pacing.Config{SaturatedAfter: 30 * time.Second, IncreaseInterval: 1e6 * time.Hour, Burst: burst}
		w.lookAndRun()
		for range 60 {
			w.lookAndRun()
		}
		if !w.state.paces["job"].Saturates() {
			rt.Fatal("the job does not saturate")
		}
		decided, published := 0, 0
		w.loses = func(d Decision) bool {
			if d.UID != "job" || d.Limit <= max(job.limit, job.published.Limits["c"]) {
				return false
			}
			decided++
			if rapid.IntRange(1, 100).Draw(rt, "publication") > kept {
				return true
			}
			published++
			return false
		}
		for s := range 400 {
			if service.demand = 200; s%20 >= 10 {
				service.demand = 2600
			}
			for _, look := range first(w.lookAndRun()) {
				if d, raised := decision(look, "job"); raised {
					rt.Fatalf("a look raises the job to %v", d.Limit)
				}
			}
		}
		if published != burst {
			rt.Errorf("%d increases are published of %d that were decided, with %d tokens", published, decided, burst)
		}
	})
}

func first(looks []Output, _ Output) []Output { return looks }

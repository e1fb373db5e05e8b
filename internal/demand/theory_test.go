package demand

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// TestBurstsArePaidFor is a theorem of docs/theory.md: over any number of seconds the usage of a container
// exceeds its estimates by 1/Rise of what the estimate has risen at most. So bursts between rests gain nothing
// that lasts.
func TestBurstsArePaidFor(t *testing.T) {
	cfg := DefaultConfig()
	closest := math.Inf(1)
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		on, off, low, high := 1+rng.IntN(30), rng.IntN(30), rng.Float64(), 1+10*rng.Float64()
		var first, e Estimate
		used, estimated := 0.0, 0.0
		for i := range 1 + rng.IntN(300) {
			r := sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: cpu.FromCores(low * rng.Float64())}
			if i%(on+off) < on {
				r.Usage = cpu.FromCores(high * (0.5 + rng.Float64()))
			}
			if rng.IntN(3) == 0 {
				r.ThrottleRatio, r.Quota, r.QuotaKnown = rng.Float64(), r.Usage, true
			}
			if rng.IntN(3) == 0 {
				r.Pressure = sense.Ratio{Known: true, Value: rng.Float64()}
			}
			before := e
			if e = cfg.Next(e, r, cpu.FromCores(high)); i == 0 {
				first = e
				continue
			}
			used, estimated = used+r.Usage.Cores(), estimated+before.Mean
			room := estimated + (e.Mean-first.Mean)/cfg.Rise - used
			if room < -1e-9 {
				t.Fatalf("seed %d: after %d s it has used %.3f core seconds, %.3f more than its estimates pay for",
					seed, i, used, -room)
			}
			closest = min(closest, room)
		}
	}
	if closest > 1e-6 {
		t.Errorf("the least room was %.3f core seconds: no load came near the bound", closest)
	}
}

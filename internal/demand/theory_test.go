package demand

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// TestBurstsArePaidFor is a theorem of docs/theory.md: in any window the usage of a container exceeds its estimates
// by 1/Rise of what the estimate has risen at most. So bursts between rests gain nothing that lasts. Windows add
// up, so the test checks each window of one second. What is left over is small in loads that rest for short times.
func TestBurstsArePaidFor(t *testing.T) {
	cfg := DefaultConfig()
	closest := 1.0 // what is left over after three rests or more, as a part of the usage
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		on, off, low, high := 1+rng.IntN(30), 1+rng.IntN(30), rng.Float64(), 1+10*rng.Float64()
		noise, signals := rng.Float64(), rng.IntN(2) == 0
		var e Estimate
		used, left, rests, seconds := 0.0, 0.0, 0, 1+rng.IntN(300)
		for i := range seconds {
			r := sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: cpu.FromCores(low * rng.Float64())}
			if i%(on+off) < on {
				r.Usage = cpu.FromCores(high * (1 + noise*(rng.Float64()-0.5)))
			}
			if signals && rng.IntN(3) == 0 {
				r.ThrottleRatio, r.Quota, r.QuotaKnown = rng.Float64(), r.Usage, true
			}
			if signals && rng.IntN(3) == 0 {
				r.Pressure = sense.Ratio{Known: true, Value: rng.Float64()}
			}
			before := e
			if e = cfg.Next(e, r, cpu.FromCores(high)); i == 0 {
				continue
			}
			room := before.Mean + (e.Mean-before.Mean)/cfg.Rise - r.Usage.Cores()
			if room < -1e-9 {
				t.Fatalf("seed %d: in second %d it uses %v, %.3f more than its estimates pay for", seed, i, r.Usage, -room)
			}
			if e.Mean < before.Mean && i%(on+off) == on {
				rests++
			}
			used, left = used+r.Usage.Cores(), left+room
		}
		if rests >= 3 {
			closest = min(closest, left/used)
		}
	}
	if closest > 0.05 {
		t.Errorf("at least %.3f of the usage is left over: no load came near the bound", closest)
	}
}

package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

func TestQuantilesAreWithinABucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		all := make([]time.Duration, rapid.IntRange(1, 500).Draw(t, "n"))
		var whole, left, right Latencies
		for i := range all {
			all[i] = time.Duration(rng.ExpFloat64() * float64(50*time.Millisecond))
			whole.Add(all[i])
			if i%2 == 0 {
				left.Add(all[i])
			} else {
				right.Add(all[i])
			}
		}
		left.Merge(&right)
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.99, 0.999} {
			want, got := all[int(q*float64(len(all)))], whole.Quantile(q)
			if diff := max(want-got, got-want); diff > want/64+time.Microsecond {
				t.Fatalf("quantile %v of %d is %v, want %v", q, len(all), got, want)
			}
			if left.Quantile(q) != got {
				t.Fatalf("merged: quantile %v is %v, want %v", q, left.Quantile(q), got)
			}
		}
		if d := whole.Distribution(); d[len(d)-1].Fraction != 1 {
			t.Fatalf("the distribution ends at %v", d[len(d)-1].Fraction)
		}
	})
}

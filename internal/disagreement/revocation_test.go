package disagreement

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// TestRevocationsAreRare: the wait for the next raise doubles, up to five minutes, while each raise is revoked
// within a minute of its end, or one more wait. A raise that lasts longer has it begin anew.
func TestRevocationsAreRare(t *testing.T) {
	for name, c := range map[string]struct {
		kept time.Duration // of each raise
		want []time.Duration
	}{
		"revoked at once": {time.Second, seconds(10, 20, 40, 80, 160, 300, 300)},
		"kept for long":   {6 * time.Minute, seconds(10, 10, 10)},
		"kept for 30 s":   {30 * time.Second, seconds(10, 20, 40)},
		"kept for 2 min":  {2 * time.Minute, seconds(10, 10, 10)},
		"kept for 10 s":   {10 * time.Second, seconds(10, 20, 40, 80)},
	} {
		var r Raise
		var waits []time.Duration
		for range c.want {
			r = r.Revoke()
			wait := r.RevokedFor()
			if waits = append(waits, wait); r.Passed(wait-1).RevokedFor() == 0 || r.Passed(wait).RevokedFor() > 0 {
				t.Errorf("%s: it does not wait for %v", name, wait)
			}
			r = r.Passed(wait).Passed(c.kept)
		}
		if !slices.Equal(waits, c.want) {
			t.Errorf("%s: it waits for %v, want %v", name, waits, c.want)
		}
	}
}

// TestOnlyRaisesAboveDeclaredLimitsAreRecent: what counts as a recent raise of a pod with a declared limit of 500m.
func TestOnlyRaisesAboveDeclaredLimitsAreRecent(t *testing.T) {
	var r Raise
	for second, c := range []struct {
		limit  cpu.Milli
		priced bool
		want   bool
	}{
		{1600, false, false}, // it may have had that for long
		{400, false, false},
		{500, false, false},
		{800, true, false}, // while a price capped pods
		{500, false, false},
		{800, false, true},
		{800, false, true},
		{300, false, true},
		{300, false, true},
		{300, false, true},
		{300, false, true},
		{300, false, false}, // six seconds later
	} {
		if r = r.Passed(time.Second).Next(c.limit, 500, c.priced); r.Recent() != c.want {
			t.Errorf("after %d s recent is %v, want %v", second, r.Recent(), c.want)
		}
	}
}

func seconds(list ...int) (d []time.Duration) {
	for _, s := range list {
		d = append(d, time.Duration(s)*time.Second)
	}
	return d
}

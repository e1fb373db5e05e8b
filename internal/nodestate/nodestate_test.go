package nodestate

import (
	"slices"
	"testing"

	"github.com/mbcas/mbcas/market"
)

// TestOf: floors that exceed the supply come before the price.
func TestOf(t *testing.T) {
	for _, tc := range []struct {
		full  bool
		price market.Price
		want  State
	}{{false, 0, Free}, {false, 0.01, Scarce}, {true, 0, Full}, {true, 3, Full}} {
		if got := Of(tc.full, tc.price); got != tc.want || !slices.Contains(All, got) {
			t.Errorf("floors exceed the supply: %v, price %v: %s, want %s", tc.full, tc.price, got, tc.want)
		}
	}
}

package work

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestBurnIsTheSameEveryTime(t *testing.T) {
	if a, b := Burn(10_000), Burn(10_000); a != b {
		t.Errorf("Burn(10000) is %d, then %d", a, b)
	}
	if a, b := Burn(10_000), Burn(10_001); a == b {
		t.Error("one more iteration changes nothing: the loop is left out")
	}
}

func TestCalibrateIsInProportion(t *testing.T) {
	short, err := Calibrate(time.Millisecond)
	must.Succeed(t, err)
	long, err := Calibrate(100 * time.Millisecond)
	must.Succeed(t, err)
	// A hundred times the time is a hundred times the work; a wide band, because clocks
	// of a busy machine change their speed between the two.
	if ratio := float64(long) / float64(short); ratio < 25 || ratio > 400 {
		t.Errorf("100 ms is %.0f times 1 ms (%d and %d iterations)", ratio, long, short)
	}
}

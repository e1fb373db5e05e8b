package round

import (
	"testing"

	"github.com/mbcas/mbcas/cpu"
)

// TestIdleCPU: CPU is idle where usage is below the supply by a fiftieth of it, and by 100m at least.
func TestIdleCPU(t *testing.T) {
	for _, tt := range []struct {
		supply, usage cpu.Milli
		want          bool
	}{
		{1000, 900, true}, {1000, 901, false}, {10000, 9800, true}, {10000, 9801, false}, {0, 0, false}, {1000, 2000, false},
	} {
		idle, known := NodeDecision{Supply: tt.supply, Usage: tt.usage, UsageKnown: true}.HasIdleCPU()
		if idle != tt.want || !known {
			t.Errorf("usage %v of a supply of %v: idle %v, known %v, want %v", tt.usage, tt.supply, idle, known, tt.want)
		}
	}
	if _, known := (NodeDecision{Supply: 1000}).HasIdleCPU(); known {
		t.Error("usage that was not read counts as known")
	}
}

package round

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
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

// TestNoIdleCPUOnAFullNode: work outside of pods takes more CPU than the market subtracts from its supply, so pods use
// less than the supply and no CPU is idle.
func TestNoIdleCPUOnAFullNode(t *testing.T) {
	var g Gauge
	node := Node{Capacity: 4000, Allocatable: 4000}
	for _, tt := range []struct {
		usage cpu.Milli // of the node
		times int
		full  bool
	}{{4000, 1, false}, {4000, 60, true}, {3800, 1, false}} {
		var d NodeDecision
		for range tt.times {
			d = g.Measure(DefaultConfig(), node, sense.NodeRates{
				Elapsed: time.Second, Usage: tt.usage, UsageKnown: true, Kubepods: 1000, KubepodsKnown: true,
			})
		}
		if d.Supply-d.Usage < leastIdle {
			t.Fatalf("pods use %v of a supply of %v, want less", d.Usage, d.Supply)
		}
		if idle, known := d.HasIdleCPU(); !known || idle == tt.full || d.Full != tt.full {
			t.Errorf("a node that uses %v of 4 cores is full: %v, has idle CPU: %v, known: %v, want full: %v",
				tt.usage, d.Full, idle, known, tt.full)
		}
	}
}

package snapshot

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
)

// TestParseRound: the plugin reads what the agent serves on /debug/round.
func TestParseRound(t *testing.T) {
	pressure, memory, io := 0.304, 0.87, 0.04
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	data, err := json.Marshal(allocation.RoundReport{
		At: at,
		Node: allocation.NodeReport{
			Price: 1.25, Supply: 3400, Demand: 5100, Usage: 3300, System: 200, Pressure: &pressure, FloorsExceedSupply: true,
			Managed: 5, Unmanaged: 4, WarmingUp: 3,
		},
		Pods: []allocation.PodReport{{
			UID: "u1", Desired: 700, Containers: map[string]cpu.Milli{"app": 700}, Usage: 650, Demand: 720, Throttled: 0.126, Pressure: &pressure,
			MemoryPressure: &memory, IOPressure: &io,
			Budget: 900, Floor: 210, Ceiling: 4000, BoundBy: "Price",
		}, {UID: "u2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	market, figures, err := ParseRound("n1", data)
	if err != nil {
		t.Fatal(err)
	}
	thirty, most, few := int32(30), int32(87), int32(4)
	wantMarket := Market{
		Node: "n1", At: at, Price: 1.25, Supply: 3400, Usage: 3300, Demand: 5100, System: 200, Pressure: &thirty,
		Managed: 5, Unmanaged: 4, Warming: 3, FloorsExceedSupply: true,
	}
	if diff := cmp.Diff(wantMarket, market); diff != "" {
		t.Errorf("market (-want +got):\n%s", diff)
	}
	want := &Figures{
		Live: true, At: at, Usage: 650, Demand: 720, Throttled: 13, Pressure: &thirty, MemoryPressure: &most, IOPressure: &few, Budget: 900, Price: 1.25, Floor: 210, Ceiling: 4000,
		BoundBy: v1alpha1.BoundByPrice, Desired: 700, Containers: map[string]cpu.Milli{"app": 700}, FloorsExceedSupply: true,
	}
	if diff := cmp.Diff(want, figures[types.UID("u1")]); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if f := figures[types.UID("u2")]; f.Pressure != nil || f.MemoryPressure != nil || f.IOPressure != nil {
		t.Errorf("a figure that the kernel does not report: %+v", f)
	}
}

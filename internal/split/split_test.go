package split

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

func drawParts(t *rapid.T) []Part {
	parts := make([]Part, rapid.IntRange(1, 5).Draw(t, "containers"))
	for i := range parts {
		tens := func(from, to int, what string) cpu.Milli {
			return cpu.Milli(rapid.IntRange(from, to).Draw(t, what)) * cpu.Quantum
		}
		p := &parts[i]
		p.Floor = tens(1, 30, "floor")
		p.Settable, p.Ceiling = p.Floor, p.Floor+tens(0, 300, "room")
		p.Demand = cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "demand"))
		p.Limit = p.Floor + cpu.Milli(rapid.IntRange(0, 1000).Draw(t, "above the floor"))
	}
	return parts
}

func TestDivisionsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := drawParts(t)
		total := cpu.Milli(rapid.IntRange(0, 10_000).Draw(t, "total"))
		var least, most, sum cpu.Milli
		for i, l := range Divide(nil, total, parts) {
			least, most, sum = least+parts[i].Floor, most+parts[i].Ceiling, sum+l
			if l < parts[i].Floor || l > parts[i].Ceiling || l != l.RoundDown(cpu.Quantum) {
				t.Fatalf("part %d has %v: %+v", i, l, parts[i])
			}
		}
		if want := total.RoundDown(cpu.Quantum).Clamp(least, most); sum != want {
			t.Fatalf("the parts of %v add up to %v, want %v", total, sum, want)
		}
	})
}

func TestIdleBesideABusyContainer(t *testing.T) {
	busy, idle, fits := Part{Demand: 900, Floor: 500}, Part{Demand: 20, Floor: 400}, Part{Demand: 400, Floor: 500}
	for want, parts := range map[cpu.Milli][]Part{380: {busy, idle}, 480: {fits, busy, idle}, 0: {fits, idle}} {
		if got := Idle(parts); got != want {
			t.Errorf("%+v leave %v, want %v", parts, got, want)
		}
	}
	if got := Idle([]Part{busy}); got != 0 {
		t.Errorf("a busy container alone leaves %v", got)
	}
}

func TestRaisesLowerNoContainer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := drawParts(t)
		left := cpu.Milli(rapid.IntRange(-1000, 10_000).Draw(t, "left"))
		var demand cpu.Milli
		for _, p := range parts {
			demand += p.Demand
		}
		raised, most := Raise(parts, left)
		total := min(most, cpu.Milli(rapid.IntRange(0, 20_000).Draw(t, "total")))
		for i, l := range Divide(nil, total, raised) {
			p := parts[i]
			if l < min(p.Limit, p.Ceiling) {
				t.Fatalf("part %d goes from %v to %v", i, p.Limit, l)
			}
			if most := max(p.Limit, p.Floor, left-(demand-p.Demand)); l > most {
				t.Fatalf("part %d goes from %v to %v, and the others leave %v", i, p.Limit, l, left-(demand-p.Demand))
			}
		}
	})
}

// TestRaisesLeaveOthersTheirDemand: see the package's promise. A container uses no more than its limit.
func TestRaisesLeaveOthersTheirDemand(t *testing.T) {
	raises := 0
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]Part, rapid.IntRange(1, 4).Draw(t, "containers"))
		hundreds := func(what string, most int) cpu.Milli {
			return cpu.Milli(rapid.IntRange(0, most).Draw(t, what)) * 100
		}
		for i := range parts {
			parts[i] = Part{Demand: hundreds("demand", 15), Limit: 100 + hundreds("limit", 15), Floor: 100, Ceiling: 8000}
		}
		left := hundreds("left by other pods", 60)
		raised, total := Raise(parts, left)
		var taken, before cpu.Milli
		some := false
		for i, l := range Divide(nil, total, raised) {
			p := parts[i]
			was := p.Limit.Clamp(p.Floor, p.Ceiling)
			before += min(was, p.Demand)
			if l > was {
				taken, some = taken+l, true
			} else {
				taken += min(l, p.Demand)
			}
		}
		if some && taken > left {
			t.Fatalf("%+v: together they may take %v, %v before, and other pods leave %v", raised, taken, before, left)
		}
		if some {
			raises++
		}
	})
	if raises == 0 {
		t.Error("no raise was drawn")
	}
}

// TestRaisesGiveWhatIsLeft: a container that needs more gets what is left, whatever the limits of others are that
// do not use them, and two that need more share it.
func TestRaisesGiveWhatIsLeft(t *testing.T) {
	part := func(limit, demand cpu.Milli) Part {
		return Part{Limit: limit, Demand: demand, Floor: 10, Ceiling: 8000}
	}
	for name, c := range map[string]struct {
		parts []Part
		want  []cpu.Milli
	}{
		"one container":           {[]Part{part(500, 1000)}, []cpu.Milli{3500}},
		"two that need more":      {[]Part{part(500, 1000), part(500, 1000)}, []cpu.Milli{1750, 1750}},
		"one beside a small one":  {[]Part{part(500, 1000), part(200, 10)}, []cpu.Milli{3490, 200}},
		"one beside a high limit": {[]Part{part(500, 1000), part(4000, 100)}, []cpu.Milli{3400, 4000}},
		"two beside a high limit": {[]Part{part(500, 1000), part(500, 1000), part(3000, 100)}, []cpu.Milli{1700, 1700, 3000}},
		"one beside a ceiling": {
			[]Part{{Limit: 500, Demand: 1000, Floor: 10, Ceiling: 800}, part(200, 150)}, []cpu.Milli{800, 2500},
		},
		"one that may soon need it": {[]Part{part(2000, 900), part(2000, 100)}, []cpu.Milli{3400, 2000}},
	} {
		raised, total := Raise(c.parts, 3500)
		if got := Divide(nil, total, raised); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

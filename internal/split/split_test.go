package split

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
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

func TestRaisesLowerNoContainer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := drawParts(t)
		left := cpu.Milli(rapid.IntRange(-1000, 10_000).Draw(t, "left"))
		var demand cpu.Milli
		for _, p := range parts {
			demand += p.Demand
		}
		raised := Raise(parts, left)
		var total cpu.Milli
		for _, p := range raised {
			total += p.Ceiling
		}
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

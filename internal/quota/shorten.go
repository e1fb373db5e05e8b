package quota

import (
	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
)

// Shorten cuts each increase of a resize by the same share, so that together they are no more than
// granted. Decreases stay as they are: they make room. worth is false if no increase is left that
// exceeds band, as a share of its limit, and nothing decreases.
func Shorten(m actuator.Move, granted cpu.Milli, band float64) (cut actuator.Move, worth bool) {
	var increase cpu.Milli
	for _, c := range m.Changes {
		increase += max(0, c.To-c.From)
	}
	cut.UID, granted = m.UID, min(granted, increase)
	for _, c := range m.Changes {
		if c.To > c.From {
			c.To = c.From + cpu.FromCores((c.To-c.From).Cores()*granted.Cores()/increase.Cores()).RoundDown(cpu.Quantum)
			worth = worth || (c.To-c.From).Cores() >= band*c.From.Cores() && c.To > c.From
		}
		if c.To != c.From {
			cut.Changes = append(cut.Changes, c)
		}
		worth = worth || c.To < c.From
	}
	return cut, worth
}

package story

import (
	"fmt"
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// why says what led to a decision.
func why(d *round.Decision, f *replay.Frame) string {
	var uses string
	switch {
	case f.Look != nil:
		uses = "a look between two rounds saw it throttled"
	case d.ThrottleRatio > 0:
		uses = fmt.Sprintf("it used %v, was throttled in %.0f%% of its periods, and demands %v", d.Usage, 100*d.ThrottleRatio, d.Demand)
	default:
		uses = fmt.Sprintf("it used %v, and demands %v", d.Usage, d.Demand)
	}
	if other := besidePrice(d, f); other != "" {
		return uses + "; " + other
	}
	switch d.Bound {
	case market.ByPrice:
		return fmt.Sprintf("%s; its budget of %v buys %v at a price of %v", uses, d.Budget, d.Limit, d.Price)
	case market.ByFloor:
		return fmt.Sprintf("%s; its budget of %v buys less than its floor at a price of %v", uses, d.Budget, d.Price)
	case market.ByCeiling:
		return uses + "; this is its ceiling"
	}
	if d.Price > 0 {
		return fmt.Sprintf("%s; the price of %v does not cap it", uses, d.Price)
	}
	return uses + "; CPU has no price"
}

// besidePrice says which rule gives a limit another value than the price and the bounds do; "": none.
func besidePrice(d *round.Decision, f *replay.Frame) string {
	n := f.Output.Node
	if d.Bound == market.ByNothing && d.Price == 0 && n.Price > 0 {
		return fmt.Sprintf("it is new, and CPU is idle, so the price of %v does not count yet", n.Price)
	}
	if d.Bound != market.ByPrice && d.Bound != market.ByFloor || d.Price == 0 {
		return ""
	}
	line := max(bought(d.Budget, d.Price), d.Floor)
	text := fmt.Sprintf("its budget of %v buys %v at a price of %v", d.Budget, bought(d.Budget, d.Price), d.Price)
	if d.Bound == market.ByFloor {
		text += fmt.Sprintf(", and its floor is %v", d.Floor)
	}
	most := ""
	if d.Limit == d.Ceiling {
		most = fmt.Sprintf("; %v is its ceiling", d.Limit)
	}
	rounding := cpu.Quantum * cpu.Milli(len(d.Containers))
	switch {
	case d.Limit < line-rounding:
		return text + ", but the increases of a pod that saturates are spread over time"
	case d.Limit <= line+rounding:
		return ""
	case !n.UsageKnown:
		return text + ", but nothing is lowered while the usage of the node is not readable" + most
	case n.Cleared == 0:
		return text + ", but all demands fit the supply, so nothing is lowered" + most
	}
	return text + ", but its demand is not known yet: a pod with a new container is not lowered" + most
}

// bought is what a budget buys at a price.
func bought(b market.Budget, p market.Price) cpu.Milli {
	return cpu.Milli(math.Round(float64(b) / float64(p)))
}

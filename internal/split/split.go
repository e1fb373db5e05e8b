// Package split divides a pod's limit among its limited containers by the same rule as the node's CPU among pods: the
// demand of a container is its budget, within its floor and ceiling.
//
// What it promises, each a test of the same name:
//   - DivisionsAddUp: parts are whole quanta within their bounds, and add up to the total as far as these allow.
//   - RaisesLowerNoContainer: the bounds for a raise lower none, and leave each what the others of the pod leave.
package split

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Part is a container with a limit.
type Part struct {
	Demand, Floor, Ceiling cpu.Milli
	Limit                  cpu.Milli // in its spec
	Settable               cpu.Milli // the lowest limit that a resize sets
}

// Keep is the limits as they are, within their bounds: an owner may have declared less than the floor, or more than the
// node has.
func Keep(parts []Part) []cpu.Milli {
	limits := make([]cpu.Milli, len(parts))
	for i, p := range parts {
		limits[i] = p.Limit.Clamp(p.Floor, p.Ceiling)
	}
	return limits
}

// Divide is the limits of a total. They are whole quanta. What rounding takes off goes to the container with the highest
// demand, then to the first with room below its ceiling. Without a solver it makes one.
func Divide(solver *market.Solver, total cpu.Milli, parts []Part) []cpu.Milli {
	problem := market.Problem{Supply: total, Bids: make([]market.Bid, len(parts))}
	busiest := 0
	for i, p := range parts {
		problem.Bids[i] = market.Bid{Budget: market.Budget(p.Demand), Demand: p.Ceiling, Floor: p.Floor, Ceiling: p.Ceiling}
		if p.Demand > parts[busiest].Demand {
			busiest = i
		}
	}
	if solver == nil {
		solver = new(market.Solver)
	}
	price := solver.Clear(problem).Price
	limits, rest := make([]cpu.Milli, len(parts)), total
	for i, b := range problem.Bids {
		limits[i] = max(b.Limit(price).RoundDown(cpu.Quantum), b.Floor)
		rest -= limits[i]
	}
	distribute(limits, parts, busiest, rest)
	for i, p := range parts {
		if limits[i] < p.Settable && limits[i] != p.Limit { // a resize cannot set so low a limit
			limits[i] = p.Limit
		}
	}
	return limits
}

// distribute adds the rest of a total, in whole quanta, to the limit of the busiest container, then
// to the first ones below their ceilings.
func distribute(limits []cpu.Milli, parts []Part, busiest int, rest cpu.Milli) {
	add := func(i int) {
		room := (parts[i].Ceiling - limits[i]).RoundDown(cpu.Quantum)
		more := max(0, min(rest.RoundDown(cpu.Quantum), room))
		limits[i] += more
		rest -= more
	}
	if len(parts) > 0 {
		add(busiest)
	}
	for i := range parts {
		add(i)
	}
}

// Raise is the parts with the bounds for a raise of a pod to which others leave so much: no container is lowered, and
// each may have what the other containers leave of it.
func Raise(parts []Part, left cpu.Milli) []Part {
	var all cpu.Milli
	for _, p := range parts {
		all += p.Demand
	}
	raised := make([]Part, len(parts))
	for i, p := range parts {
		most := max((left-(all-p.Demand)).RoundDown(cpu.Quantum), p.Limit).Clamp(p.Floor, p.Ceiling)
		p.Floor, p.Ceiling = p.Limit.Clamp(p.Floor, most), most
		raised[i] = p
	}
	return raised
}

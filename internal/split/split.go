// Package split divides a pod's limit among its limited containers by the same rule as the node's
// CPU among pods: the demand of a container is its budget, within its floor and ceiling.
//
// What it promises, each a test of the same name:
//   - DivisionsAddUp: parts are whole quanta within their bounds, and add up to the total as far as
//     these allow.
//   - IdleBesideABusyContainer: what containers leave of their floors counts where another one needs more than its own.
//   - RaisesLowerNoContainer: the bounds for a raise lower none, and leave each what the others of
//     the pod leave.
//   - RaisesLeaveOthersTheirDemand: the containers that are raised, and the demand of those that
//     are not, take no more than other pods leave.
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

// Keep is the limits as they are, within their bounds: an owner may have declared less than the
// floor, or more than the node has.
func Keep(parts []Part) []cpu.Milli {
	limits := make([]cpu.Milli, len(parts))
	for i, p := range parts {
		limits[i] = p.Limit.Clamp(p.Floor, p.Ceiling)
	}
	return limits
}

// Divide is the limits of a total. They are floors or whole quanta. What rounding takes off goes to the
// container with the highest demand, then to the first with room below its ceiling. Without a
// solver it makes one.
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

// distribute adds the rest of a total to the limit of the busiest container, then to the first ones below their
// ceilings. Limits that it raises are whole quanta.
func distribute(limits []cpu.Milli, parts []Part, busiest int, rest cpu.Milli) {
	add := func(i int) {
		more := max(0, min(limits[i]+rest, parts[i].Ceiling).RoundDown(cpu.Quantum)-limits[i])
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

// Idle is what the containers that demand less than their floors leave of these, if another one demands more than its
// floor.
func Idle(parts []Part) (sum cpu.Milli) {
	more := false
	for _, p := range parts {
		more, sum = more || p.Demand > p.Floor, sum+max(0, p.Floor-p.Demand)
	}
	if !more {
		return 0
	}
	return sum
}

// Raise is the parts with the bounds for a raise of a pod to which other pods leave so much, and
// the highest total. No container is lowered. Each may have what the other containers demand no
// part of, and all of them together no more than other pods leave: a container that is raised
// counts with its limit, another one with its demand. So where their limits are in the way, only
// those are raised that demand them, or the one that is closest to its limit.
func Raise(parts []Part, leftByOthers cpu.Milli) (raised []Part, total cpu.Milli) {
	var demand, least cpu.Milli
	for _, p := range parts {
		demand += p.Demand
	}
	raised = make([]Part, len(parts))
	closest := 0
	for i, p := range parts {
		most := max((leftByOthers-(demand-p.Demand)).RoundDown(cpu.Quantum), p.Limit).Clamp(p.Floor, p.Ceiling)
		p.Floor, p.Ceiling = p.Limit.Clamp(p.Floor, most), most
		raised[i], least = p, least+p.Floor
		if p.Demand*raised[closest].Floor > raised[closest].Demand*p.Floor {
			closest = i
		}
	}
	needs := func(i int) bool { return i == closest || raised[i].Demand >= raised[i].Floor }
	var all, needed, unused cpu.Milli // raises of all, and of those that need one; limits that others do not use
	for i, p := range raised {
		if all += p.Ceiling - p.Floor; needs(i) {
			needed += p.Ceiling - p.Floor
		} else {
			unused += p.Floor - p.Demand
		}
	}
	unclaimed := leftByOthers - least
	needed = max(0, min(needed, (unclaimed+unused).RoundDown(cpu.Quantum)))
	if unclaimed = max(0, unclaimed.RoundDown(cpu.Quantum)); needed <= unclaimed {
		return raised, least + min(all, unclaimed)
	}
	for i := range raised {
		if !needs(i) {
			raised[i].Ceiling = raised[i].Floor
		}
	}
	return raised, least + needed
}

// Package nodestate says in a word how scarce the CPU of a node is: in tables, on the page and in metrics alike.
package nodestate

import "github.com/mbcas/mbcas/market"

// State is the state of a node's market.
type State string

// The states, the best first.
const (
	Free    State = "free"    // CPU has no price
	Scarce  State = "scarce"  // CPU has a price
	Full    State = "full"    // the floors of the pods exceed the supply
	Unknown State = "unknown" // the agent tells no market: it has just started, or is of another version
	Silent  State = "silent"  // the agent renews its Lease no more
)

// All are the states, in that order.
var All = []State{Free, Scarce, Full, Unknown, Silent}

// Of is the state of a market that is known.
func Of(floorsExceedSupply bool, price market.Price) State {
	switch {
	case floorsExceedSupply:
		return Full
	case price > 0:
		return Scarce
	}
	return Free
}

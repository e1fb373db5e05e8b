package blastradius

import (
	"slices"
	"time"
)

// Node is what tells harm that comes from a node from harm by a change of limits.
type Node struct {
	// Ready is whether it is Ready, since ReadySince; zero: not known.
	Ready      bool
	ReadySince time.Time
	// Others are its pods of other workloads than the harmed one.
	Others []Health
}

// Health is how a pod fared lately. Zero times: never.
type Health struct {
	Created time.Time
	// Troubles are when a pod that is not Ready ceased to be, and when containers of it failed.
	Troubles []time.Time
	// ReadySince is when a pod that is Ready became so.
	ReadySince time.Time
	// Lowered is when its limit was last lowered.
	Lowered time.Time
}

// leastOthers is how many other pods are in trouble at once at least where their node is the cause.
const leastOthers = 2

// Explains says whether the node explains harm of one of its pods: it is not Ready, or became Ready after that, or more
// than half of its other pods were in trouble at once, which is no later or earlier than within. A pod that was lowered
// less than recent before, or since, says nothing: it may have been harmed by that.
func (n Node) Explains(harm time.Time, within, recent time.Duration) bool {
	if !n.Ready || n.ReadySince.After(harm) {
		return true
	}
	all, troubled := 0, 0
	for _, h := range n.Others {
		if !h.Lowered.IsZero() && h.Lowered.After(harm.Add(-recent)) {
			continue
		}
		all++
		if h.Troubled(harm, within, recent) {
			troubled++
		}
	}
	return troubled >= leastOthers && 2*troubled > all
}

// Troubled says whether the pod was in trouble at that time, or within so long before or after. One that became Ready
// soon after was not Ready then, unless it is so new that it was starting.
func (h Health) Troubled(at time.Time, within, recent time.Duration) bool {
	near := func(t time.Time) bool { return t.Sub(at).Abs() <= within }
	back := !h.ReadySince.Before(at) && h.ReadySince.Sub(at) <= within+recent
	return back && h.Created.Before(at.Add(-recent)) || slices.ContainsFunc(h.Troubles, near)
}

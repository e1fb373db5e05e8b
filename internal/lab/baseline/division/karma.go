package division

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
)

const (
	// karmaSlice is what is lent and borrowed in one piece. 10m is the step of limits in Kubernetes, so
	// nothing is lost to rounding. At 100m a hundred pods on 16 cores would have no guaranteed
	// slice at all: half of the node makes 80, or 72 after the reserve.
	karmaSlice = cpu.Quantum
	// karmaAlpha is the part of the node that is shared and not guaranteed. 0.5 is the paper's usual
	// value, between a fixed partition (0) and a node where everything is borrowed (1).
	karmaAlpha = 0.5
	// karmaCredits is what the first pods start with: one is a slice for a quantum. A million is 10,000
	// core seconds, so that no pod runs out and the node is used in full; only differences matter
	// then.
	karmaCredits = 1_000_000
)

// karma (OSDI'23; resource-disaggregation/karma, algorithm/src/karma_allocator.cpp) is max-min
// fairness over time: a pod that leaves a part of its guaranteed share to others earns credits, and
// a borrower pays with them. All pods are equal; requests and priorities do not count. The limit
// is the allotment, but for what Kubernetes demands: it stays above the request.
type karma struct {
	room    float64
	credits map[int]int64
}

// NewKarma claims room times the demand; 1 is the paper's.
func NewKarma(room float64) *Division {
	return newDivision((&karma{room, map[int]int64{}}).divide)
}

func (k *karma) divide(bidders []bidder, supply float64) []float64 {
	users := make([]karmaUser, len(bidders))
	slice := karmaSlice.Cores()
	for i, b := range bidders {
		room := k.room
		if b.shadow {
			room = 1
		}
		users[i] = karmaUser{demand: int64(math.Ceil(b.demand * room / slice))}
	}
	k.assignCredits(bidders, users)
	allocate(users, int64(supply/slice), karmaAlpha)
	shares := make([]float64, len(bidders))
	for i, b := range bidders {
		k.credits[b.pod.ID] = users[i].credits
		shares[i] = float64(users[i].slices) * slice
	}
	return shares
}

// assignCredits fills in the credits. A new pod gets the mean of the others.
func (k *karma) assignCredits(bidders []bidder, users []karmaUser) {
	var sum, n int64
	for _, b := range bidders {
		if c, ok := k.credits[b.pod.ID]; ok {
			sum += c
			n++
		}
	}
	first := int64(karmaCredits)
	if n > 0 {
		first = sum / n
	}
	for i, b := range bidders {
		c, ok := k.credits[b.pod.ID]
		if !ok {
			c = first
		}
		users[i].credits = c
	}
}

// karmaUser is a pod of the algorithm.
type karmaUser struct {
	demand  int64 // slices
	credits int64
	slices  int64 // allotted
}

// allocate is one quantum: it fills in the slices and brings the credits up to date. Where two
// users are equal, the first one in line is served first.
func allocate(users []karmaUser, total int64, alpha float64) {
	n := int64(len(users))
	if n == 0 {
		return
	}
	public := int64(alpha * float64(total))
	fair := (total - public) / n
	spare := make([]int64, n) // what a donor can lend
	want := make([]int64, n)  // what a borrower wants and can pay
	supply, demand := public, int64(0)
	for i := range users {
		u := &users[i]
		u.credits += public / n
		u.slices = min(u.demand, fair)
		spare[i] = fair - u.slices
		want[i] = min(u.demand-u.slices, u.credits)
		supply += spare[i]
		demand += want[i]
	}
	if supply >= demand {
		serveAll(users, want)
		earn(users, spare, demand)
		return
	}
	for i := range users {
		users[i].credits += spare[i] // all is lent, but none of it to a donor
	}
	for ; supply > 0; supply-- {
		richest := -1
		for i, u := range users {
			if want[i] > 0 && (richest < 0 || u.credits > users[richest].credits) {
				richest = i
			}
		}
		users[richest].credits--
		users[richest].slices++
		want[richest]--
	}
}

func serveAll(users []karmaUser, want []int64) {
	for i, w := range want {
		users[i].slices += w
		users[i].credits -= w
	}
}

// earn pays for what is lent: the poorest donor lends first, slice by slice, and the public pool
// last.
func earn(users []karmaUser, spare []int64, lent int64) {
	for ; lent > 0; lent-- {
		poorest := -1
		for i, u := range users {
			if spare[i] > 0 && (poorest < 0 || u.credits < users[poorest].credits) {
				poorest = i
			}
		}
		if poorest < 0 {
			return
		}
		users[poorest].credits++
		spare[poorest]--
	}
}

package division

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// splitInterval is the time between two splits. Longer follows demand later.
const splitInterval = time.Second

// Division makes each pod's share of the supply its limit. It senses and acts as MBCAS does, so that
// the division alone is compared.
type Division struct {
	sensor  *sensor
	resizer *resizer
	divide  func(bidders []bidder, supply float64) []float64
}

func newDivision(divide func([]bidder, float64) []float64) *Division {
	c := actuator.DefaultConfig()
	c.BelowDeclaredFactor = 0 // these lower any pod to less than its declared limit
	return &Division{newSensor(), newResizer(c), divide}
}

// Decide implements sim.Policy.
func (d *Division) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	bidders, supply := d.sensor.bidders(r)
	return d.resizer.resize(r, targets(bidders, d.divide(bidders, supply))), r.Now + splitInterval
}

// NewMaxMin gives each pod its weighted max-min fair allotment of the supply, and makes it the limit:
// what an MBCAS without a market would do. The weight is the pod's budget. (Weighted max-min with
// caps as in Cilantro's HMMF and in Karma's MaxMin baseline: progressive filling; Bertsekas and
// Gallager, Data Networks, section 6.5.2.)
//
// A pod claims room times its demand: 1 is the textbook's; more leaves room for bursts, and sets CPU
// aside that may not be used.
func NewMaxMin(room float64) *Division {
	return newDivision(func(bidders []bidder, supply float64) []float64 {
		for i := range bidders {
			if !bidders[i].shadow {
				bidders[i].demand *= room
			}
		}
		return maxMin(supply, claims(bidders))
	})
}

// claim is one pod's part in a division, in cores.
type claim struct {
	weight, demand, floor float64
	capped                bool // it cannot use more than it demands
}

// maxMin divides the supply: no pod gets more than its demand or less than the smaller of demand
// and floor, and scarce CPU is shared by weight.
func maxMin(supply float64, claims []claim) []float64 {
	out := make([]float64, len(claims))
	atFloor := make([]bool, len(claims))
	for again := true; again; {
		again = false
		left := supply
		var order []int
		for i := range claims {
			if atFloor[i] {
				left -= out[i]
			} else {
				order = append(order, i)
			}
		}
		fill(max(0, left), claims, order, out)
		for _, i := range order {
			if least := min(claims[i].demand, claims[i].floor); out[i] < least {
				out[i], atFloor[i], again = least, true, true
			}
		}
	}
	return out
}

// fill satisfies the smallest demand per weight first, as long as it is less than its share of what
// is left, and splits the rest by weight.
func fill(left float64, claims []claim, order []int, out []float64) {
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(claims[a].demand*claims[b].weight, claims[b].demand*claims[a].weight)
	})
	var weight float64
	for _, i := range order {
		weight += claims[i].weight
	}
	for _, i := range order {
		c := claims[i]
		out[i] = 0
		if c.weight > 0 {
			out[i] = min(c.demand, left*c.weight/weight)
		}
		left = max(0, left-out[i])
		weight -= c.weight
	}
}

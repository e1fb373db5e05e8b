package division

import (
	"slices"
	"time"
)

// peakWindow is how long a peak counts. Longer is prepared for rarer peaks, and sets more aside.
const peakWindow = 5 * time.Minute

// NewStrict hands out the supply once: limits add up to it, never to more. Each pod claims its peak
// need; short supply is shared by weighted max-min, and what is left over goes to all by weight. It
// remembers peaks of a second for five minutes. It is our own rule, and so are its constants.
func NewStrict() *Division {
	const most = int(peakWindow / splitInterval)
	needs := map[int][]float64{} // cores in each interval of the window, the last one at the end
	return newDivision(func(bidders []bidder, supply float64) []float64 {
		for i, b := range bidders {
			all := append(needs[b.pod.ID], b.estimate.Latest)
			needs[b.pod.ID] = all[max(0, len(all)-most):]
			bidders[i].demand = slices.Max(needs[b.pod.ID])
		}
		return partition(supply, claims(bidders))
	})
}

// partition divides the whole supply: every floor is met, and unclaimed CPU goes by weight to all
// uncapped claims.
func partition(supply float64, claims []claim) []float64 {
	var weight float64
	for i, c := range claims {
		if !c.capped {
			weight += c.weight
		}
		claims[i].demand = max(c.demand, c.floor)
	}
	out := maxMin(supply, claims)
	left := supply
	for _, x := range out {
		left -= x
	}
	if left <= 0 || weight <= 0 {
		return out
	}
	for i, c := range claims {
		if !c.capped {
			out[i] += left * c.weight / weight
		}
	}
	return out
}

package round

import "time"

// A pod that uses more than its share is not capped at once. Its burst may end by itself, and limits that
// come down and go up again with each burst help no pod. So each pod has an allowance: BurstAllowance
// times its share. It spends the allowance with what it demands beyond its share, and saves it while it
// demands less, at any price. A pod that saturates has none.

// noteBursts notes what each pod has spent of its allowance, in seconds of its share, and says in the book
// whose is left. perBudget is the share, in cores, of a unit of budget.
func noteBursts(
	cfg Config, before map[string]float64, pods []PodInput, book []bidder, perBudget float64, elapsed time.Duration,
) map[string]float64 {
	after := make(map[string]float64, len(before))
	for i := range book {
		b := &book[i]
		if !b.managed {
			continue
		}
		uid := pods[b.pod].UID
		share := max(perBudget*float64(b.bid.Budget), b.minLimit.Cores(), 0.001)
		spent := before[uid] + (b.latestDemand.Cores()/share-1)*elapsed.Seconds()
		after[uid] = min(max(0, spent), cfg.BurstAllowance.Seconds())
		b.mayBurst = after[uid] < cfg.BurstAllowance.Seconds() && !b.saturates
	}
	return after
}

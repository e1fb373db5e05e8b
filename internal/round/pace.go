package round

import (
	"time"

	"github.com/mbcas/mbcas/internal/pacing"
	"github.com/mbcas/mbcas/internal/sense"
)

// tick is what a round measures of a second.
type tick struct {
	rates  sense.Rates
	full   bool    // no CPU is idle
	shares float64 // the share, in cores, of a unit of budget
}

// notePaces notes which pods burst and which saturate, and says so in the book.
func notePaces(
	cfg pacing.Config, before map[string]pacing.Pace, pods []PodInput, t tick, book []bidder,
) map[string]pacing.Pace {
	if !cfg.Enabled() {
		return nil
	}
	after := make(map[string]pacing.Pace, len(before))
	for _, p := range pods { // one that no round decides about for a while goes on where it was
		if s, known := before[p.UID]; known {
			after[p.UID] = s
		}
	}
	for i := range book {
		b := &book[i]
		if !b.managed {
			continue
		}
		p := pods[b.pod]
		share := max(t.shares*float64(b.bid.Budget), b.minLimit.Cores(), 0.001)
		wants := wantsMore(p, t.rates.Pods[b.pod], t.full)
		s := before[p.UID].Note(cfg, wants, b.latestDemand.Cores()/share, t.rates.Node.Elapsed)
		b.waits, b.mayBurst = s.Waits(cfg), s.MayBurst(cfg)
		after[p.UID] = s
	}
	return after
}

// busyThrottleRatio and busyPressure are the shares of periods, and of time, from which a container at
// its quota, or on a full node, wants more CPU.
const busyThrottleRatio, busyPressure = 0.5, 0.9

// wantsMore says whether a limited container of the pod wanted more CPU in the last tick.
func wantsMore(p PodInput, rates sense.PodRates, full bool) bool {
	for j, c := range p.Containers {
		r := rates.Containers[j]
		if !c.Limited() || r.Validity != sense.Valid {
			continue
		}
		atQuota := withPodQuota(r, rates.Own, c).ThrottleRatio >= busyThrottleRatio &&
			r.Usage.Cores() >= stoppedThreshold*c.Limit.Cores()
		if atQuota || full && r.Pressure.Known && r.Pressure.Value >= busyPressure {
			return true
		}
	}
	return false
}

// paceIncreases bounds, in the book, the next limits of the pods that saturate.
func paceIncreases(cfg Config, s State, in Input, book []bidder, elapsed time.Duration) {
	for i := range book {
		b := &book[i]
		if !b.managed || cfg.Pacing.LongestDelay == 0 {
			continue
		}
		p := in.Pods[b.pod]
		target := s.target(cfg, b, p, b.bound(cfg, s.price.inForce))
		s.paces[p.UID], b.most = s.paces[p.UID].Follow(cfg.Pacing, b.limit, target, in.Now, elapsed)
	}
}

package round

import (
	"time"

	"github.com/mbcas/mbcas/internal/pacing"
	"github.com/mbcas/mbcas/internal/sense"
)

// notePaces notes which pods saturate, and says so in the book. full says that no CPU is idle.
func (s *State) notePaces(cfg pacing.Config, pods []PodInput, rates sense.Rates, full bool, book []bidder) {
	if !cfg.Enabled() {
		return
	}
	after := ofPods(s.paces, pods)
	for i := range book {
		b := &book[i]
		if !b.managed {
			continue
		}
		p := pods[b.pod]
		pace := s.paces[p.UID].Note(cfg, wantsMore(p, rates.Pods[b.pod], full), rates.Node.Elapsed)
		b.paced = pace.Saturates()
		after[p.UID] = pace
	}
	s.paces = after
}

// ofPods are the values of the pods that still exist. One that no round decides about for a while goes on where it was.
func ofPods[T any](before map[string]T, pods []PodInput) map[string]T {
	after := make(map[string]T, len(before))
	for _, p := range pods {
		if v, known := before[p.UID]; known {
			after[p.UID] = v
		}
	}
	return after
}

// busyThrottleRatio and busyPressure are the shares of periods, and of time, from which a container
// at its quota, or on a full node, wants more CPU.
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
func (s *State) paceIncreases(cfg Config, in Input, book []bidder, elapsed time.Duration) {
	for i := range book {
		b := &book[i]
		if !b.managed || !cfg.Pacing.Enabled() {
			continue
		}
		p := in.Pods[b.pod]
		target := s.target(cfg, b, p, b.bound(cfg, s.price.inForce))
		// An increase that is published and not in force yet, as in mode recommend, has its token.
		s.paces[p.UID], b.most = s.paces[p.UID].Next(cfg.Pacing, max(b.limit, b.published), target, elapsed)
	}
}

package round

import (
	"maps"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// passRaises counts the time since the last round.
func (s *State) passRaises(pods []PodInput, elapsed time.Duration) {
	s.raises = ofPods(s.raises, pods)
	for uid, r := range s.raises {
		s.raises[uid] = r.Passed(elapsed)
	}
}

// noteRaises notes the limits of the pods, and to which they may be revoked: a raise may if the pod takes all it can get,
// or if it is recent, so that this is not known; and if the price cannot take as much from pods of lower priority.
func (s *State) noteRaises(cfg Config, pods []PodInput, book []bidder) {
	for i := range book {
		b, p := &book[i], pods[book[i].pod]
		if !b.managed || !cfg.Disagreement.Enabled() {
			continue
		}
		r, to := s.raises[p.UID].Next(b.limit, b.declared, s.price.binds), max(p.AtDeclared().Most(), b.minLimit)
		s.raises[p.UID] = r
		above := min(b.published, b.limit) > to && b.limit > b.declared && differs(to, b.limit, cfg.PublishBand)
		if above && r.RevokedFor() == 0 && takenBelow(pods, book, p.Priority()) < b.limit-to {
			b.revocableTo, b.takesAll = to, b.usesUpItsLimit() || r.Recent()
		}
	}
}

// takenBelow is what pods of lower priority that take all they can get use above their floors.
func takenBelow(pods []PodInput, book []bidder, priority int32) (sum cpu.Milli) {
	for i := range book {
		if b := &book[i]; b.managed && pods[b.pod].Priority() < priority && b.usesUpItsLimit() {
			sum += max(0, b.usage-b.bid.Floor)
		}
	}
	return sum
}

// excess is what a pod uses above the limit to which it may be revoked, per unit of budget.
func (b *bidder) excess(usage cpu.Milli) float64 {
	return max(0, min(usage, b.limit)-b.revocableTo).Cores() / float64(max(b.bid.Budget, 1))
}

// noteFull notes for how long looks have found hardly any idle CPU, at most half of the reserve. Pods are raised so far
// that the reserve stays idle, so less shows that others use more than was known.
func (s *State) noteFull(cfg Config, elapsed time.Duration) {
	switch idle := s.look.idle; {
	case !idle.Known || idle.CPU.Cores() >= min(fullIdle, cfg.Reserve/2)*s.look.cores.Cores():
		s.full, s.fullFor = false, 0
	case s.full:
		s.fullFor += elapsed
	default:
		s.full = true
	}
}

// revoke revokes the raise of the pod that uses most above its declared limit for its budget, if two looks found the
// node full, or one that saw the pod take all it can get: one that has just begun does so if it uses up its limit, as the
// full node leaves it no more to be throttled. Other pods wait for the next round: one may suffice. Once a node has been
// full for Onset the price is left to find which has too much.
func (s *State) revoke(cfg Config, seen []observed) (d Decision, revoked bool) {
	if s.look.revoked || !s.full || max(s.fullFor, s.gauge.fullFor) >= cfg.Onset {
		return d, false
	}
	var most observed
	highest := 0.0
	for _, o := range seen {
		b := &s.look.book[o.index]
		begun := b.usage.Cores() < nearLimit*b.declared.Cores() && s.fullFor > 0
		saw := (begun || o.throttled >= nearlyAlways) && o.usage.Cores() >= nearlyUsedUp*b.limit.Cores()
		may := b.revocableTo > 0 && (saw || b.takesAll && s.fullFor > 0) && !s.look.decided[s.look.pods[b.pod].UID]
		if x := b.excess(o.usage); may && x > highest {
			most, highest = o, x
		}
	}
	if highest == 0 {
		return d, false
	}
	b := s.look.book[most.index]
	p, floor := s.look.pods[b.pod], b.minLimit
	p.Pod = p.AtDeclared()
	b.bid.Ceiling, b.minLimit, b.usage = b.revocableTo, b.revocableTo, most.usage
	d = decideOne(cfg, s.withNewPods(), p, s.look.rates[b.pod], b)
	r := s.raises[p.UID].Revoke()
	s.look.revoked, s.raises = true, maps.Clone(s.raises)
	s.raises[p.UID] = r
	d.Floor, d.RevokedFor, d.Publish = floor, r.RevokedFor(), true
	return d, true
}

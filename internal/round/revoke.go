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

// noteRaises notes the limits of the pods and, of those that are raised, to which limit a look may revoke the raise, and
// whether the pod takes all it can get. That is not known of a recent raise, whose pod counts as if it did.
func (s *State) noteRaises(cfg Config, pods []PodInput, book []bidder) {
	for i := range book {
		b, p := &book[i], pods[book[i].pod]
		if !b.managed || !cfg.Disagreement.Enabled() {
			continue
		}
		r, to := s.raises[p.UID].Next(b.limit, b.declared, s.price.binds), max(p.AtDeclared().Most(), b.minLimit)
		s.raises[p.UID] = r
		above := min(b.published, b.limit) > to && b.limit > b.declared && differs(to, b.limit, cfg.PublishBand)
		if above && r.RevokedFor() == 0 {
			b.revocableTo, b.takesAll = to, b.usesUpItsLimit() || r.Recent()
		}
	}
}

// takenBelow is what pods of lower priority use above their floors if they use more than half of their limits: since the
// look before or, if this one has not read them, in the last second. The price can take as much from them, as what they
// keep falls while a pod of higher priority waits.
func (l *lookState) takenBelow(priority int32) (sum cpu.Milli) {
	for i := range l.book {
		b := &l.book[i]
		usage, read := l.usage[i]
		if !read {
			usage = b.usage
		}
		lower := b.managed && !b.warmingUp && l.pods[b.pod].Priority() < priority
		if lower && usage > b.limit/2 {
			sum += max(0, usage-b.bid.Floor)
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
	idle := s.look.idle
	full := idle.Known && idle.CPU.Cores() < min(fullIdle, cfg.Reserve/2)*s.look.cores.Cores()
	if s.fullFor += elapsed; !full || s.fullAt.IsZero() {
		s.fullFor = 0
	}
	if s.fullAt = s.look.sample.Node.At; !full {
		s.fullAt = time.Time{}
	}
}

// mayRevoke says whether raises may be revoked: the last look, at most a second before the last round, found the node full,
// and it has not been full for Onset.
func (s *State) mayRevoke(cfg Config) bool {
	return cfg.Disagreement.Enabled() && s.last.Node.At.Sub(s.fullAt) < longestLook && max(s.fullFor, s.gauge.fullFor) < cfg.Onset
}

// revoke revokes the raise of the pod that uses most above its declared limit for its budget, if two looks found the
// node full, or one that saw the pod take all it can get: one that has just begun does so if it uses up its limit, as the
// full node leaves it no more to be throttled. Other pods wait for the next round: one may suffice. The price is left to
// find which pod has too much once the node has been full for Onset, or if it can take what is used of a
// raise from pods of lower priority.
func (s *State) revoke(cfg Config, seen []observed) (d Decision, revoked bool) {
	if s.look.revoked || !s.mayRevoke(cfg) {
		return d, false
	}
	var most observed
	highest := 0.0
	for _, o := range seen {
		b := &s.look.book[o.index]
		begun := o.usage > 2*b.bid.Demand && s.fullFor > 0
		saw := (begun || o.throttled >= nearlyAlways) && o.usage.Cores() >= nearlyUsedUp*b.limit.Cores()
		pod := &s.look.pods[b.pod]
		may := b.revocableTo > 0 && (saw || b.takesAll && s.fullFor > 0) && !s.look.decided[pod.UID]
		x := b.excess(o.usage)
		if may && x > highest && s.look.takenBelow(pod.Priority()) < min(o.usage, b.limit)-b.revocableTo {
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

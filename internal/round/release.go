package round

import (
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
)

// release lowers the price where capped pods have stopped and freed CPU beside a throttled pod.
// idle is the idle CPU of the node. Until a release has proved right the next one waits.
func (s State) release(cfg Config, seen []observed, idle cpu.Milli, sample kernel.Sample) State {
	l := &s.look
	if s.price.inForce == 0 || sample.Node.At.Before(s.releases.until) || len(s.releases.stopped) > 0 {
		return s
	}
	var freed cpu.Milli // by pods that have stopped
	waiting := false
	for _, o := range seen {
		switch {
		case o.stopped:
			freed += l.book[o.index].limit - o.usage
		case o.throttled > 0:
			waiting = true
		}
	}
	free := s.freeOf(idle)
	if !waiting || free.Cores() < cfg.ReleaseIdle*l.node.Supply.Cores() || 2*freed < free {
		return s
	}
	book, node := slices.Clone(l.book), l.node
	node.Demand, node.SignalDemand, node.Bidders, node.Unmanaged = 0, 0, 0, 0
	for _, o := range seen {
		if b := &book[o.index]; o.stopped {
			b.bid.Demand, b.latestDemand, b.usage = min(b.bid.Demand, o.usage), o.usage, o.usage
		}
	}
	price, lowered := s.price.releasedBy(clearing{cfg: cfg, solver: s.solver, book: book, node: &node})
	if !lowered {
		return s
	}
	r := releases{at: sample.Node.At, price: s.price, stopped: map[string]cpu.Milli{}, demand: map[string]demand.Estimate{}}
	r.wait, r.until, r.wrong = s.releases.wait, s.releases.until, s.releases.wrong
	s.releases = r
	s = s.forgetStopped(seen, sample)
	s.price, l.book, l.node = price, book, node
	s.setRoom(book, node, s.room.perBudget)
	return s
}

// releasedBy is the price at which the market clears again; not lowered unless it is clearly below the one in force.
func (p price) releasedBy(c clearing) (after price, lowered bool) {
	to := c.clear(c.problem(), false)
	if to >= p.inForce || !differs(to, p.inForce, c.cfg.PriceBand) {
		return p, false
	}
	after = p
	if after.inForce, after.slack = to, scarce; to == 0 {
		after.slack, after.binds = amplyFit, false
	}
	after.lowerFor, after.lowerMax, after.idleFor, after.fellFrom = 0, 0, 0, 0 // another rule judges this fall
	c.node.Price, c.node.Released = to, true
	return after, true
}

// forgetStopped lowers the estimates of the pods that have stopped to what they use, and notes them in the release. The
// next round compares with this look, so that what they used before it does not count again.
func (s State) forgetStopped(seen []observed, sample kernel.Sample) State {
	s.estimates = maps.Clone(s.estimates)
	s.last.Pods = slices.Clone(s.last.Pods)
	since := func(g *kernel.Group, look kernel.Group) {
		if g.Found && look.Found {
			g.At, g.Stat, g.Pressure, g.Stalls = look.At, look.Stat, kernel.Pressure{}, nil
		}
	}
	for _, o := range seen {
		b := &s.look.book[o.index]
		if !o.stopped || b.pod >= len(s.last.Pods) { // it joined after the round, and counts nothing yet
			continue
		}
		s.releases.stopped[s.look.pods[b.pod].UID] = min(b.limit, b.bid.Demand)
		for _, c := range s.look.pods[b.pod].Containers {
			if est, ok := s.estimates[c.ID]; ok && c.Limited() {
				s.releases.demand[c.ID] = est
				est.Mean *= min(1, o.usage.Cores()/max(b.bid.Demand, 1).Cores())
				est.ThrottleRatio = 0 // else the next round raises it
				s.estimates[c.ID] = est
			}
		}
		p := &s.last.Pods[b.pod]
		if now := lookedAt(sample, p.Pod); now != nil {
			since(&p.Own, now.Own)
			p.Containers = slices.Clone(p.Containers)
			for j := range min(len(p.Containers), len(now.Containers)) {
				if now.Containers[j].ID == p.Containers[j].ID {
					since(&p.Containers[j], now.Containers[j])
				}
			}
		}
	}
	return s
}

// lookedAt is the sample of a pod; nil: the look did not read it.
func lookedAt(sample kernel.Sample, pod string) *kernel.PodSample {
	if i := slices.IndexFunc(sample.Pods, func(p kernel.PodSample) bool { return p.Pod == pod }); i >= 0 {
		return &sample.Pods[i]
	}
	return nil
}

// releases are what rounds remember of the releases by looks.
type releases struct {
	at      time.Time                  // of the last
	price   price                      // that it lowered
	demand  map[string]demand.Estimate // of the containers of these pods before it
	stopped map[string]cpu.Milli       // by UID: what pods could use that it took to have stopped; empty: judged
	wait    time.Duration
	until   time.Time // no release before
	wrong   time.Time // when the last one proved wrong, or its wait was last halved
}

const (
	// wrongWithin is the time after a release within which it proves wrong if a pod goes on that had
	// stopped. After a longer stop rounds alone would have released the price, too.
	wrongWithin = 2500 * time.Millisecond
	// leastReleaseWait and longestReleaseWait bound the wait after a wrong release. It doubles with
	// each, so that pods that stop and go on get at most 16 of them an hour.
	leastReleaseWait, longestReleaseWait = 10 * time.Second, 5 * time.Minute
	// releaseCalm is the time without a wrong release after which the wait halves.
	releaseCalm = 10 * time.Minute
)

// judgeRelease undoes the last release where a round finds that it was wrong: a price that rose again by itself could
// stay lower by the price band, and a pod whose demand has been forgotten would be uncapped.
func (s State) judgeRelease(pods []PodInput, rates []sense.PodRates, now time.Time) State {
	r := &s.releases
	switch {
	case r.isWrong(pods, rates, now):
		if s.price.inForce < r.price.inForce {
			s.price = r.price
		}
		for id, before := range r.demand {
			if est, ok := s.estimates[id]; ok {
				est.Mean, est.ThrottleRatio = max(est.Mean, before.Mean), max(est.ThrottleRatio, before.ThrottleRatio)
				s.estimates[id] = est
			}
		}
		r.stopped, r.wrong = nil, now
		r.wait = min(max(2*r.wait, leastReleaseWait), longestReleaseWait)
		r.until = now.Add(r.wait)
	case now.Sub(r.at) > wrongWithin+longestLook:
		r.stopped = nil
	}
	if r.wait > 0 && now.Sub(r.wrong) >= releaseCalm {
		if r.wait, r.wrong = r.wait/2, now; r.wait < leastReleaseWait {
			r.wait = 0
		}
	}
	return s
}

// isWrong says whether a pod has gone on that the last release took to have stopped.
func (r *releases) isWrong(pods []PodInput, rates []sense.PodRates, now time.Time) bool {
	for i, p := range pods {
		if before := r.stopped[p.UID]; before > 0 {
			if at, on := wentOn(p, rates[i], before, now); on && at.Sub(r.at) < wrongWithin {
				return true
			}
		}
	}
	return false
}

// wentOn is when a pod went on that had stopped: by its usage in the last tick, of which it took a part.
func wentOn(p PodInput, rates sense.PodRates, before cpu.Milli, now time.Time) (at time.Time, on bool) {
	var usage cpu.Milli
	var elapsed time.Duration
	for j, c := range p.Containers {
		if r := rates.Containers[j]; c.Limited() && r.Validity == sense.Valid {
			usage, elapsed = usage+r.Usage, max(elapsed, r.Elapsed)
		}
	}
	part := min(1, usage.Cores()/before.Cores())
	return now.Add(-time.Duration(part * float64(elapsed))), part > stoppedShare
}

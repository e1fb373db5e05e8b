package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// A look reads the counters of a few pods between two rounds, and raises limits. A round sees within a
// second or two that a pod needs more; a look sees it within LookInterval.
//
// It raises an uncapped pod that is throttled, to the limit that the next round would give it. And it
// lowers the price where a capped pod has stopped: its own usage shows that at once, while idle CPU
// alone may be a lull of pods that get what they demand. The pod that has stopped keeps its limit.

const (
	// maxWatched is how many containers a look reads.
	maxWatched = 32
	// maxWatchedCapped is how many of them are those of capped pods, while uncapped ones need the others.
	maxWatchedCapped = 24
	// nearLimit is the share of its limit from which an uncapped pod is watched. A burst takes a pod from
	// there to its limit before the next round.
	nearLimit = 0.125
	// leastLook and longestLook bound the time from one look to the next: the counters of throttling
	// advance with each CFS period, and what happened long ago tells nothing about now.
	leastLook, longestLook = 100 * time.Millisecond, time.Second
	// stoppedShare is the share of its demand, and of its limit, below which a capped pod has stopped. The
	// period in which it stops counts as throttled, so throttling does not show it.
	stoppedShare = 0.5
	// saturatedLooks is how many looks in a row have to see a pod throttled before it can be seen to stop.
	// The usage of one that waits for requests falls by half every few looks.
	saturatedLooks = 3
)

// lookState is what a look needs of the last round, and what it remembers.
type lookState struct {
	pods    []PodInput
	rates   []sense.PodRates
	node    NodeDecision
	cores   cpu.Milli // capacity
	book    []bidder
	watched []int           // indices into the book
	sample  kernel.Sample   // of the look before, or of the round
	decided map[string]bool // pods that the round or a look since has raised, by UID
	busy    map[string]busy // watched pods, by UID
}

// busy is what the looks at a capped pod have seen.
type busy struct {
	looks, before int  // in a row that saw it throttled, and how many these were at the look before
	stopped       bool // since then it uses little
}

// next takes in a look. A pod may stop within the time of a look that sees it throttled yet.
func (b busy) next(throttled, little bool) busy {
	n := busy{before: b.looks, stopped: little && (b.stopped || max(b.looks, b.before) >= saturatedLooks)}
	if throttled && !n.stopped {
		n.looks = b.looks + 1
	}
	return n
}

// newLookState is what looks need of a round.
func newLookState(cfg Config, s State, in Input, rates []sense.PodRates, out Output, book []bidder) lookState {
	l := lookState{pods: in.Pods, rates: rates, node: out.Node, cores: in.Node.Capacity, book: book, sample: in.Sample}
	l.decided = map[string]bool{}
	for _, d := range out.Decisions { // a decrease that the round publishes is less than what a look compares with
		l.decided[d.UID] = d.Publish && d.Limit > limitOf(in.Pods[d.Pod])
	}
	if cfg.LookInterval == 0 || s.samples < cfg.Demand.WarmUpSamples {
		return l
	}
	var capped, near []int
	for i := range book {
		b := &book[i]
		switch {
		case !b.managed:
		case b.bound(cfg, s.price.inForce) != market.ByNothing:
			capped = append(capped, i)
		case b.couldNeedMore(in.Pods[b.pod]):
			near = append(near, i)
		}
	}
	slices.SortStableFunc(capped, func(x, y int) int { return cmp.Compare(book[y].limit, book[x].limit) })
	slices.SortStableFunc(near, func(x, y int) int { return cmp.Compare(book[y].fullness(), book[x].fullness()) })
	watch := func(list []int, most int, count int) int {
		for _, i := range list {
			if n := len(in.Pods[book[i].pod].Containers); count+n <= most {
				l.watched, count = append(l.watched, i), count+n
			}
		}
		return count
	}
	most := maxWatched
	if len(near) > 0 {
		most = maxWatchedCapped
	}
	watch(near, maxWatched, watch(capped, most, 0))
	l.sample.Pods = make([]kernel.PodSample, len(l.watched))
	l.busy = make(map[string]busy, len(l.watched))
	for i, j := range l.watched {
		l.sample.Pods[i] = in.Sample.Pods[book[j].pod]
		if was, known := s.look.busy[in.Pods[book[j].pod].UID]; known {
			l.busy[in.Pods[book[j].pod].UID] = was
		}
	}
	return l
}

// couldNeedMore says whether an uncapped pod may be throttled before the next round, and could be raised.
func (b *bidder) couldNeedMore(p PodInput) bool {
	return max(b.limit, b.published) < b.bid.Ceiling && !p.IncreaseOnNeed &&
		(b.warmingUp || b.throttleRatio > 0 || b.fullness() >= nearLimit)
}

// limitOf is the limit of a pod, that is of its limited containers.
func limitOf(p PodInput) (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Limit
		}
	}
	return sum
}

// fullness is the demand of the last tick as a share of the limit.
func (b *bidder) fullness() float64 { return b.latestDemand.Cores() / max(b.limit, 1).Cores() }

// watchedPods are the pods that the next look reads, as indices into the input.
func (l *lookState) watchedPods() []int {
	pods := make([]int, len(l.watched))
	for i, j := range l.watched {
		pods[i] = l.book[j].pod
	}
	return pods
}

// observed is what a look shows of a watched pod.
type observed struct {
	index     int // into the book
	usage     cpu.Milli
	throttled float64 // the highest ratio among its containers
	stopped   bool
}

// Look is a look at the pods of Output.Watch, in this order. It consumes the state: use the returned one.
// Every decision is an increase to publish; no limit is lowered.
func Look(cfg Config, s State, sample kernel.Sample) (State, Output) {
	s.look.node.Released = false
	before := s.look.sample
	elapsed := sample.Node.At.Sub(before.Node.At)
	if len(s.look.watched) == 0 || elapsed < leastLook {
		return s, Output{Node: s.look.node}
	}
	s.look.sample = sample
	seen := s.look.observe(cfg, s.price.inForce, sample, sense.Compare(before, sample, longestLook).Pods)
	if idle := sample.Node.Idle.Time - before.Node.Idle.Time; elapsed <= longestLook &&
		sample.Node.Idle.Known && before.Node.Idle.Known && idle >= 0 {
		s = s.release(cfg, seen, cpu.FromUsage(idle, elapsed), sample)
	}
	var decisions []Decision
	for _, o := range seen {
		d, raises := s.raise(cfg, o)
		if !raises {
			continue
		}
		if decisions == nil {
			s.look.decided = maps.Clone(s.look.decided)
		}
		s.look.decided[d.UID] = true
		decisions = append(decisions, d)
	}
	return s, Output{Node: s.look.node, Decisions: decisions}
}

// observe is what the rates of a look show. A pod with a container that has none is left out.
func (l *lookState) observe(cfg Config, price market.Price, sample kernel.Sample, rates []sense.PodRates) []observed {
	seen := make([]observed, 0, len(l.watched))
	after := make(map[string]busy, len(l.watched))
	for i, j := range l.watched {
		b, o, valid := &l.book[j], observed{index: j}, i < len(rates)
		for k, c := range l.pods[b.pod].Containers {
			if !c.Limited() || c.ID == "" || !valid {
				continue
			}
			r := rates[i].Containers[k]
			// The usage of a cgroup that was removed has ended.
			valid = r.Validity == sense.Valid || r.Validity == sense.Missing && !sample.Pods[i].Blocked
			o.usage += r.Usage
			o.throttled = max(o.throttled, withPodQuota(r, rates[i].Own, c).ThrottleRatio)
		}
		if !valid {
			continue
		}
		if b.bound(cfg, price) != market.ByNothing {
			uid := l.pods[b.pod].UID
			now := l.busy[uid].next(o.throttled > 0, o.usage.Cores() <= stoppedShare*min(b.limit, b.bid.Demand).Cores())
			after[uid], o.stopped = now, now.stopped
		}
		seen = append(seen, o)
	}
	l.busy = after
	return seen
}

// raise is the increase of a throttled pod at the price in force.
func (s *State) raise(cfg Config, o observed) (d Decision, raises bool) {
	b := s.look.book[o.index]
	pod := s.look.pods[b.pod]
	if o.throttled == 0 || o.stopped || s.look.decided[pod.UID] || s.releases.stopped[pod.UID] > 0 {
		return d, false // one that stopped a moment ago and goes on may get nothing by it
	}
	b.throttleRatio, b.usage = max(b.throttleRatio, needThrottleRatio), o.usage
	b.latestThrottleRatio = max(b.latestThrottleRatio, o.throttled) // the controller raises throttled pods first
	d = decideOne(cfg, *s, pod, s.look.rates[b.pod], b)
	if d.Limit <= b.limit || !differs(d.Limit, max(b.limit, b.published), cfg.PublishBand) {
		return d, false
	}
	part := 0 // d.Containers are the limited ones of the pod, in its order
	for _, c := range pod.Containers {
		if !c.Limited() {
			continue
		}
		if d.Containers[part].Limit < max(c.Limit, pod.Published.Limits[c.Name]) {
			return d, false // another split waits for the round
		}
		part++
	}
	d.Publish = d.Limit > b.published
	return d, d.Publish
}

// release lowers the price where capped pods have stopped and left CPU idle beside a throttled pod. idle
// is the idle CPU of the node. Until a release has proved right the next one waits.
func (s State) release(cfg Config, seen []observed, idle cpu.Milli, sample kernel.Sample) State {
	l := &s.look
	if s.price.inForce == 0 || sample.Node.At.Before(s.releases.until) {
		return s
	}
	var left cpu.Milli // by pods that have stopped
	waiting := false
	for _, o := range seen {
		switch {
		case o.stopped:
			left += l.book[o.index].limit - o.usage
		case o.throttled > 0:
			waiting = true
		}
	}
	free := idle - max(0, l.cores-l.node.Supply-l.node.System) - keptForSignals(l.book, s.price.inForce)
	if !waiting || free.Cores() < cfg.ReleaseIdle*l.node.Supply.Cores() || 2*left < free {
		return s
	}
	book, node := slices.Clone(l.book), l.node
	node.Demand, node.SignalDemand, node.Bidders, node.Unmanaged = 0, 0, 0, 0
	for _, o := range seen {
		if b := &book[o.index]; o.stopped {
			b.bid.Demand, b.latestDemand, b.usage = min(b.bid.Demand, o.usage), o.usage, o.usage
		}
	}
	price, lowered := s.price.releasedBy(clearing{cfg: cfg, solver: s.solver, book: book, node: &node, now: sample.Node.At})
	if !lowered {
		return s
	}
	r := releases{at: sample.Node.At, price: s.price, stopped: map[string]cpu.Milli{}, demand: map[string]demand.Estimate{}}
	r.wait, r.until, r.wrong = s.releases.wait, s.releases.until, s.releases.wrong
	for _, o := range seen {
		if b := &l.book[o.index]; o.stopped {
			r.stopped[l.pods[b.pod].UID] = min(b.limit, b.bid.Demand)
			for _, c := range l.pods[b.pod].Containers {
				if est, ok := s.estimates[c.ID]; ok {
					r.demand[c.ID] = est
				}
			}
		}
	}
	s.releases = r
	s = s.forgetStopped(seen, sample)
	s.price, l.book, l.node = price, book, node
	return s
}

// releasedBy is the price at which the market clears again; not lowered unless it is clearly below the
// one in force.
func (p price) releasedBy(c clearing) (after price, lowered bool) {
	problem := c.problem(false)
	to, left := c.clear(problem, false), amplyFit
	if to > 0 {
		to, left = min(to*market.Price(math.Exp(p.trim)), sharePrice(c.solver, problem)), scarce
	}
	if to >= p.inForce || !differs(to, p.inForce, c.cfg.PriceBand) {
		return p, false
	}
	after = p
	after.inForce, after.slack = to, left
	after.lowerFor, after.lowerMax, after.idleFor, after.overSupplyFor = 0, 0, 0, 0
	if to == 0 {
		after.trim = 0
	}
	c.node.Price, c.node.Released = to, true
	return after, true
}

// forgetStopped lowers the estimates of the pods that have stopped to what they use. The next round
// compares with this look, so that what they used before it does not count again.
func (s State) forgetStopped(seen []observed, sample kernel.Sample) State {
	s.estimates = maps.Clone(s.estimates)
	s.last.Pods = slices.Clone(s.last.Pods)
	for i, o := range seen {
		if b := &s.look.book[o.index]; o.stopped {
			share := min(1, o.usage.Cores()/max(b.bid.Demand, 1).Cores())
			s.forget(b.pod, share, sample, i)
		}
	}
	return s
}

// forget lowers the estimates of a pod to a share, and sets the counters that the next round compares with.
func (s *State) forget(pod int, share float64, sample kernel.Sample, at int) {
	for _, c := range s.look.pods[pod].Containers {
		if est, ok := s.estimates[c.ID]; ok && c.Limited() {
			est.Mean *= share
			est.ThrottleRatio = 0 // else the next round raises it
			s.estimates[c.ID] = est
		}
	}
	now := lookedAt(sample, s.last.Pods[pod].Pod)
	if now == nil {
		return
	}
	p := &s.last.Pods[pod]
	p.Containers = slices.Clone(p.Containers)
	since := func(g *kernel.Group, look kernel.Group) {
		if g.Found && look.Found {
			g.At, g.Stat, g.Pressure, g.Stalls = look.At, look.Stat, kernel.Pressure{}, nil
		}
	}
	since(&p.Own, now.Own)
	for j := range p.Containers {
		if j < len(now.Containers) && now.Containers[j].ID == p.Containers[j].ID {
			since(&p.Containers[j], now.Containers[j])
		}
	}
}

// lookedAt is the sample of a pod; nil: the look did not read it.
func lookedAt(sample kernel.Sample, pod string) *kernel.PodSample {
	for i := range sample.Pods {
		if sample.Pods[i].Pod == pod {
			return &sample.Pods[i]
		}
	}
	return nil
}

// releases are what rounds remember of the releases by looks.
type releases struct {
	at      time.Time                  // of the last
	price   price                      // that it lowered
	demand  map[string]demand.Estimate // of the containers of these pods before it
	stopped map[string]cpu.Milli       // pods that it took to have stopped, by UID, with what they could use; empty: judged
	wait    time.Duration
	until   time.Time // no release before
	wrong   time.Time // when the last one proved wrong, or its wait was last halved
}

const (
	// wrongWithin is the time after a release within which it proves wrong if a pod goes on that had stopped.
	// After a longer stop rounds alone would have released the price, too.
	wrongWithin = 2500 * time.Millisecond
	// leastReleaseWait and longestReleaseWait bound the wait after a wrong release. It doubles with each,
	// so that pods that stop and go on get at most 16 of them an hour.
	leastReleaseWait, longestReleaseWait = 10 * time.Second, 5 * time.Minute
	// releaseCalm is the time without a wrong release after which the wait halves.
	releaseCalm = 10 * time.Minute
)

// judgeRelease undoes the last release where a round finds that it was wrong: a price that rose again by
// itself could stay lower by the price band, and a pod whose demand has been forgotten would be uncapped.
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

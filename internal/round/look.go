package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
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
	decided map[string]bool // pods that the round or a look since has decided anew, by UID
}

// newLookState is what looks need of a round.
func newLookState(cfg Config, s State, in Input, rates []sense.PodRates, out Output, book []bidder) lookState {
	l := lookState{pods: in.Pods, rates: rates, node: out.Node, cores: in.Node.Capacity, book: book, sample: in.Sample}
	l.decided = map[string]bool{}
	for _, d := range out.Decisions {
		l.decided[d.UID] = d.Publish // no look decides before what the round publishes is in force
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
	for i, j := range l.watched {
		l.sample.Pods[i] = in.Sample.Pods[book[j].pod]
	}
	return l
}

// couldNeedMore says whether an uncapped pod may be throttled before the next round, and could be raised.
func (b *bidder) couldNeedMore(p PodInput) bool {
	return max(b.limit, b.published) < b.bid.Ceiling && !p.IncreaseOnNeed &&
		(b.warmingUp || b.throttleRatio > 0 || b.fullness() >= nearLimit)
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
	throttled bool
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
	seen := s.look.observe(cfg, s.price.inForce, sense.Compare(before, sample, longestLook).Pods)
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
func (l *lookState) observe(cfg Config, price market.Price, rates []sense.PodRates) []observed {
	seen := make([]observed, 0, len(l.watched))
	for i, j := range l.watched {
		b, o, valid := &l.book[j], observed{index: j}, i < len(rates)
		for k, c := range l.pods[b.pod].Containers {
			if !c.Limited() || c.ID == "" || !valid {
				continue
			}
			r := rates[i].Containers[k]
			valid = r.Validity == sense.Valid
			o.usage += r.Usage
			o.throttled = o.throttled || withPodQuota(r, rates[i].Own, c).ThrottleRatio > 0
		}
		if !valid {
			continue
		}
		o.stopped = b.bound(cfg, price) != market.ByNothing &&
			o.usage.Cores() <= stoppedShare*min(b.limit, b.bid.Demand).Cores()
		seen = append(seen, o)
	}
	return seen
}

// raise is the increase of a throttled pod at the price in force.
func (s *State) raise(cfg Config, o observed) (d Decision, raises bool) {
	b := s.look.book[o.index]
	pod := s.look.pods[b.pod]
	if !o.throttled || o.stopped || s.look.decided[pod.UID] {
		return d, false
	}
	b.throttleRatio, b.usage = max(b.throttleRatio, needThrottleRatio), o.usage
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
		case o.throttled:
			waiting = true
		}
	}
	free := idle - max(0, l.cores-l.node.Supply-l.node.System) - keptForSignals(l.book, s.price.inForce)
	if !waiting || free.Cores() < cfg.ReleaseIdle*l.node.Supply.Cores() || 2*left < free {
		return s
	}
	book, node := slices.Clone(l.book), l.node
	node.Demand, node.SignalDemand, node.Bidders, node.Unmanaged = 0, 0, 0, 0
	for i := range book {
		book[i].most = 0 // what a capped pod has left is no lull
	}
	for _, o := range seen {
		if b := &book[o.index]; o.stopped {
			b.bid.Demand, b.latestDemand, b.usage = min(b.bid.Demand, o.usage), o.usage, o.usage
		}
	}
	price, lowered := s.price.releasedBy(clearing{cfg: cfg, solver: s.solver, book: book, node: &node, now: sample.Node.At})
	if !lowered {
		return s
	}
	s.releases.at, s.releases.from = sample.Node.At, s.price.inForce
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
	at    time.Time    // of the last
	from  market.Price // from which it lowered the price; 0: it has been judged
	wait  time.Duration
	until time.Time // no release before
	wrong time.Time // when the last one proved wrong, or its wait was last halved
}

const (
	// leastReleaseWait and longestReleaseWait bound the wait after a wrong release. It doubles with each,
	// so that pods that stop and go on get at most 16 of them an hour.
	leastReleaseWait, longestReleaseWait = 10 * time.Second, 5 * time.Minute
	// releaseCalm is the time without a wrong release after which the wait halves.
	releaseCalm = 10 * time.Minute
	// wrongReleasePrice is the share of the price before the release from which it proves wrong.
	wrongReleasePrice = 0.85
)

// judge says in each round whether the last release was wrong: the price was needed again within FallDelay.
func (r releases) judge(cfg Config, price market.Price, now time.Time) releases {
	if r.from > 0 && now.Sub(r.at) > cfg.FallDelay {
		r.from = 0
	}
	if r.from > 0 && float64(price) >= wrongReleasePrice*float64(r.from) {
		r.from, r.wrong = 0, now
		r.wait = min(max(2*r.wait, leastReleaseWait), longestReleaseWait)
		r.until = now.Add(r.wait)
	}
	if r.wait > 0 && now.Sub(r.wrong) >= releaseCalm {
		if r.wait, r.wrong = r.wait/2, now; r.wait < leastReleaseWait {
			r.wait = 0
		}
	}
	return r
}

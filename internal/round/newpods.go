package round

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// A new pod is a managed pod that does not bid yet: its containers are new or, after a start of the agent, the whole
// node is. What it demands is not known, so it counts nothing in the market, and nothing lowers it. It is raised as
// soon as a counter shows that it is throttled: where no price caps a busy pod or, until the node has WarmUpSamples, where
// CPU is idle and the price from before the start leaves the pod uncapped.

// newPodRule is which new pods are raised between this round and the next.
type newPodRule uint8

const (
	// raiseNone: the price caps a busy pod, or that of the time before is not known.
	raiseNone newPodRule = iota
	// raiseThrottled: no price caps a busy pod.
	raiseThrottled
	// raiseWhileIdle, of the throttled ones: the demands of the node are not known yet.
	raiseWhileIdle
)

func (s *State) newPodRule(cfg Config) newPodRule {
	switch {
	case s.samples < cfg.Demand.WarmUpSamples && s.priced:
		return raiseWhileIdle
	case s.samples >= cfg.Demand.WarmUpSamples && !s.price.binds:
		return raiseThrottled
	}
	return raiseNone
}

// addNewPods raises the new pods of a round that are throttled, and has looks read the others.
func (s *State) addNewPods(cfg Config, before, now kernel.Sample, out *Output) {
	l := &s.look
	l.newPods = s.newPodRule(cfg)
	if l.newPods == raiseNone || out.Skipped.WarmingUp == 0 {
		return
	}
	bids := make([]bool, len(l.pods))
	for i := range l.book {
		bids[l.book[i].pod] = bids[l.book[i].pod] || l.book[i].managed
	}
	l.idle = sense.IdleBetween(before.Node, now.Node, cfg.LongestGap, l.cores)
	raised := s.takeIn(cfg, before, now.Pods, func(i int) bool { return !bids[i] })
	if len(raised) == 0 {
		return
	}
	out.Skipped.WarmingUp -= len(raised)
	out.Decisions = append(out.Decisions, raised...)
	slices.SortStableFunc(out.Decisions, func(a, b Decision) int { return cmp.Compare(a.Pod, b.Pod) })
}

// TakesIn says whether Join would do anything.
func (s *State) TakesIn() bool { return s.look.newPods != raiseNone }

// Join takes in pods that were not in the last round, with a first sample of them, so that they
// need not wait for the next round: those that are throttled are raised, and looks read the others
// from now on. They follow the pods of the round in their order, in Decision.Pod and Output.Watch,
// too. It consumes the state: use the returned one. No estimate and no price changes.
func Join(cfg Config, s State, pods []PodInput, sample kernel.Sample) (State, Output) {
	l := &s.look
	l.node.Released = false
	if l.newPods == raiseNone {
		return s, Output{Node: l.node, Watch: l.watchedPods()}
	}
	first := len(l.pods)
	rates := sense.Compare(s.last, sample, cfg.LongestGap).Pods
	l.pods, l.rates = append(slices.Clip(l.pods), s.bounded(pods, rates)...), append(slices.Clip(l.rates), rates...)
	earlier := make([]kernel.PodSample, first, first+len(pods)) // those of the round stay
	raised := s.takeIn(cfg, s.last, append(earlier, sample.Pods...), func(i int) bool { return i >= first })
	return s, Output{Node: l.node, Decisions: raised, Watch: l.watchedPods()}
}

// takeIn raises the new pods among the pods that are throttled, and adds the others to those that
// looks read. before is the sample of the last round, and now what is known of each pod.
func (s *State) takeIn(
	cfg Config, before kernel.Sample, now []kernel.PodSample, joins func(int) bool,
) (raised []Decision) {
	l := &s.look
	l.book, l.watched = slices.Clip(l.book), slices.Clip(l.watched)
	if len(l.watched) == 0 {
		l.sample.Pods = nil // those of the round
	}
	l.estimates = maps.Clone(s.withNewPods().estimates)
	s.raises = maps.Clone(s.raises)
	var waiting []int // indices into the book
	for i, p := range l.pods {
		if !joins(i) {
			continue
		}
		b, ok := s.newPodBid(cfg, p, i, now[i])
		if !ok {
			continue
		}
		l.book = append(l.book, b)
		s.raises[p.UID] = s.raises[p.UID].Next(b.limit, b.declared, false) // the limit from before a raise
		o := firstThrottling(p.Pod, l.rates[i], now[i], before)
		o.index, o.usage = len(l.book)-1, b.usage
		if l.book[o.index].latestThrottleRatio = o.throttled; o.throttled >= needThrottleRatio && s.mayRaise(cfg) {
			if d, raises := s.raise(cfg, o); raises {
				raised, l.decided[p.UID] = append(raised, d), true
				continue
			}
		}
		if max(b.limit, b.published) < b.bid.Ceiling && !p.IncreaseOnNeed && cfg.LookInterval > 0 {
			waiting = append(waiting, o.index)
		}
	}
	slices.SortStableFunc(waiting, func(x, y int) int {
		return cmp.Compare(l.pods[l.book[y].pod].Published.ThrottleRatio, l.pods[l.book[x].pod].Published.ThrottleRatio)
	})
	l.sample.Pods = slices.Clip(l.sample.Pods)
	count := 0
	for _, i := range l.watched {
		count += len(l.pods[l.book[i].pod].Containers)
	}
	for _, i := range waiting {
		pod := l.book[i].pod
		if n := len(l.pods[pod].Containers); count+n <= maxWatched {
			l.watched, l.sample.Pods, count = append(l.watched, i), append(l.sample.Pods, now[pod]), count+n
		}
	}
	return raised
}

// newPodBid is the bid of a new pod; not ok where its limit cannot be raised, or the kernel does
// not enforce it. A new container counts with its limit: that it needs more shows before how much.
func (s *State) newPodBid(cfg Config, p PodInput, index int, now kernel.PodSample) (b bidder, ok bool) {
	l := &s.look
	rates := l.rates[index]
	switch readinessOf(cfg.Demand, p.Pod, rates, s.estimates) {
	case noRates, warmingUp, ready:
	default:
		return b, false
	}
	if p.Unmanaged || !enforced(p.Pod, rates, now) {
		return b, false
	}
	price := s.withNewPods().price.inForce
	was := p.Published
	if l.newPods == raiseWhileIdle && (was.At.IsZero() && price > 0 || !was.At.IsZero() && was.Bound != market.ByNothing) {
		return b, false
	}
	for _, c := range p.Containers {
		if c.Limited() && c.ID != "" && l.estimates[c.ID].Samples == 0 {
			l.estimates[c.ID] = demand.Estimate{Mean: c.Limit.Cores(), Latest: c.Limit.Cores()}
		}
	}
	b, _ = podBidders(p, rates, l.estimates, true, false)
	b.pod, b.warmingUp = index, true
	b.leftByOthers = s.room.leftByOthers(&b, s.countedOf(index))
	return b, b.bound(cfg, price) == market.ByNothing
}

// countedOf is what a pod takes of the room that does not bid: a new pod counts as unmanaged.
func (s *State) countedOf(pod int) (sum cpu.Milli) {
	for i := range s.look.book {
		if b := &s.look.book[i]; b.pod == pod && !b.managed {
			sum += b.counted(s.price.inForce)
		}
	}
	return sum
}

// withNewPods is the state between rounds, in which new pods have estimates, and a price that caps no busy pod is none.
func (s State) withNewPods() State {
	if s.look.newPods == raiseThrottled {
		s.price.inForce = 0
	}
	if s.look.estimates != nil {
		s.estimates = s.look.estimates
	}
	return s
}

// enforced says whether each limited container that runs was read, and has a quota as far as that is known.
func enforced(p demand.Pod, rates sense.PodRates, now kernel.PodSample) bool {
	some := false
	for j, c := range p.Containers {
		if !c.Limited() || c.ID == "" {
			continue
		}
		if v := rates.Containers[j].Validity; v != sense.Valid && v != sense.NoEarlierSample {
			return false
		}
		unlimited := func(q kernel.Quota) bool { return q.Period > 0 && q.Limit == 0 }
		if unlimited(now.Containers[j].Quota) && (now.Own.Quota.Period == 0 || unlimited(now.Own.Quota)) {
			return false
		}
		some = true
	}
	return some
}

// firstThrottling is in which share of periods limited containers were throttled: since the sample before or, of a
// container that this one did not know, since it started. The counters of one that may run for longer tell nothing.
func firstThrottling(p demand.Pod, rates sense.PodRates, now kernel.PodSample, before kernel.Sample) (o observed) {
	was := lookedAt(before, now.Pod)
	of := func(r sense.Rate, g kernel.Group, isNew bool) float64 {
		switch {
		case r.Validity == sense.Valid:
			return r.ThrottleRatio
		case r.Validity == sense.NoEarlierSample && isNew && !before.Node.At.IsZero() && g.Stat.Periods > 0:
			return min(1, float64(g.Stat.Throttled)/float64(g.Stat.Periods))
		}
		return 0
	}
	for j, c := range p.Containers {
		ratio := 0.0
		if c.ID != "" {
			isNew := was == nil || !slices.ContainsFunc(was.Containers, func(g kernel.Group) bool { return g.ID == c.ID })
			ratio = max(of(rates.Containers[j], now.Containers[j], isNew), of(rates.Own, now.Own, was == nil))
		}
		if c.Limited() {
			o.throttled, o.needs = max(o.throttled, ratio), append(o.needs, c.Need(rates.Containers[j].Usage, ratio > 0))
		}
	}
	return o
}

// mayRaise says whether throttling suffices to raise a new pod now.
func (s *State) mayRaise(cfg Config) bool {
	l := &s.look
	return l.newPods == raiseThrottled || l.newPods == raiseWhileIdle && l.idle.Known &&
		s.freeOf(l.idle.CPU).Cores() >= cfg.ReleaseIdle*l.node.Supply.Cores()
}

// freeOf is what the reserve, the usage outside of pods and DemandSignals leave of the idle CPU.
func (s *State) freeOf(idle cpu.Milli) cpu.Milli {
	l := &s.look
	return idle - max(0, l.cores-l.node.Supply-l.node.System) - keptForSignals(l.book, s.price.inForce)
}

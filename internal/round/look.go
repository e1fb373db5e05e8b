package round

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// A look reads the counters of a few pods between two rounds, raises limits, and revokes raises. A round sees within
// a second or two that a pod needs more, or that CPU is scarce; a look sees it within LookInterval.
//
// It raises an uncapped pod that is throttled, to the limit that the next round would give it or, under a price that
// caps a pod, to what the others leave: a look is too brief to tell a burst from a pod that saturates. And it lowers the
// price where a capped pod has stopped: its own usage shows that at once, while idle CPU alone may be a lull of pods that
// get what they demand. The pod that has stopped keeps its limit.

const (
	// maxWatched is how many containers a look reads.
	maxWatched = 32
	// maxWatchedCapped is how many of them are those of capped pods, while uncapped ones need the others. New pods need
	// the others of a node whose pods are idle.
	maxWatchedCapped = 24
	// nearLimit is the share of its limit from which an uncapped pod is watched before others. A burst takes a pod from
	// there to its limit before the next round.
	nearLimit = 0.125
	// leastLook and longestLook bound the time from one look to the next: the counters of throttling
	// advance with each CFS period, and what happened long ago tells nothing about now.
	leastLook, longestLook = 100 * time.Millisecond, time.Second
	// stoppedShare is the share of its demand, and of its limit, below which a capped pod has stopped.
	// The period in which it stops counts as throttled, so throttling does not show it.
	stoppedShare = 0.5
	// saturatedLooks is how many looks in a row have to see a pod saturate before it can be seen to
	// stop. The usage of one that waits for requests falls by half every few looks.
	saturatedLooks = 3
	// fullIdle is the share of the CPUs below which idle CPU makes a full node: its clock ticks every
	// 10 ms. There a pod saturates that no quota throttles yet, as before its first decrease.
	fullIdle = 0.05
)

// lookState is what a look needs of the last round, and what it remembers. A round makes it anew, all but busy, so
// a recording leaves the rest out.
type lookState struct {
	pods    []PodInput       `delta:"-"`
	rates   []sense.PodRates `delta:"-"`
	node    NodeDecision     `delta:"-"`
	cores   cpu.Milli        `delta:"-"` // capacity
	book    []bidder         `delta:"-"`
	watched []int            `delta:"-"` // indices into the book
	revoked bool             `delta:"-"` // a look has revoked a raise
	sample  kernel.Sample    `delta:"-"` // of the look before, or of the round

	newPods   newPodRule                 `delta:"-"`
	usage     map[int]cpu.Milli          `delta:"-"` // seen by the last look, by index into the book
	idle      sense.Idle                 `delta:"-"` // of the last tick or look
	estimates map[string]demand.Estimate `delta:"-"` // with those of new pods; nil: there are none
	decided   map[string]bool            `delta:"-"` // pods that the round has raised, or a look decided about, by UID
	busy      map[string]busy            // watched pods, by UID
}

// busy is what the looks at a capped pod have seen.
type busy struct {
	looks, before int  // in a row that saw it saturate, and how many these were at the look before
	stopped       bool // since then it uses little
}

// next takes in a look, whether the pod was throttled, the node full, and its usage little. A pod
// may stop within the time of a look that sees it throttled yet.
func (b busy) next(throttled, full, little bool) busy {
	n := busy{before: b.looks, stopped: little && (b.stopped || max(b.looks, b.before) >= saturatedLooks)}
	if (throttled || full && !little) && !n.stopped {
		n.looks = b.looks + 1
	}
	return n
}

// newLookState chooses the pods that looks read after a round. l has the pods, rates, node and book of it.
func newLookState(cfg Config, s State, in Input, decisions []Decision, l lookState) lookState {
	book := l.book
	l.cores, l.sample = in.Node.Capacity, in.Sample
	l.decided = map[string]bool{}
	for _, d := range decisions { // a look may raise what the round lowers
		l.decided[d.UID] = d.Publish && d.Limit > in.Pods[d.Pod].Pod.Limit()
	}
	if cfg.LookInterval == 0 || s.samples < cfg.Demand.WarmUpSamples {
		return l
	}
	var revocable, capped, near, idle []int
	for i := range book {
		b := &book[i]
		switch {
		case !b.managed:
		case b.revocableTo > 0 && l.takenBelow(in.Pods[b.pod].Priority()) < b.limit-b.revocableTo:
			revocable = append(revocable, i)
		case b.bound(cfg, s.price.inForce) != market.ByNothing:
			capped = append(capped, i)
		case s.couldNeedMore(cfg, b, in.Pods[b.pod]):
			near = append(near, i)
		case b.couldRise(cfg, in.Pods[b.pod].Pod, b.bid.Ceiling):
			idle = append(idle, i)
		}
	}
	slices.SortStableFunc(capped, func(x, y int) int { return cmp.Compare(book[y].limit, book[x].limit) })
	for _, list := range [][]int{near, idle} {
		slices.SortStableFunc(list, func(x, y int) int { return cmp.Compare(book[y].fullness(), book[x].fullness()) })
	}
	slices.SortStableFunc(revocable, func(x, y int) int {
		a, b := &book[x], &book[y]
		return cmp.Or(cmp.Compare(b.excess(b.usage), a.excess(a.usage)), cmp.Compare(b.excess(b.limit), a.excess(a.limit)))
	})
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
	count := watch(near, maxWatched, watch(capped, most, watch(revocable, most, 0)))
	watch(idle, maxWatchedCapped, count) // new pods take the rest
	l.sample.Pods = make([]kernel.PodSample, len(l.watched))
	l.busy = make(map[string]busy, len(l.watched))
	for i, j := range l.watched {
		l.sample.Pods[i] = in.Sample.Pods[book[j].pod]
		uid := in.Pods[book[j].pod].UID
		was := s.look.busy[uid]
		if b := &book[j]; b.latestThrottleRatio >= nearlyAlways && b.usesUpItsLimit() { // a tick is as good as looks
			was.looks, was.stopped = max(was.looks, saturatedLooks), false
		}
		l.busy[uid] = was
	}
	return l
}

// couldNeedMore says whether an uncapped pod may be throttled before the next round, and could be raised.
func (s *State) couldNeedMore(cfg Config, b *bidder, p PodInput) bool {
	look := *b
	look.brief, look.needs = true, nil
	return (b.warmingUp || b.throttleRatio > 0 || b.fullness() >= nearLimit) && b.couldRise(cfg, p.Pod, s.uncappedLimit(cfg, &look, p.Pod))
}

// couldRise says whether an uncapped pod may be raised that far. To its ceiling, an idle one may become busy any time, and
// others may stop and leave it more.
func (b *bidder) couldRise(cfg Config, p demand.Pod, to cpu.Milli) bool {
	now := max(b.limit, b.published)
	return to > now && differs(to, now, cfg.PublishBand) && !p.IncreaseOnNeed
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
	throttled float64     // the highest ratio among its containers
	needs     []cpu.Milli // of its limited containers
	stopped   bool
}

// Look is a look at the pods of Output.Watch, in this order. It consumes the state: use the
// returned one. Every decision is to be published: an increase, or one raise that is revoked.
func Look(cfg Config, s State, sample kernel.Sample) (State, Output) {
	s.look.node.Released = false
	before := s.look.sample
	elapsed := sample.Node.At.Sub(before.Node.At)
	if len(s.look.watched) == 0 || elapsed < leastLook {
		return s, Output{Node: s.look.node}
	}
	s.look.sample = sample
	s.look.idle = sense.IdleBetween(before.Node, sample.Node, longestLook, s.look.cores)
	seen := s.look.observe(cfg, s.price.inForce, sample, sense.Compare(before, sample, longestLook).Pods)
	if s.look.idle.Known {
		s = s.release(cfg, seen, s.look.idle.CPU, sample)
		s.room.idle = max(0, s.freeOf(s.look.idle.CPU))
	}
	var decisions []Decision
	decide := func(d Decision) {
		s.look.decided[d.UID] = true
		decisions = append(decisions, d)
	}
	s.noteFull(cfg, elapsed)
	s.look.usage = make(map[int]cpu.Milli, len(seen))
	for _, o := range seen {
		s.look.usage[o.index] = o.usage
	}
	if d, revoked := s.revoke(cfg, seen); revoked {
		decide(d)
	}
	for _, o := range seen {
		if d, raises := s.raise(cfg, o); raises {
			s.room.idle -= d.Limit - s.look.book[o.index].limit
			decide(d)
		}
	}
	return s, Output{Node: s.look.node, Decisions: decisions}
}

// observe is what the rates of a look show. A pod with a container that has none is left out.
func (l *lookState) observe(cfg Config, price market.Price, sample kernel.Sample, rates []sense.PodRates) []observed {
	seen := make([]observed, 0, len(l.watched))
	after := make(map[string]busy, len(l.watched))
	full := l.idle.Known && l.idle.CPU.Cores() < fullIdle*l.cores.Cores()
	for i, j := range l.watched {
		b, o, valid := &l.book[j], observed{index: j}, i < len(rates)
		for k, c := range l.pods[b.pod].Containers {
			if !c.Limited() || !valid {
				continue
			}
			r := rates[i].Containers[k]
			ratio := withPodQuota(r, rates[i].Own, c).ThrottleRatio
			if o.needs = append(o.needs, c.Need(r.Usage, ratio > 0)); c.ID == "" {
				continue
			}
			// The usage of a cgroup that was removed has ended.
			valid = r.Validity == sense.Valid || r.Validity == sense.Missing && !sample.Pods[i].Blocked
			o.usage += r.Usage
			o.throttled = max(o.throttled, ratio)
		}
		if !valid {
			continue
		}
		if b.bound(cfg, price) != market.ByNothing {
			uid := l.pods[b.pod].UID
			little := o.usage.Cores() <= stoppedShare*min(b.limit, b.bid.Demand).Cores()
			now := l.busy[uid].next(o.throttled > 0, full, little)
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
	uncapped := b.bound(cfg, s.price.inForce) == market.ByNothing
	if o.throttled == 0 || o.stopped || s.look.decided[pod.UID] || pod.IncreaseOnNeed && uncapped ||
		s.releases.stopped[pod.UID] > 0 || s.look.newPods == raiseWhileIdle && !s.mayRaise(cfg) {
		return d, false // one that stopped a moment ago and goes on may get nothing by it
	}
	b.throttleRatio, b.usage, b.needs, b.brief = max(b.throttleRatio, needThrottleRatio), o.usage, o.needs, true
	b.latestThrottleRatio = max(b.latestThrottleRatio, o.throttled) // the controller goes by it
	b.minLimit = max(b.minLimit, b.whenBusy)
	d = decideOne(cfg, s.withNewPods(), pod, s.look.rates[b.pod], b)
	if d.Limit <= b.limit || !differs(d.Limit, max(b.limit, b.published), cfg.PublishBand) {
		return d, false
	}
	for i, part := range s.parts(pod.Pod, pod.Published.Limits, 0) {
		if d.Containers[i].Limit < part.Limit {
			return d, false // another split waits for the round
		}
	}
	d.Publish = d.Limit > b.published
	return d, d.Publish
}

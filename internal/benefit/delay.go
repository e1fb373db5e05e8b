package benefit

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// A limit delays work. It is exhausted from when a container demands more than the limit until the work that waits is done.
// How long that takes depends on the load and the limit alone: it is the busy period of a queue that is served at the limit.
// Both modes can tell how long that is, each from its own counters. Where limits are only recommended, the container is at its
// limit, and throttled, for as long. Where they are enforced, its usage is the load, and a queue that is served at the declared
// limit and fed with that usage is busy for as long. Delayed CPU time is that time times the limit.
//
// How much more CPU the container would have used at once is another figure, and no counter of a container at its limit shows
// it: see TestCountersDoNotTellHowMuch. The queue is one of work that is delayed and not dropped.

const (
	// exhaustedRatio is the share of throttled CFS periods, and exhaustedShare the share of its limit that a container used,
	// from which its limit was exhausted in a round. Less is a burst within a round, whose work was done in it.
	exhaustedRatio = 0.5
	exhaustedShare = 0.95
	// beyondShare is the multiple of the declared limit from which usage has exceeded it: samples are not taken at the ends
	// of CFS periods.
	beyondShare = 1.01
	// keptShare is the share of its limit from which a decision leaves a pod its limit: smaller decreases are not published
	// (round.Config.PublishBand).
	keptShare = 0.9
	// overloadedAfter is how long a limit is exhausted without a break until work counts as too much for a limit that the
	// price bounds, too.
	overloadedAfter = time.Minute
)

// throttled is the share of a round in which work waited for quota.
func throttled(r sense.Rate) float64 {
	if r.ThrottleRatio < exhaustedRatio {
		return 0
	}
	return r.ThrottleRatio
}

// delayed is the CPU time that a container used in a round while its limit was exhausted.
func delayed(c demand.Container, r sense.Rate) time.Duration {
	if r.Usage.Cores() < exhaustedShare*c.Limit.Cores() {
		return 0
	}
	return over(r.Usage, time.Duration(throttled(r)*float64(r.Elapsed)))
}

// queue is the work that would wait for the declared limit of a container, in core-seconds.
type queue float64

// serve takes in the usage of a round, and returns the share of it in which the declared limit would have been exhausted.
func (q *queue) serve(usage, declared cpu.Milli, elapsed time.Duration) (share float64) {
	waits, seconds := float64(*q), elapsed.Seconds()
	spare := (declared - usage).Cores() * seconds
	switch {
	case waits+usage.Cores()*seconds >= beyondShare*declared.Cores()*seconds:
		share = 1
	case waits > 0:
		share = 1
		if spare > waits {
			share = waits / spare
		}
	default:
		return 0
	}
	*q = queue(max(0, waits-spare))
	return share
}

// delays counts the delays of a pod in a round.
func (p *counted) delays(in *replay.Pod, rates sense.PodRates, elapsed time.Duration) {
	p.delayed = 0
	for j, c := range in.Containers {
		if j >= len(rates.Containers) || !c.Limited() {
			continue
		}
		r := rates.Containers[j]
		if r.Validity != sense.Valid {
			delete(p.queues, c.ID)
			continue
		}
		p.delayed += delayed(c, r)
		q := p.queues[c.ID]
		if c.Limit > c.Declared || q > 0 {
			share := q.serve(r.Usage, c.Declared, r.Elapsed)
			p.queues[c.ID] = q
			p.Avoided += over(c.Declared, time.Duration(share*(1-throttled(r))*float64(r.Elapsed)))
		}
	}
	p.Delayed += p.delayed
	if p.exhaustedFor += elapsed; p.delayed == 0 {
		p.exhaustedFor = 0
	}
}

// avoids says whether the decision would have avoided the delays of a round, as far as that is known: it leaves the pod at
// least its declared limit, and what it gives is not bound.
func (p *counted) avoids(d *round.Decision, declared cpu.Milli) bool {
	if p.limit != declared || d.Limit.Cores() < keptShare*p.limit.Cores() {
		return false
	}
	switch d.Bound {
	case market.ByCeiling:
		return false
	case market.ByPrice, market.ByFloor:
		return p.exhaustedFor < overloadedAfter
	}
	return true
}

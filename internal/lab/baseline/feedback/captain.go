package feedback

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The constants of the published code.
const (
	// captainTick is the time between two samples: one CFS period. (The original reads 3 ms before
	// the end of the period, where all pods' periods are one; here each pod has its own.)
	captainTick = 100 * time.Millisecond
	// captainDecision is the time between two decisions, and captainThrottles how many ticks the
	// throttle ratio is the mean of.
	captainDecision  = time.Second
	captainThrottles = 10
	// captainUsages is how many ticks of use are looked at.
	captainUsages = 50
	// captainMargin is how many standard deviations of use are kept above its maximum at first.
	captainMargin = 3
	// captainTolerance times the target is the throttle ratio from which limits are raised.
	captainTolerance = 3
	// captainDecreaseBelow is the dead band of lowering: only to less than this part of the limit.
	captainDecreaseBelow = 0.9
	// captainHalf is the part of a limit that a lowering leaves at least.
	captainHalf = 0.5
)

// Captain is Autothrottle's per-service controller (NSDI'24; microsoft/autothrottle,
// worker-daemon.py). It holds each pod's throttle ratio near a target, looking at nothing but that
// pod. A pod starts at its declared limit (in the published experiments at 32 cores).
type Captain struct {
	target float64
	pods   map[int]*captainPod
}

// captainPod is the state of one pod.
type captainPod struct {
	limit, last float64 // cores
	margin      float64
	throttles   []float64 // per tick, the latest at the end
	usages      []float64 // cores per tick, the latest at the end
	lowered     bool      // by the last decision

	at, decided time.Duration
	usage       time.Duration
	throttled   uint64
}

// NewCaptain lets that share of CFS periods be throttled (tau); Autothrottle's Tower chooses it from
// 0 to 0.3. Higher saves CPU and costs latency.
func NewCaptain(target float64) *Captain {
	return &Captain{target: target, pods: map[int]*captainPod{}}
}

// Decide implements sim.Policy.
func (c *Captain) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	var actions []sim.Action
	for p := range r.Managed() {
		s := c.pods[p.ID]
		if s == nil {
			c.pods[p.ID] = startCaptain(r, p)
			continue
		}
		use := (p.Usage - s.usage).Seconds() / (r.Now - s.at).Seconds()
		throttled := p.Throttled - s.throttled
		s.at, s.usage, s.throttled = r.Now, p.Usage, p.Throttled
		decides := r.Now >= s.decided+captainDecision
		if decides {
			s.decided = r.Now
		}
		c.tick(s, float64(throttled), use, decides)
		if a, changes := setCgroupLimit(p, s.limit); changes {
			actions = append(actions, a)
		}
	}
	return actions, r.Now + captainTick
}

func startCaptain(r *sim.Snapshot, p *sim.PodSnapshot) *captainPod {
	limit := p.Limit.Cores()
	return &captainPod{
		limit: limit, last: limit, margin: captainMargin,
		throttles: make([]float64, captainThrottles), usages: make([]float64, captainUsages),
		at: r.Now, decided: r.Now, usage: p.Usage, throttled: p.Throttled,
	}
}

// tick takes in how often the pod was throttled and how many cores it used, and decides when it is
// time.
func (c *Captain) tick(s *captainPod, throttled, use float64, decides bool) {
	appendShifted(s.throttles, throttled)
	appendShifted(s.usages, use)
	ratio := mean(s.throttles)
	if ratio > captainTolerance*c.target && s.lowered {
		s.limit = 2*s.last - s.limit // back to what it was, and as much again
		s.margin += ratio - c.target
		clear(s.throttles)
		s.lowered = false
	}
	if !decides {
		return
	}
	s.last = s.limit
	ratio = mean(s.throttles)
	s.margin = max(0, s.margin+ratio-c.target)
	s.lowered = false
	if over := ratio - captainTolerance*c.target; over > 0 {
		s.limit *= 1 + over
	} else if enough := slices.Max(s.usages) + deviation(s.usages)*s.margin; enough <= captainDecreaseBelow*s.limit {
		s.limit = max(captainHalf*s.limit, enough)
		s.lowered = true
	}
	clear(s.throttles)
	s.limit = max(0.01, s.limit)
}

// appendShifted forgets the oldest value.
func appendShifted(values []float64, v float64) {
	copy(values, values[1:])
	values[len(values)-1] = v
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// deviation is the sample's standard deviation.
func deviation(values []float64) float64 {
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}

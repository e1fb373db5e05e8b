package feedback

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// CaptainConfig is Autothrottle's per-service controller (NSDI'24; microsoft/autothrottle,
// worker-daemon.py).
type CaptainConfig struct {
	// Target is the share of CFS periods that may be throttled (tau); Autothrottle's Tower chooses
	// it from 0 to 0.3. Higher saves CPU and costs latency.
	Target float64
	// Tick is the time between two samples: one CFS period. (The original reads 3 ms before the end
	// of the period, where all pods' periods are one; here each pod has its own.)
	Tick time.Duration
	// Decision is the time between two decisions, and Throttles how many ticks the throttle ratio
	// is the mean of.
	Decision  time.Duration
	Throttles int
	// Usages is how many ticks of use are looked at.
	Usages int
	// Margin is how many standard deviations of use are kept above its maximum at first.
	Margin float64
	// Tolerance times the target is the throttle ratio from which limits are raised.
	Tolerance float64
	// DecreaseBelow is the dead band of lowering: only to less than this part of the limit.
	DecreaseBelow float64
	// Half is the part of a limit that a lowering leaves at least.
	Half float64
}

// Captain holds each pod's throttle ratio near a target, looking at nothing but that pod. A pod
// starts at its declared limit (in the published experiments at 32 cores).
type Captain struct {
	cfg  CaptainConfig
	pods map[int]*captainPod
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

// NewCaptain has the constants of the published code.
func NewCaptain(target float64) *Captain {
	cfg := CaptainConfig{
		Target: target, Tick: 100 * time.Millisecond, Decision: time.Second, Throttles: 10, Usages: 50,
		Margin: 3, Tolerance: 3, DecreaseBelow: 0.9, Half: 0.5,
	}
	return &Captain{cfg: cfg, pods: map[int]*captainPod{}}
}

// Decide implements sim.Policy.
func (c *Captain) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	var actions []sim.Action
	for p := range r.Managed() {
		s := c.pods[p.ID]
		if s == nil {
			c.pods[p.ID] = c.cfg.start(r, p)
			continue
		}
		use := (p.Usage - s.usage).Seconds() / (r.Now - s.at).Seconds()
		throttled := p.Throttled - s.throttled
		s.at, s.usage, s.throttled = r.Now, p.Usage, p.Throttled
		decides := r.Now >= s.decided+c.cfg.Decision
		if decides {
			s.decided = r.Now
		}
		c.cfg.tick(s, float64(throttled), use, decides)
		if a, changes := setCgroupLimit(p, s.limit); changes {
			actions = append(actions, a)
		}
	}
	return actions, r.Now + c.cfg.Tick
}

func (c CaptainConfig) start(r *sim.Snapshot, p *sim.PodSnapshot) *captainPod {
	limit := p.Limit.Cores()
	return &captainPod{
		limit: limit, last: limit, margin: c.Margin,
		throttles: make([]float64, c.Throttles), usages: make([]float64, c.Usages),
		at: r.Now, decided: r.Now, usage: p.Usage, throttled: p.Throttled,
	}
}

// tick takes in how often the pod was throttled and how many cores it used, and decides when it is
// time.
func (c CaptainConfig) tick(s *captainPod, throttled, use float64, decides bool) {
	appendShifted(s.throttles, throttled)
	appendShifted(s.usages, use)
	ratio := mean(s.throttles)
	if ratio > c.Tolerance*c.Target && s.lowered {
		s.limit = 2*s.last - s.limit // back to what it was, and as much again
		s.margin += ratio - c.Target
		clear(s.throttles)
		s.lowered = false
	}
	if !decides {
		return
	}
	s.last = s.limit
	ratio = mean(s.throttles)
	s.margin = max(0, s.margin+ratio-c.Target)
	s.lowered = false
	if over := ratio - c.Tolerance*c.Target; over > 0 {
		s.limit *= 1 + over
	} else if enough := slices.Max(s.usages) + deviation(s.usages)*s.margin; enough <= c.DecreaseBelow*s.limit {
		s.limit = max(c.Half*s.limit, enough)
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

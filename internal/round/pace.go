package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// A pod saturates if it would use any amount of CPU: it is throttled at its limit, or waits for a CPU of a
// full node, nearly all the time. More CPU gives it throughput, and some seconds later is as good. So
// an increase that had to be taken back makes its next one wait, and each is to twice its limit at most:
// otherwise its limit would follow each lull of the other pods, and it would be in their way when that ends.

// pace is what rounds remember of a pod that may saturate.
type pace struct {
	busy, calm time.Duration // for which it has wanted more CPU, less what interrupted it; since it did
	saturates  bool
	capped     bool          // in the last round
	delay      time.Duration // of its next increase
	above      time.Duration // for which the market has left it more than its limit
	mean       float64       // of what the market has left it in that time, in cores
	raisedAt   time.Time     // zero: that increase has been judged
	judgedAt   time.Time     // when the delay changed last
}

const (
	// busyThrottleRatio and busyPressure are the shares of periods, and of time, from which a container at
	// its quota, or on a full node, wants more CPU.
	busyThrottleRatio, busyPressure = 0.5, 0.9
	// busyFactor is how fast a time without want outweighs one with it: a pod saturates if it wants more
	// CPU for more than three quarters of the time.
	busyFactor = 3
	// saturatesFor is for how long a pod counts as one that saturates after it has wanted more CPU.
	saturatesFor = 2 * time.Minute
	// pacedBand is the relative increase below which the limit of a pod that saturates stays.
	pacedBand = 0.2
	// pacedFactor is the largest factor of one increase of a pod that saturates.
	pacedFactor = 4
	// regretDelays is within how many delays an increase is taken back if it was wrong.
	regretDelays = 3
)

// noteSaturation notes who saturates, of all managed pods with valid rates.
func noteSaturation(
	cfg Config, before map[string]pace, pods []PodInput, rates []sense.PodRates, full bool,
) map[string]pace {
	after := make(map[string]pace, len(before))
	for i, p := range pods {
		if p.Unmanaged {
			continue
		}
		s := before[p.UID]
		if elapsed, busy := wantsMore(p, rates[i], full); busy {
			s.busy, s.calm = min(s.busy+elapsed, cfg.SaturatedAfter), 0
		} else {
			s.busy, s.calm = max(0, s.busy-busyFactor*elapsed), s.calm+elapsed
		}
		s.saturates = s.busy >= cfg.SaturatedAfter || s.saturates && s.calm < saturatesFor
		after[p.UID] = s
	}
	return after
}

// wantsMore says whether a limited container of the pod wanted more CPU in the last tick. elapsed is 0
// without valid rates.
func wantsMore(p PodInput, rates sense.PodRates, full bool) (elapsed time.Duration, wants bool) {
	for j, c := range p.Containers {
		r := rates.Containers[j]
		if !c.Limited() || r.Validity != sense.Valid {
			continue
		}
		elapsed = r.Elapsed
		atQuota := withPodQuota(r, rates.Own, c).ThrottleRatio >= busyThrottleRatio &&
			r.Usage.Cores() >= stoppedThreshold*c.Limit.Cores()
		waits := full && r.Pressure.Known && r.Pressure.Value >= busyPressure
		wants = wants || atQuota || waits
	}
	return elapsed, wants
}

// paceIncreases bounds the next limits of the pods that saturate, in the book.
func paceIncreases(cfg Config, s State, in Input, book []bidder, elapsed time.Duration) {
	for i := range book {
		b := &book[i]
		if !b.managed {
			continue
		}
		p := in.Pods[b.pod]
		bound := b.bound(cfg, s.price.inForce)
		next := s.paces[p.UID]
		next.capped = bound != 0
		next, b.most = next.follow(cfg, b.limit, s.target(b, p, bound), in.Now, elapsed)
		s.paces[p.UID] = next
	}
}

// follow moves the pace on by a tick in which the market leaves the pod a limit. most is the highest limit
// that it may have now; 0: any.
func (s pace) follow(
	cfg Config, limit, target cpu.Milli, now time.Time, elapsed time.Duration,
) (after pace, most cpu.Milli) {
	s = s.judge(cfg, limit, target, now)
	if !s.saturates || s.delay == 0 || target.Cores() <= (1+pacedBand)*limit.Cores() {
		if s.above, s.mean = 0, 0; target > limit {
			if s.saturates && s.delay > 0 { // within the band
				return s, limit
			}
			if target.Cores() > (1+pacedBand)*limit.Cores() {
				s.raisedAt = now
			}
		}
		return s, 0
	}
	left := min(target.Cores(), pacedFactor*limit.Cores())
	s.above += elapsed
	s.mean += (left - s.mean) * min(1, elapsed.Seconds()/s.above.Seconds())
	if !lasted(s.above, elapsed, s.delay) {
		return s, limit
	}
	most = max(limit, cpu.FromCores(s.mean))
	s.above, s.mean, s.raisedAt = 0, 0, now
	return s, most
}

// judge doubles the delay when an increase has to be taken back soon, and halves it after calm.
func (s pace) judge(cfg Config, limit, target cpu.Milli, now time.Time) pace {
	within := regretDelays * max(s.delay, cfg.RegretDelay)
	switch {
	case s.raisedAt.IsZero():
		if s.delay > 0 && now.Sub(s.judgedAt) >= pacedCalm {
			if s.judgedAt, s.delay = now, s.delay/2; s.delay < cfg.RegretDelay {
				s.delay = 0
			}
		}
	case now.Sub(s.raisedAt) > within:
		s.raisedAt = time.Time{}
	case target.Cores() < (1-cfg.PublishBand)*limit.Cores():
		s.delay = min(max(2*s.delay, cfg.RegretDelay), cfg.LongestDelay)
		s.raisedAt, s.judgedAt = time.Time{}, now
	}
	return s
}

// pacedCalm is the time without a wrong increase after which the delay halves.
const pacedCalm = 5 * time.Minute

package feedback

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// KondenseConfig is unagex/kondense (2024), a sidecar that resizes its pod each second.
type KondenseConfig struct {
	// Interval is the time between two resizes.
	Interval time.Duration
	// Probes is how many samples the mean use spans; their first and last are six samples apart
	// less one.
	Probes int
	// Target is the part of its limit that a pod should use.
	Target float64
	// Coefficient of the quadratic term: how much more than needed is added at once.
	Coefficient float64
	// MostUp and MostDown bound the relative change of one resize.
	MostUp, MostDown float64
	// Ignore is the relative change that is not worth a resize.
	Ignore float64
	// Least and Most bound limits.
	Least, Most cpu.Milli
}

// Kondense follows each pod's mean use, by itself. The original is for Guaranteed pods and moves
// request and limit together; the pods here are Burstable, so the limit moves and stays above the
// request. It also waits for two samples, where the original lowers once before it has seen any
// use.
type Kondense struct {
	cfg  KondenseConfig
	pods map[int]*kondensePod
}

// kondensePod is the state of one pod.
type kondensePod struct {
	limit  cpu.Milli // in its spec; the kernel's is rounded up to 10m
	probes []probe   // the latest at the end
}

// probe is one sample.
type probe struct{ at, usage time.Duration }

// NewKondense has the defaults of the published code.
func NewKondense() *Kondense {
	cfg := KondenseConfig{
		Interval: time.Second, Probes: 6, Target: 0.8, Coefficient: 6, MostUp: 0.5, MostDown: 0.1, Ignore: 0.01,
		Least: 10, Most: 100 * cpu.Core,
	}
	return &Kondense{cfg: cfg, pods: map[int]*kondensePod{}}
}

// Decide implements sim.Policy.
func (k *Kondense) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	var actions []sim.Action
	for p := range r.Managed() {
		s := k.pods[p.ID]
		if s == nil {
			s = &kondensePod{limit: p.Limit}
			k.pods[p.ID] = s
		}
		s.probes = append(s.probes, probe{r.Now, p.Usage})
		s.probes = s.probes[max(0, len(s.probes)-k.cfg.Probes):]
		first, last := s.probes[0], s.probes[len(s.probes)-1]
		if last.at <= first.at {
			continue
		}
		use := (last.usage - first.usage).Seconds() / (last.at - first.at).Seconds()
		factor := k.cfg.factor(use, s.limit.Cores())
		if math.Abs(factor) < k.cfg.Ignore {
			continue
		}
		s.limit = k.cfg.next(s.limit, factor, p.Request)
		if limit := s.limit.RoundUp(cpu.Quantum); limit != p.Limit {
			actions = append(actions, sim.Action{Pod: p.ID, Limit: limit, Delay: sim.ResizeDelay})
		}
	}
	return actions, r.Now + k.cfg.Interval
}

// factor is the relative change: down to use/target, and up beyond it by the square of the
// coefficient times the gap.
func (c KondenseConfig) factor(use, limit float64) float64 {
	gap := use/c.Target/limit - 1
	if gap > 0 {
		return min(gap+c.Coefficient*gap*c.Coefficient*gap, c.MostUp)
	}
	return max(gap, -c.MostDown)
}

// next is the limit after a relative change, in whole thousandths, rounded down.
func (c KondenseConfig) next(limit cpu.Milli, factor float64, request cpu.Milli) cpu.Milli {
	return cpu.Milli(float64(limit)*(1+factor)).Clamp(max(c.Least, request+cpu.Quantum), c.Most)
}

package feedback

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The defaults of the published code.
const (
	kondenseInterval = time.Second // between two resizes
	// kondenseProbes is how many samples the mean use spans; their first and last are six samples
	// apart less one.
	kondenseProbes = 6
	// kondenseTarget is the part of its limit that a pod should use.
	kondenseTarget = 0.8
	// kondenseCoefficient of the quadratic term: how much more than needed is added at once.
	kondenseCoefficient = 6
	// Bounds of the relative change of one resize.
	kondenseMostUp, kondenseMostDown = 0.5, 0.1
	// kondenseIgnore is the relative change that is not worth a resize.
	kondenseIgnore = 0.01
	// Bounds of limits.
	kondenseLeast, kondenseMost = 10, 100 * cpu.Core
)

// Kondense is unagex/kondense (2024), a sidecar that resizes its pod each second. It follows each
// pod's mean use, by itself. The original is for Guaranteed pods and moves
// request and limit together; the pods here are Burstable, so the limit moves and stays above the
// request. It also waits for two samples, where the original lowers once before it has seen any
// use.
type Kondense struct{ pods map[int]*kondensePod }

// kondensePod is the state of one pod.
type kondensePod struct {
	limit  cpu.Milli // in its spec; the kernel's is rounded up to 10m
	probes []probe   // the latest at the end
}

// probe is one sample.
type probe struct{ at, usage time.Duration }

// NewKondense has the defaults of the published code.
func NewKondense() *Kondense { return &Kondense{pods: map[int]*kondensePod{}} }

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
		s.probes = s.probes[max(0, len(s.probes)-kondenseProbes):]
		first, last := s.probes[0], s.probes[len(s.probes)-1]
		if last.at <= first.at {
			continue
		}
		use := (last.usage - first.usage).Seconds() / (last.at - first.at).Seconds()
		factor := kondenseFactor(use, s.limit.Cores())
		if math.Abs(factor) < kondenseIgnore {
			continue
		}
		s.limit = kondenseNext(s.limit, factor, p.Request)
		if limit := s.limit.RoundUp(cpu.Quantum); limit != p.Limit {
			actions = append(actions, sim.Action{Pod: p.ID, Limit: limit, Delay: sim.ResizeDelay})
		}
	}
	return actions, r.Now + kondenseInterval
}

// kondenseFactor is the relative change: down to use/target, and up beyond it by the square of the
// coefficient times the gap.
func kondenseFactor(use, limit float64) float64 {
	gap := use/kondenseTarget/limit - 1
	if gap > 0 {
		return min(gap+kondenseCoefficient*gap*kondenseCoefficient*gap, kondenseMostUp)
	}
	return max(gap, -kondenseMostDown)
}

// kondenseNext is the limit after a relative change, in whole thousandths, rounded down.
func kondenseNext(limit cpu.Milli, factor float64, request cpu.Milli) cpu.Milli {
	return cpu.Milli(float64(limit)*(1+factor)).Clamp(max(kondenseLeast, request+cpu.Quantum), kondenseMost)
}

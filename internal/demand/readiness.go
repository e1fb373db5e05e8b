package demand

import (
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
)

// Readiness is whether the limit of a pod can be decided.
type Readiness uint8

const (
	Unmanaged Readiness = iota
	Ready
	WarmingUp  // too few samples to be lowered
	NoRates    // only one sample
	Stale      // the counters could not be read, were reset, or are too far apart
	Unenforced // the kernel enforces no limit
)

// Readiness is that of a managed pod: Ready if every running limited container has valid rates and a quota, and there
// is at least one. The quota may be that of the whole pod. estimates are by container ID.
func (p Pod) Readiness(cfg Config, r sense.PodRates, estimates map[string]Estimate) Readiness {
	state := Stale
	for j, c := range p.Containers {
		if !c.Limited() || c.ID == "" {
			continue
		}
		switch {
		case r.Containers[j].Validity == sense.NoEarlierSample:
			return NoRates
		case r.Containers[j].Validity != sense.Valid:
			return Stale
		case hasNoQuota(r.Containers[j]) && !(r.Own.QuotaKnown && r.Own.Quota > 0):
			return Unenforced
		case !estimates[c.ID].Warm(cfg):
			state = WarmingUp
		case state != WarmingUp:
			state = Ready
		}
	}
	return state
}

// hasNoQuota says that the kernel has quotas, and this cgroup has none.
func hasNoQuota(r sense.Rate) bool { return r.QuotaKnown && r.Quota == 0 }

// Enforced says of a pod that may be new whether each limited container that runs was read, and has a quota as far as
// that is known.
func (p Pod) Enforced(rates sense.PodRates, now kernel.PodSample) bool {
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

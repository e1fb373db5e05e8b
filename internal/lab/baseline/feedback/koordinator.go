package feedback

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// KoordinatorConfig is the constants of Koordinator's dynamic CFS quota burst
// (pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go).
type KoordinatorConfig struct {
	Interval time.Duration // 1 s
	// Percent is the ceiling of a quota in percent of the declared limit (cfsQuotaBurstPercent).
	Percent int
	// Up and Down are the factors of one step.
	Up, Down float64
	// Overload and Cooling are the node's use, as a share of its cores and a mean over Window, from
	// which on quotas shrink, or no longer grow (sharePoolThresholdPercent, and nine tenths of it).
	Overload, Cooling float64
	Window            time.Duration
	// Burst is for how long a pod may use its ceiling after it has saved up
	// (cfsQuotaBurstPeriodSeconds); negative: no such limit.
	Burst time.Duration
}

// Koordinator raises the quota of pods that were throttled while the node is idle, and lowers all
// quotas when it is not. It writes cgroups itself. Its static burst (cpu.max.burst) is not played:
// with its default the kernel refuses it on cgroup v2.
type Koordinator struct {
	cfg  KoordinatorConfig
	used []nodeUse // at the last calls, the oldest first, as far as Window reaches
	pods map[int]*burstPod
}

type nodeUse struct{ at, usage time.Duration }

// burstPod is what is kept of one pod between calls.
type burstPod struct {
	at, usage time.Duration
	throttled uint64
	tokens    int64 // percent of the limit, times seconds
}

// NewKoordinator is what Koordinator ships, with the policy cfsQuotaBurstOnly in place of none.
func NewKoordinator(burst time.Duration) *Koordinator {
	cfg := KoordinatorConfig{
		Interval: time.Second, Percent: 300, Up: 1.2, Down: 0.8, Overload: 0.5, Cooling: 0.45, Window: 5 * time.Second, Burst: burst,
	}
	return &Koordinator{cfg: cfg, pods: map[int]*burstPod{}}
}

// nodeState is how full the node is.
type nodeState uint8

const (
	nodeUnknown nodeState = iota
	nodeIdle
	nodeCooling
	nodeOverload
)

// Decide implements sim.Policy.
func (k *Koordinator) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	state := k.state(r)
	pods := make(map[int]*burstPod, len(r.Pods))
	var actions []sim.Action
	for p := range r.Managed() {
		before := k.pods[p.ID]
		now := &burstPod{at: r.Now, usage: p.Usage, throttled: p.Throttled}
		pods[p.ID] = now
		allowed, throttled := true, false
		if before == nil {
			now.tokens = k.initial(p.Spec)
		} else {
			now.tokens = k.spend(before, p, r.Now)
			allowed = k.cfg.Burst < 0 || now.tokens > 0
			throttled = p.Throttled > before.throttled
		}
		if limit := k.quota(state, allowed, throttled, p.Limit, p.Spec.Limit); limit != p.Limit {
			actions = append(actions, sim.Action{Pod: p.ID, Limit: limit, Delay: sim.DirectDelay})
		}
	}
	k.pods = pods
	return actions, r.Now + k.cfg.Interval
}

// state is the use of the shared pool: all of the node, as no pod is bound to cores and none is
// marked best effort.
func (k *Koordinator) state(r *sim.Snapshot) nodeState {
	k.used = append(k.used, nodeUse{r.Now, r.Usage})
	for len(k.used) > 1 && k.used[0].at < r.Now-k.cfg.Window {
		k.used = k.used[1:]
	}
	over := r.Now - k.used[0].at
	if over <= 0 {
		return nodeUnknown
	}
	switch share := float64(r.Usage-k.used[0].usage) / float64(over) / float64(r.Cores); {
	case share >= k.cfg.Overload:
		return nodeOverload
	case share >= k.cfg.Cooling:
		return nodeCooling
	}
	return nodeIdle
}

// quota is the next quota of a pod, in steps of 1m, dropping what is less.
func (k *Koordinator) quota(state nodeState, allowed, throttled bool, cur, base cpu.Milli) cpu.Milli {
	next := cur
	switch {
	case !allowed, state == nodeOverload:
		next = cpu.Milli(float64(cur) * k.cfg.Down)
	case throttled && state == nodeIdle:
		next = cpu.Milli(float64(cur) * k.cfg.Up)
	}
	return next.Clamp(base, base*cpu.Milli(k.cfg.Percent)/100)
}

// A pod at or above a use of spendFrom percent of its declared limit spends tokens, and below
// saveBelow it saves them.
const (
	spendFrom = 100
	saveBelow = 60
)

func (k *Koordinator) capacity() int64 {
	return int64(k.cfg.Burst/time.Second) * int64(k.cfg.Percent-100)
}

// initial is a random part of the first half of the bucket, as Koordinator does.
func (k *Koordinator) initial(s *sim.PodSpec) int64 {
	if k.cfg.Burst < 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(s.Namespace + "/" + s.Name))
	rng := rand.New(rand.NewPCG(0, h.Sum64()))
	return int64(float64(k.capacity()) * rng.Float64() / 2)
}

// spend is what is left of a pod's tokens. Parts of a second do not count.
func (k *Koordinator) spend(before *burstPod, p *sim.PodSnapshot, now time.Duration) int64 {
	if k.cfg.Burst < 0 {
		return 0
	}
	past := now - before.at
	percent := int64(100 * float64(p.Usage-before.usage) / float64(past) / p.Spec.Limit.Cores())
	seconds := int64(past / time.Second)
	tokens := before.tokens
	switch {
	case percent >= spendFrom:
		tokens -= (percent - 100) * seconds
	case percent < saveBelow:
		tokens += (100 - percent) * seconds
	}
	return max(min(tokens, k.capacity()), -k.capacity())
}

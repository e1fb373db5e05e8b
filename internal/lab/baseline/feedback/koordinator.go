package feedback

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The constants of Koordinator's dynamic CFS quota burst
// (pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go).
const (
	koordinatorInterval = time.Second
	// burstPercent is the ceiling of a quota in percent of the declared limit (cfsQuotaBurstPercent).
	burstPercent = 300
	// The factors of one step.
	burstUp, burstDown = 1.2, 0.8
	// The node's use, as a share of its cores and a mean over useWindow, from which on quotas shrink,
	// or no longer grow (sharePoolThresholdPercent, and nine tenths of it).
	overloadUse, coolingUse = 0.5, 0.45
	useWindow               = 5 * time.Second
)

// Koordinator raises the quota of pods that were throttled while the node is idle, and lowers all
// quotas when it is not. It writes cgroups itself. Its static burst (cpu.max.burst) is not played:
// with its default the kernel refuses it on cgroup v2.
type Koordinator struct {
	// burst is for how long a pod may use its ceiling after it has saved up
	// (cfsQuotaBurstPeriodSeconds); negative: no such limit.
	burst time.Duration
	used  []nodeUse // at the last calls, the oldest first, as far as useWindow reaches
	pods  map[int]*burstPod
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
	return &Koordinator{burst: burst, pods: map[int]*burstPod{}}
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
			allowed = k.burst < 0 || now.tokens > 0
			throttled = p.Throttled > before.throttled
		}
		if limit := burstQuota(state, allowed, throttled, p.Limit, p.Spec.Limit); limit != p.Limit {
			actions = append(actions, sim.Action{Pod: p.ID, Limit: limit, Delay: sim.DirectDelay})
		}
	}
	k.pods = pods
	return actions, r.Now + koordinatorInterval
}

// state is the use of the shared pool: all of the node, as no pod is bound to cores and none is
// marked best effort.
func (k *Koordinator) state(r *sim.Snapshot) nodeState {
	k.used = append(k.used, nodeUse{r.Now, r.Usage})
	for len(k.used) > 1 && k.used[0].at < r.Now-useWindow {
		k.used = k.used[1:]
	}
	over := r.Now - k.used[0].at
	if over <= 0 {
		return nodeUnknown
	}
	switch share := float64(r.Usage-k.used[0].usage) / float64(over) / float64(r.Cores); {
	case share >= overloadUse:
		return nodeOverload
	case share >= coolingUse:
		return nodeCooling
	}
	return nodeIdle
}

// burstQuota is the next quota of a pod, in steps of 1m, dropping what is less.
func burstQuota(state nodeState, allowed, throttled bool, cur, base cpu.Milli) cpu.Milli {
	next := cur
	switch {
	case !allowed, state == nodeOverload:
		next = cpu.Milli(float64(cur) * burstDown)
	case throttled && state == nodeIdle:
		next = cpu.Milli(float64(cur) * burstUp)
	}
	return next.Clamp(base, base*burstPercent/100)
}

// A pod at or above a use of spendFrom percent of its declared limit spends tokens, and below
// saveBelow it saves them.
const (
	spendFrom = 100
	saveBelow = 60
)

func (k *Koordinator) capacity() int64 {
	return int64(k.burst/time.Second) * (burstPercent - 100)
}

// initial is a random part of the first half of the bucket, as Koordinator does.
func (k *Koordinator) initial(s *sim.PodSpec) int64 {
	if k.burst < 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(s.Namespace + "/" + s.Name))
	rng := rand.New(rand.NewPCG(0, h.Sum64()))
	return int64(float64(k.capacity()) * rng.Float64() / 2)
}

// spend is what is left of a pod's tokens. Parts of a second do not count.
func (k *Koordinator) spend(before *burstPod, p *sim.PodSnapshot, now time.Duration) int64 {
	if k.burst < 0 {
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

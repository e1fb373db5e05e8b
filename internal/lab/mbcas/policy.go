// Package mbcas runs the code that ships as a policy of a simulated node: the agent's round, the
// controller's lifecycle with the actuator's plan, and the division of quotas. Only what connects
// them is modelled: how long a decision takes to the controller, and a resize to the kernel. A
// simulated node is always Ready, and no resize fails.
//
// What it promises, each a test of the same name:
//   - LimitsFollowThePrice, LimitsSettleAfterAStep, DemandAtTheShareIsStable, SharesAreLeft: the
//     bounds of docs/theory.md.
//   - DecisionsArriveLate: the controller plans with a decision once its publication has taken its
//     time, and sees a resize carried out once the kubelet could have said so.
//   - NewPodsNeedNotWaitForARound: a pod that starts between two rounds is taken in at once, as by the agent.
//   - IncreasesSupersede: an increase takes the place of the pod's decrease in flight.
//   - RollsBackInTheSimulator, ExternalChangesHoldOff, OutageFreezesAndRestores, ConstraintsHold,
//     QuotaHolds: a scenario shows what the lifecycle does.
package mbcas

import (
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Config is that of the agent, the controller, and the way between them.
type Config struct {
	Round     round.Config
	Lifecycle lifecycle.Config
	Quota     quota.Config
	// Interval is the time from one round to the next.
	Interval time.Duration
	// Publish is the time from the decisions of a round to the controller's plan: the writes of the
	// PodAllocations, and their watch.
	Publish sim.Delay
	// ResizeDelay is the time from a resize to the quota in the kernel.
	ResizeDelay time.Duration
	// ResizeDone is the time from a resize to when the controller sees it carried out.
	ResizeDone sim.Delay
	// Recommend: limits are decided and not applied.
	Recommend bool
	// Record records the rounds of one node; nil: nothing is recorded.
	Record *record.Recorder
	// DemandPercent is what DemandSignals multiply the demand of pods by, by name, in percent.
	DemandPercent map[string]int32
}

// DefaultConfig is what ships.
func DefaultConfig() Config {
	return Config{
		Round: round.DefaultConfig(), Lifecycle: lifecycle.DefaultConfig(), Quota: quota.DefaultConfig(),
		Interval: time.Second, Publish: sim.Delay{Min: 20 * time.Millisecond, Max: 100 * time.Millisecond},
		ResizeDelay: sim.ResizeDelay, ResizeDone: sim.ResizeDone,
	}
}

// MBCAS is the agent and the controller of one node.
type MBCAS struct {
	cfg   Config
	state round.State
	out   round.Output
	draws *rand.Rand // of delays; by the seed of the node

	pods            map[int]*pod
	roundAt, planAt time.Duration
	lookAt          time.Duration // never: no limit could be raised before the next round
	watched         []int         // IDs of the pods that looks read
	members         []int         // IDs of the pods of the last round, and of those taken in since
	joinAt          time.Duration // never: no pod waits to be taken in
	joinedAt        time.Duration
	renewedAt       time.Duration // the agent's Lease
	// livenessAt is when the age of the Lease may have a consequence. It is looked at with the
	// rounds, not at a time of its own: a call of the policy between them would change the rounding
	// of the simulated scheduler.
	livenessAt time.Duration
	arriving   []publication // at the controller, by time
}

// publication is a decision on its way to the controller.
type publication struct {
	at       time.Duration
	pod      *pod
	decision lifecycle.Decision
}

// pod is what the API server holds about one pod, and what the agent and the controller remember of
// it.
type pod struct {
	name     string
	spec     sim.PodSpec
	limit    cpu.Milli // in its spec
	declared cpu.Milli
	factor   coordinator.Factor
	share    cpu.Milli // of a quota that does not suffice; 0: it suffices

	external     int  // external changes seen
	ours         bool // MBCAS wrote limit, or its owner declared it
	unreadySince time.Duration

	doneAt    time.Duration
	published round.Published
	decision  *lifecycle.Decision
	status    lifecycle.Status
	memory    lifecycle.Memory

	demand         cpu.Milli
	floor, ceiling cpu.Milli // of the last decision
}

// budget is the pod's, with the coordinator's factor.
func (p *pod) budget(request cpu.Milli) market.Budget {
	return demand.Budget(request, p.spec.Priority) * market.Budget(p.factor) / market.Budget(coordinator.Neutral)
}

// weights are the factors of the pod's budget.
func (p *pod) weights() demand.Weights {
	percent := int32(math.Round(100 * demand.PriorityMultiplier(p.spec.Priority)))
	return demand.Weights{PriorityPercent: percent, CoordinationPercent: int32(p.factor)}
}

// container is the name of the one container of a simulated pod.
const container = "main"

// bounds is the container with the bounds that the node, its constraints and its share of a quota
// set.
func (p *pod) bounds(request, allocatable cpu.Milli) demand.Container {
	k := p.spec.Constraints
	floor := k.Floor.RoundUp(cpu.Quantum)
	ceiling := min(allocatable, max(floor, demand.RaiseCeiling(p.declared, demand.DefaultMaxRaise)))
	for _, c := range []cpu.Milli{k.Ceiling, p.share} {
		if c > 0 {
			ceiling = min(ceiling, c.RoundDown(cpu.Quantum))
		}
	}
	return demand.Container{
		Name: container, ID: p.name, Request: request, Declared: p.declared, Limit: p.limit,
	}.Within(floor, ceiling)
}

// keptFloor is the floor of a pod that must not be decreased: its limit, up to the declared one or
// the constraint's floor.
func keptFloor(c demand.Container) cpu.Milli {
	return min(c.Limit, max(c.Declared, c.Floor)).Clamp(c.Floor, c.Ceiling)
}

// New is a node's MBCAS before its first round.
func New(cfg Config) *MBCAS {
	return &MBCAS{
		cfg: cfg, pods: map[int]*pod{}, planAt: never, lookAt: never, joinAt: never, joinedAt: -joinInterval, livenessAt: never,
	}
}

const never = time.Duration(1<<63 - 1)

// epoch is the start of simulated time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Decide implements sim.Policy.
func (m *MBCAS) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	if m.draws == nil {
		m.draws = sim.Draws(r.Seed)
	}
	m.trackPods(r)
	if r.Now >= m.roundAt {
		m.divideQuotas(r)
		if m.watched = m.watched[:0]; !r.Outage {
			m.runRound(r)
			if r.Now-m.renewedAt >= m.cfg.Lifecycle.FreezeAfter { // the controller looks at a node that is heard of again
				m.planAt = r.Now
			}
			m.renewedAt = r.Now
		}
		if r.Outage || r.Now >= m.livenessAt {
			m.planAt = r.Now
		}
		m.roundAt, m.lookAt = r.Now+m.cfg.Interval, r.Now
		m.joinAt = never
		m.planLook()
	} else {
		m.betweenRounds(r)
	}
	var actions []sim.Action
	if r.Now >= m.planAt {
		actions = m.planResizes(r)
	}
	return actions, min(m.roundAt, m.planAt, m.lookAt, m.joinAt)
}

// ObservesStarts implements sim.StartObserver: the API server tells the agent. A pod that is taken in when it starts
// has not been throttled yet, so without looks that has no effect.
func (m *MBCAS) ObservesStarts() bool { return m.cfg.Round.LookInterval > 0 }

// joinInterval is the least time between two joins, as in the agent.
const joinInterval = 250 * time.Millisecond

// betweenRounds takes new pods in, and looks at those that looks read.
func (m *MBCAS) betweenRounds(r *sim.Snapshot) {
	if r.Now >= m.joinAt {
		m.joinAt = never
		if !r.Outage && m.state.TakesIn() {
			m.join(r)
		}
	}
	if r.Now >= m.lookAt {
		if !r.Outage {
			m.look(r)
		}
		m.planLook()
	}
}

// planLook sets the time of the next look, which is before the next round.
func (m *MBCAS) planLook() {
	if m.lookAt += m.cfg.Round.LookInterval; len(m.watched) == 0 || m.cfg.Round.LookInterval == 0 || m.lookAt >= m.roundAt {
		m.lookAt = never
	}
}

// trackPods keeps the pods that run. What the API server would report of them has the controller
// plan at once.
func (m *MBCAS) trackPods(r *sim.Snapshot) {
	for i := range r.Pods {
		p := &r.Pods[i]
		known := m.pods[p.ID]
		if known == nil {
			known = &pod{
				name: p.Spec.Namespace + "/" + p.Spec.Name, spec: *p.Spec, factor: coordinator.Neutral, ours: true,
				limit: p.Spec.Limit, declared: p.Spec.Limit,
			}
			m.pods[p.ID] = known
			m.joinAt = min(m.joinAt, max(r.Now, m.joinedAt+joinInterval))
		}
		if p.ExternalChanges != known.external {
			known.external, known.ours, known.limit, known.doneAt = p.ExternalChanges, false, p.Limit, r.Now
			m.planAt = r.Now
		}
		if p.UnreadySince != known.unreadySince {
			known.unreadySince = p.UnreadySince
			m.planAt = r.Now
		}
	}
	if len(m.pods) == len(r.Pods) {
		return
	}
	here := make(map[int]bool, len(r.Pods))
	for _, p := range r.Pods {
		here[p.ID] = true
	}
	maps.DeleteFunc(m.pods, func(id int, _ *pod) bool { return !here[id] })
}

// Price implements sim.MarketPolicy.
func (m *MBCAS) Price() market.Price { return m.out.Node.Price }

// Demand implements sim.MarketPolicy.
func (m *MBCAS) Demand(id int) cpu.Milli {
	if p := m.pods[id]; p != nil {
		return p.demand
	}
	return 0
}

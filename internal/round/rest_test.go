package round

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/loads"
	"github.com/mbcas/mbcas/market"
)

// delayedNode is a node with real delays: a decision is published after publishTakes, its resize is in force as
// long again later, and the kubelet reports it after reportTakes. Limits are lowered in steps, and
// each pod demands the same all the time. A pod at its limit is throttled in 30 % of its periods at least.
type delayedNode struct {
	node      Node
	kernel    loads.Node
	now       time.Time
	busyUntil time.Time // when nothing waits or is in flight any more
	state     State
	pods      []*constantPod
	price     market.Price
	resizes   []resized
}

type resized struct {
	after    time.Duration
	pod      string
	from, to cpu.Milli
}

func (r resized) String() string { return fmt.Sprintf("%v %s %v -> %v", r.after, r.pod, r.from, r.to) }

const (
	publishTakes = 250 * time.Millisecond
	reportTakes  = 1500 * time.Millisecond
)

// constantPod is a pod with a constant demand.
type constantPod struct {
	name              string
	request, declared cpu.Milli
	demand            float64 // cores
	unmanaged         bool
	limit             cpu.Milli // in its spec
	published, next   Published
	nextAt            time.Time // when next is published; zero: it is
	inForceAt         time.Time // when its limit is in force; zero: it is
	doneAt            time.Time // when the kubelet has reported its resize
	lowered, raised   time.Time
}

func newDelayedNode(cores, system float64, pods ...*constantPod) *delayedNode {
	s := &delayedNode{now: epoch, pods: pods, node: Node{Capacity: cpu.FromCores(cores), Allocatable: cpu.FromCores(cores)}}
	s.kernel = loads.Node{Cores: cores, System: system, Now: func() time.Time { return s.now }}
	for _, p := range pods {
		p.limit = p.declared
		s.kernel.Set(p.name, p.limit, func() *loads.Container {
			return &loads.Container{Load: loads.Constant(p.demand), Request: p.request}
		})
	}
	return s
}

// run simulates it for some time.
func (s *delayedNode) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		for next := s.now.Add(time.Second); s.now.Before(next); {
			if s.now.After(s.busyUntil) {
				s.now = next
			} else {
				s.now = s.now.Add(publishTakes)
				s.kernel.Read(nil)
				s.carryOut()
			}
		}
		s.round()
	}
}

// carryOut is what the API server, the controller and the kubelet do.
func (s *delayedNode) carryOut() {
	pods := make([]actuator.Pod, len(s.pods))
	for i, p := range s.pods {
		if !p.inForceAt.IsZero() && !s.now.Before(p.inForceAt) {
			s.kernel.Set(p.name, p.limit, nil)
			p.inForceAt = time.Time{}
		}
		if !p.nextAt.IsZero() && !s.now.Before(p.nextAt) {
			p.published, p.nextAt = p.next, time.Time{}
		}
		c := s.container(p)
		pods[i] = actuator.Pod{
			UID: p.name, InFlight: s.now.Before(p.doneAt), LastDecrease: p.lowered, LastIncrease: p.raised,
			Capped: p.published.Bound == market.ByPrice,
			Containers: []actuator.Container{{
				Name: "c", Limit: p.limit, Declared: p.declared, Floor: c.Floor, Ceiling: c.Ceiling, Desired: p.published.Limits["c"],
			}},
		}
	}
	for _, step := range actuator.Plan(actuator.DefaultConfig(), s.now, s.price > 0, pods) {
		if step.RecheckAt.After(s.busyUntil) {
			s.busyUntil = step.RecheckAt
		}
		if step.Move != nil {
			s.resize(s.pods[step.Pod], step.Move.Changes[0].To)
		}
	}
}

func (s *delayedNode) resize(p *constantPod, to cpu.Milli) {
	s.resizes = append(s.resizes, resized{s.now.Sub(epoch), p.name, p.limit, to})
	if to < p.limit {
		p.lowered = s.now
	} else {
		p.raised = s.now
	}
	p.limit, p.inForceAt, p.doneAt = to, s.now.Add(publishTakes), s.now.Add(reportTakes)
	s.busyUntil = s.now.Add(2 * reportTakes)
}

func (s *delayedNode) container(p *constantPod) demand.Container {
	return demand.Container{
		Name: "c", ID: p.name, Request: p.request, Declared: p.declared, Limit: p.limit,
	}.Within(0, s.node.Allocatable)
}

// round is one of the agent.
func (s *delayedNode) round() {
	in := Input{Now: s.now, Node: s.node}
	var targets []kernel.Target
	for _, p := range s.pods {
		in.Pods = append(in.Pods, PodInput{
			Pod: demand.Pod{
				UID: p.name, Budget: max(2, market.Budget(p.request)), Unmanaged: p.unmanaged,
				Containers: []demand.Container{s.container(p)},
			},
			Published: p.next,
		})
		targets = append(targets, kernel.Target{Pod: p.name, Containers: []string{p.name}})
	}
	in.Sample = s.kernel.Read(targets)
	var out Output
	s.state, out = Run(DefaultConfig(), s.state, in)
	s.price = out.Node.Price
	for _, d := range out.Decisions {
		if p := s.pods[d.Pod]; d.Publish {
			p.next, p.nextAt = published(d, s.now), s.now.Add(publishTakes)
			s.busyUntil = s.now.Add(2 * reportTakes)
		}
	}
}

func published(d Decision, now time.Time) Published {
	return Published{
		At: now, Limits: map[string]cpu.Milli{"c": d.Limit}, Demand: d.Demand, Price: d.Price, Bound: d.Bound,
		ThrottleRatio: d.ThrottleRatio,
	}
}

// drawDelayedNode is a node of 2 to 16 cores with 1 to 30 pods. Most demand 20 % to 220 % of what they request,
// some up to four times an even part of the node, and some more than the node has.
func drawDelayedNode(seed uint64) *delayedNode {
	r := rand.New(rand.NewPCG(seed, 77))
	cores, n := []float64{2, 4, 8, 16}[r.IntN(4)], 1+r.IntN(30)
	even := cores / float64(n)
	pods := make([]*constantPod, n)
	for i := range pods {
		request := cpu.FromCores(even * (0.05 + 0.9*r.Float64())).RoundDown(cpu.Quantum)
		p := &constantPod{name: fmt.Sprintf("p%d", i), request: request, declared: request + cpu.Milli(1+r.IntN(200))*10}
		p.unmanaged = r.IntN(8) == 0
		switch r.IntN(10) {
		case 0, 1:
			p.demand = even * 4 * r.Float64()
		case 2:
			p.demand = 20
		default:
			p.demand = request.Cores() * (0.2 + 2*r.Float64())
		}
		pods[i] = p
	}
	return newDelayedNode(cores, cores*[]float64{0, 0.05, 0.2}[r.IntN(3)], pods...)
}

// TestBindingLimitStays: a limit that binds, but not in all periods, stays. Without the limit the pod would use
// more than its share, and be capped again.
func TestBindingLimitStays(t *testing.T) {
	for _, cores := range []float64{1.85, 2, 2.1, 2.5, 3} { // its share is 1.8
		service := &constantPod{name: "service", request: 1000, declared: 4000, demand: cores}
		s := newDelayedNode(4, 0, service, &constantPod{name: "batch", request: 1000, declared: 4000, demand: 8})
		s.run(5 * time.Minute)
		settled := len(s.resizes)
		s.run(20 * time.Minute)
		if late := s.resizes[settled:]; len(late) > 0 || service.limit < 1600 {
			t.Errorf("a pod that demands %v all the time has %v, and there are %d resizes after five minutes: %v",
				cores, service.limit, len(late), late[:min(len(late), 5)])
		}
	}
}

// TestConstantLoadComesToRest: on a node with any pods, each of which demands the same all the time, no limit
// goes up and down later than half an hour after they started, and on 99 of 100 nodes none changes.
func TestConstantLoadComesToRest(t *testing.T) {
	nodes, scarce, changes, soon, late := atlength.Of(20, 200), 0, 0, 0, 0
	for seed := range nodes {
		s := drawDelayedNode(uint64(seed) + 1)
		s.run(10 * time.Minute)
		early := len(s.resizes)
		s.run(20 * time.Minute)
		settled := len(s.resizes)
		s.run(20 * time.Minute)
		if after := s.resizes[settled:]; len(after) > 0 {
			late++
			if r, ok := turns(after); ok {
				t.Errorf("node %d: %d resizes after half an hour, to and fro: %v", seed, len(after), r)
			}
		}
		if changes += settled; s.price > 0 {
			scarce++
		}
		if settled == early {
			soon++
		}
	}
	if late > nodes/100 {
		t.Errorf("limits change after half an hour on %d of %d nodes", late, nodes)
	}
	if scarce < nodes/2 || changes < 4*nodes {
		t.Errorf("%d nodes with a price, and %d resizes: this proves nothing", scarce, changes)
	}
	t.Logf("%d nodes, %d with a price: %d resizes, none after ten minutes on %d; after half an hour on %d",
		nodes, scarce, changes, soon, late)
}

// turns finds a resize of a pod in the other direction than the one before it.
func turns(list []resized) (resized, bool) {
	raised := map[string]bool{}
	for _, r := range list {
		up := r.to > r.from
		if before, ok := raised[r.pod]; ok && before != up {
			return r, true
		}
		raised[r.pod] = up
	}
	return resized{}, false
}

package scenario

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Setup is one node of the scenario, counted from 0. Its load depends on the node, on seed and on
// the names of the pods alone.
func (s *Scenario) Setup(node int, seed uint64) sim.Setup {
	seed = rand.New(rand.NewPCG(seed, uint64(node))).Uint64()
	out := sim.Setup{
		Machine: sim.Machine{Cores: s.Node.Cores, Allocatable: s.Node.Allocatable},
		Length:  s.Length, WarmUp: s.WarmUp, Seed: seed, ResizeCost: s.Node.ResizeCost,
	}
	for _, q := range s.Quotas {
		out.Quotas = append(out.Quotas, sim.Quota(q))
	}
	for _, o := range s.Outages {
		out.Outages = append(out.Outages, sim.Outage(o))
	}
	if s.Node.SystemUsage > 0 || s.Node.ResizeCost > 0 {
		const service = 2 * time.Millisecond
		system := sim.PodSpec{Name: "system", System: true}
		if s.Node.SystemUsage > 0 {
			system.Requests = load.Requests{
				Rate: load.Constant(s.Node.SystemUsage.Cores() / service.Seconds()), ServiceTime: service, Distribution: load.Exponential,
			}
		}
		out.Pods = append(out.Pods, system)
	}
	for _, p := range s.Pods {
		for i := range p.Replicas {
			out.Pods = append(out.Pods, p.spec(i, seed, s.Length))
		}
	}
	return out
}

// replica is the name of one pod.
func (p *Pod) replica(i int) string {
	if p.Replicas == 1 {
		return p.Name
	}
	return fmt.Sprintf("%s-%d", p.Name, i+1)
}

// spec is one pod of the simulator.
func (p *Pod) spec(i int, seed uint64, length time.Duration) sim.PodSpec {
	later := time.Duration(i) * p.StartInterval
	out := sim.PodSpec{
		Name: p.replica(i), Namespace: p.Namespace, Workload: p.Workload,
		Request: p.Request, Limit: p.Limit, Priority: p.Priority, OptOut: p.OptOut, Threads: p.Parallelism,
		Start: p.Start + later,
	}
	if p.End > 0 {
		out.End = p.End + later
	}
	out.Constraints, out.ReadyTimeout = sim.Constraints(p.Constraints), p.ReadyTimeout
	for _, c := range p.ExternalChanges {
		out.ExternalChanges = append(out.ExternalChanges, sim.ExternalChange(c))
	}
	h := fnv.New64a()
	h.Write([]byte("load of " + out.Namespace + "/" + out.Name))
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	begin := p.loadStart(i)
	if q := p.Load.Requests; q != nil {
		out.Requests = load.Requests{
			Rate: q.Rate.build(rng, begin, length), ServiceTime: q.ServiceTime, EvenlySpaced: q.EvenlySpaced, Distribution: q.Distribution,
		}
		if t := q.Rate.Trace; t != nil && t.Format == FormatUsage {
			out.Requests.Rate = load.Scaled{Profile: out.Requests.Rate, Factor: 1 / q.ServiceTime.Seconds()}
		}
		if out.Workload == "" {
			out.Workload = out.Name
		}
	}
	if p.Load.Spin != nil {
		out.Spin = p.Load.Spin.build(rng, begin, length)
	}
	return out
}

// loadStart is the origin of the times of a replica's load.
func (p *Pod) loadStart(i int) time.Duration {
	return p.Start + time.Duration(i)*(p.StartInterval+p.Stagger)
}

// Role is the role of a pod; pods that a policy added have that of their workload.
func (s *Scenario) Role(pod string) Role {
	for named := pod; named != ""; {
		for i := range s.Pods {
			p := &s.Pods[i]
			if p.has(named) || p.Workload != "" && p.Workload == named {
				return p.Role
			}
		}
		i := strings.LastIndexByte(named, '-')
		named = named[:max(i, 0)]
	}
	return Other
}

func (p *Pod) has(pod string) bool {
	if p.Replicas == 1 {
		return pod == p.Name
	}
	number, ok := strings.CutPrefix(pod, p.Name+"-")
	i, err := strconv.Atoi(number)
	return ok && err == nil && i >= 1 && i <= p.Replicas
}

// Steps are the times after the warm-up at which the load of a pod of the file steps up, or of any
// for "", in order: where reactions can be measured. They are the file's loadSteps, or those of its
// steps, squares and bursts without jitter.
func (s *Scenario) Steps(pod string) (at []time.Duration) {
	for i := range s.Pods {
		for k := range s.Pods[i].Replicas {
			switch {
			case pod != "" && s.Pods[i].replica(k) != pod:
			case len(s.LoadSteps) > 0:
				at = append(at, s.LoadSteps...)
			default:
				at = append(at, s.loadIncreases(&s.Pods[i], k)...)
			}
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

func (s *Scenario) loadIncreases(p *Pod, replica int) []time.Duration {
	end := s.Length
	if p.End > 0 {
		end = min(end, p.End+time.Duration(replica)*p.StartInterval)
	}
	var at []time.Duration
	if q := p.Load.Requests; q != nil {
		at = append(at, q.Rate.increases(p.loadStart(replica), end)...)
	}
	if p.Load.Spin != nil {
		at = append(at, p.Load.Spin.increases(p.loadStart(replica), end)...)
	}
	return slices.DeleteFunc(at, func(t time.Duration) bool { return t < s.WarmUp })
}

package idleclass

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
)

// node is the node in one round.
type node struct {
	now      time.Time
	elapsed  time.Duration // since the last decision; 0: there is none, or usage is not known
	capacity cpu.Milli
	system   cpu.Milli // usage outside of pods
	usage    cpu.Milli // by pods
	outside  cpu.Milli // the part of usage by pods outside of the class
	pods     []*pod    // managed ones that have opted in
	supply   cpu.Milli // that the market divides
	// others are the pods that have not opted in. othersDemand is what they demand, each up to its request, and
	// othersExcess the largest excess of one of them over its share, in cores. Usage that is not known pod by pod
	// counts in both as that of one pod.
	othersDemand cpu.Milli
	othersExcess float64
}

// fullFrom is the share of the CPUs that are busy from which a node is full: between two threads on a CPU there is
// always some idle time.
const fullFrom = 0.97

// observe is what a round shows of the node and of the pods that have opted in. After a gap that is too long for
// rates the round does not know the usage.
func observe(cfg Config, s State, in round.Input, out round.Output, optedIn func(uid string) bool) *node {
	n := &node{
		now: in.Now, capacity: in.Node.Capacity, system: out.Node.System, usage: out.Node.Usage, outside: out.Node.Usage,
	}
	if gap := in.Now.Sub(s.at); !s.at.IsZero() && out.Node.UsageKnown {
		n.elapsed = gap
	}
	decisions := make([]*round.Decision, len(in.Pods))
	for i := range out.Decisions {
		decisions[out.Decisions[i].Pod] = &out.Decisions[i]
	}
	var requests cpu.Milli
	var budgets float64
	for i := range in.Pods {
		requests += requestOf(in.Pods[i].Pod)
		budgets += float64(in.Pods[i].Budget)
	}
	n.supply = out.Node.Supply
	guaranteed := min(1, (n.capacity-n.system).Cores()/max(1, requests).Cores())
	rest := rest{usage: n.usage, share: n.supply}
	for i := range in.Pods {
		p := &in.Pods[i]
		share, request := cpu.FromCores(n.supply.Cores()*float64(p.Budget)/max(1, budgets)), requestOf(p.Pod)
		usage, known := usageOf(*p, out, i, decisions[i])
		rest.leave(known, usage, share, request)
		if p.Unmanaged || !optedIn(p.UID) {
			if known {
				n.othersExcess = max(n.othersExcess, (usage - share).Cores())
				n.othersDemand += min(demandOf(usage, decisions[i]), request)
			}
			continue
		}
		seen := &pod{
			uid: p.UID, memory: s.pods[p.UID], elapsed: n.elapsed, budget: p.Budget,
			request: request, share: share, limited: limited(*p), usage: usage, known: known,
			demand: demandOf(usage, decisions[i]),
		}
		if s.isNew(cfg, p.UID, in.Now) {
			seen.quietFor, seen.probation = cfg.QuietAfter, cfg.Probation
		}
		seen.absentSince = time.Time{}
		seen.guaranteed = cpu.FromCores(request.Cores() * guaranteed)
		if d := decisions[i]; d != nil {
			seen.decided, seen.demand = true, d.Demand
			seen.throttleRatio, seen.pressure = d.ThrottleRatio, d.Pressure
		}
		if seen.idle {
			n.outside -= usage
		}
		n.pods = append(n.pods, seen)
	}
	n.othersExcess = max(n.othersExcess, (rest.usage - rest.share).Cores())
	n.othersDemand += min(max(0, rest.usage), rest.request)
	return n
}

// rest is what is left of the usage of all pods for those whose own is not known, with their shares and requests.
type rest struct{ usage, share, request cpu.Milli }

// leave takes a pod out whose usage is known.
func (r *rest) leave(known bool, usage, share, request cpu.Milli) {
	if known {
		r.usage, r.share = r.usage-usage, r.share-share
	} else {
		r.request += request
	}
}

// usageOf is the usage of pod i: that of its decision, or the rate of all its containers where that is not the whole
// pod's. 0 where it is not known.
func usageOf(p round.PodInput, out round.Output, i int, d *round.Decision) (usage cpu.Milli, known bool) {
	if d != nil && limited(p) {
		return d.Usage, true
	}
	if i >= len(out.Rates) {
		return 0, false
	}
	cores, known := out.Rates[i].Usage()
	return cpu.FromCores(cores), known
}

// demandOf is the demand of a pod, and at least its usage.
func demandOf(usage cpu.Milli, d *round.Decision) cpu.Milli {
	if d == nil {
		return usage
	}
	return max(usage, d.Demand)
}

// requestOf is the CPU request of a pod.
func requestOf(p demand.Pod) (sum cpu.Milli) {
	for _, c := range p.Containers {
		sum += c.Request
	}
	return sum
}

// limited says whether each container of a pod has a limit, so that the round's figures are those of the whole pod.
func limited(p round.PodInput) bool {
	return !slices.ContainsFunc(p.Containers, func(c demand.Container) bool { return !c.Limited() })
}

// full says whether no CPU is idle.
func (n *node) full() bool { return (n.usage + n.system).Cores() >= fullFrom*n.capacity.Cores() }

// scarce says whether CPU is scarce for the system and the pods outside of the class.
func (n *node) scarce(cfg Config) bool {
	return (n.outside + n.system).Cores() >= cfg.ScarceFrom*n.capacity.Cores()
}

// release empties the class where CPU has not been scarce for long enough, and takes out pods whose figures are no
// longer those of the whole pod.
func (n *node) release(cfg Config) (changed bool) {
	for _, p := range n.pods {
		if p.idle && (p.idleCPUFor >= cfg.ReleaseAfter || !p.limited) {
			p.idle, changed = false, true
		}
	}
	return changed
}

// leaveShort takes the member out of the class that falls short of its guarantee the most. One at a time: what it
// takes from the others then shows whether the next one has to follow.
func (n *node) leaveShort(cfg Config, changedAt time.Time) bool {
	if n.now.Sub(changedAt) < 2*cfg.Settle || n.elapsed == 0 {
		return false
	}
	var worst *pod
	for _, p := range n.pods {
		if p.idle && p.short(cfg) > 0 && (worst == nil || p.short(cfg) > worst.short(cfg)) {
			worst = p
		}
	}
	if worst == nil {
		return false
	}
	worst.idle, worst.fellShort = false, true
	worst.holdOffFor(cfg, n.now, 2*worst.holdOff)
	return true
}

// enter puts pods into the class that are sure to saturate. Where the demand of others, up to their requests, leaves
// too little of the supply for what members are guaranteed, these would soon fall short, and are left to limits.
func (n *node) enter(cfg Config, changedAt time.Time) (changed bool) {
	if n.elapsed == 0 || !n.scarce(cfg) || n.paused() {
		return false
	}
	entering := n.saturating(cfg, n.now.Sub(changedAt) >= cfg.SlowAfter)
	demand := n.othersDemand
	for _, p := range n.pods {
		if demand += p.guaranteed; !p.idle && !slices.Contains(entering, p) {
			demand -= max(0, p.guaranteed-p.demand)
		}
	}
	for _, p := range entering {
		if demand > n.supply {
			p.fellShort = true
			p.holdOffFor(cfg, n.now, 2*p.holdOff)
			continue
		}
		p.idle, changed = true, true
	}
	return changed
}

// saturating are the pods that are sure to saturate, the largest excess first, until the demand of the others fits the
// node. A pod whose excess is much smaller than the largest, in cores or as a share of what it may have, only suffers
// from that: it waits for what the membership of others shows. calm says that the class has not changed for long.
func (n *node) saturating(cfg Config, calm bool) (chosen []*pod) {
	var candidates []*pod
	demand := n.system + n.outside // by those outside, with what members are guaranteed
	for _, p := range n.pods {
		switch {
		case p.idle:
			demand += min(p.usage, p.guaranteed)
		case p.sure(cfg, calm):
			candidates = append(candidates, p)
			demand += max(p.demand, saturatingDemand*p.usage) - p.usage
		case p.decided:
			demand += max(0, p.demand-p.usage)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	slices.SortStableFunc(candidates, func(a, b *pod) int { return cmp.Compare(b.excess(cfg), a.excess(cfg)) })
	first := candidates[0]
	// No class holds the other pods down. What some of them leave unused of their shares hides no other one's excess.
	largest := max(first.excess(cfg), n.othersExcess)
	for _, p := range n.pods {
		if !p.decided {
			largest = max(largest, p.excess(cfg))
		}
	}
	for _, p := range candidates {
		if demand.Cores() < cfg.ScarceFrom*n.capacity.Cores() {
			break
		}
		if p.excess(cfg) >= similarExcess*largest && p.ratio(cfg) >= similarExcess*first.ratio(cfg) {
			chosen = append(chosen, p)
			demand -= max(p.demand, saturatingDemand*p.usage) - min(p.usage, p.guaranteed)
		}
	}
	return chosen
}

// paused says whether a pod stays outside that fell short: it would take what a new member gives up.
func (n *node) paused() bool {
	return slices.ContainsFunc(n.pods, func(p *pod) bool { return p.heldOff && p.fellShort })
}

// leaveToLimits has limits cap the pods that saturate and have not entered the class: for SlowAfter, or surely while no
// pod can enter.
func (n *node) leaveToLimits(cfg Config) {
	paused := n.paused()
	for _, p := range n.pods {
		if !p.idle && !p.heldOff && (p.saturatesFor >= cfg.SlowAfter || paused && p.sure(cfg, true)) {
			p.fellShort = false
			p.holdOffFor(cfg, n.now, p.holdOff)
		}
	}
}

// similarExcess is the share of the largest excess from which pods enter the class together.
const similarExcess = 0.5

// saturatingDemand is the demand of a pod that saturates, as a multiple of its usage, where its estimate is lower.
const saturatingDemand = 2

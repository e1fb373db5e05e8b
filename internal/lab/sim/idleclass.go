package sim

// The idle class of groups (cpu.idle, SCHED_IDLE entities in kernel/sched/fair.c, Linux 5.15 and later).

// idleClassWeight is the weight of a group in the idle class (WEIGHT_IDLEPRIO in kernel/sched/sched.h).
const idleClassWeight = 3

// leastWeight is the least weight of the pod on a core: 2 shares and, as the kernel counts groups in 1024ths of a
// share (MIN_SHARES), less in the idle class.
func (p *pod) leastWeight() float64 {
	if p.idleClass {
		return 2.0 / 1024
	}
	return 2
}

// SetClass sets class and weight of a pod's cgroup (sched_group_set_idle and sched_group_set_shares).
func (n *Node) SetClass(id int, class Class) {
	p := n.pods[id]
	if p.ended {
		return
	}
	for i := range p.entities {
		n.accountRuntime(p.entities[i].core)
	}
	if class.Idle != p.idleClass {
		if p.idleClass = class.Idle; p.idleClass {
			n.idlePods++
		} else {
			n.idlePods--
		}
	}
	s := p.spec
	s.Request = p.request
	switch {
	case p.idleClass:
		p.weight = idleClassWeight
	case class.Shares > 0:
		p.weight = max(2, class.Shares)
	default:
		p.weight = cpuWeight(s)
	}
	for i := range p.entities {
		e := &p.entities[i]
		if len(e.threads) > 0 && !e.throttled {
			n.updateWeight(e)
			n.plan(e.core)
		}
	}
	n.balance()
}

// runsIdleClass says whether nothing but the idle class is runnable on a core (sched_idle_cpu): for another pod that
// is as good as an idle one.
func (c *core) runsIdleClass() bool {
	for _, e := range c.queue {
		if !e.pod.idleClass {
			return false
		}
	}
	return len(c.queue) > 0
}

// relieveOrdinary moves threads that wait and are not in the idle class to cores that run nothing else. The kernel
// balances such a core as an idle one, within a few ticks.
func (n *Node) relieveOrdinary() {
	for i := range n.cores {
		c := &n.cores[i]
		if c.current != nil && !n.inGap(c) && c.runsIdleClass() && n.pullOrdinary(c) {
			n.schedule(c)
		}
	}
}

// pullOrdinary moves a waiting thread that is not in the idle class to a core, from the core where most such threads
// wait.
func (n *Node) pullOrdinary(c *core) bool {
	var from *entity
	most := 0
	for i := range n.cores {
		other := &n.cores[i]
		waiting := 0
		for _, e := range other.queue {
			if !e.pod.idleClass {
				waiting += len(e.threads)
			}
		}
		if runs := other.current; runs != nil && !runs.pod.idleClass || runs == nil && !n.inGap(other) {
			waiting--
		}
		if other == c || waiting <= most {
			continue
		}
		for _, e := range other.queue {
			if !e.pod.idleClass && (e != other.current || len(e.threads) > 1) && n.hasQuota(&e.pod.entities[c.id]) {
				from, most = e, waiting
				break
			}
		}
	}
	if from == nil {
		return false
	}
	n.migrate(c, from)
	return true
}

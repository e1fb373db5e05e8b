package sim

// selectCore is the core for a thread that wakes: its last core if that is idle, an idle core, or
// its last core unless the pod is throttled there (select_task_rq_fair in kernel/sched/fair.c).
func (n *Node) selectCore(p *pod, t *thread) *core {
	idle := func(c *core) bool { return (c.current == nil || !p.idleClass && c.runsIdleClass()) && !n.inGap(c) }
	if c := &n.cores[t.lastCore]; idle(c) && !p.entities[c.id].throttled {
		return c
	}
	best := &n.cores[t.lastCore]
	for i := range n.cores {
		// Starting at its last core prefers no core by its number.
		c := &n.cores[(int(t.lastCore)+i)%len(n.cores)]
		switch {
		case p.entities[c.id].throttled:
		case idle(c):
			return c
		case p.entities[best.id].throttled:
			best = c
		}
		if n.idle == 0 && n.idlePods == 0 && !p.entities[best.id].throttled {
			break
		}
	}
	return best
}

// pullFromBusiest moves a waiting thread to an idle core, from the core where most wait: one in the idle class only
// where no other waits.
func (n *Node) pullFromBusiest(c *core) bool {
	if n.idlePods > 0 && n.pullOrdinary(c) {
		return true
	}
	var from *entity
	most := 0
	for i := range n.cores {
		other := &n.cores[i]
		waiting := 0
		for _, e := range other.queue {
			waiting += len(e.threads)
		}
		if other.current != nil || !n.inGap(other) { // one runs, or is about to
			waiting--
		}
		if waiting <= most {
			continue
		}
		for _, e := range other.queue {
			if (e != other.current || len(e.threads) > 1) && n.hasQuota(&e.pod.entities[c.id]) {
				from, most = e, waiting
				break
			}
		}
	}
	if from == nil {
		return false
	}
	n.migrate(c, from)
	if c.current != nil { // quota that was returned has started another thread here
		n.balance()
	}
	return true
}

// migrate moves a waiting thread of an entity to a core.
func (n *Node) migrate(c *core, from *entity) {
	t := from.threads[len(from.threads)-1]
	n.accountRuntime(from.core)
	n.accountRuntime(c)
	n.remove(t)
	to := &from.pod.entities[c.id]
	t.entity, t.lastCore = to, c.id
	n.setThreads(to, append(to.threads, t))
	n.updateWeight(to)
	if len(to.threads) == 1 {
		n.enqueue(to)
	}
	n.updatePressure(from.pod)
	n.plan(from.core)
}

// hasQuota says whether a thread of the entity could run.
func (n *Node) hasQuota(e *entity) bool {
	return !e.throttled && (e.pod.quota == 0 || e.pod.pool > 0 || e.localQuota > 0)
}

// balance schedules idle cores while threads wait elsewhere.
func (n *Node) balance() {
	if n.idlePods > 0 {
		n.relieveOrdinary()
	}
	for i := range n.cores {
		if n.idle == 0 {
			return
		}
		if n.cores[i].current == nil {
			n.schedule(&n.cores[i])
		}
	}
}

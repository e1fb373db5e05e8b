package sim

// grab makes sure that the entity may run: it takes a slice of the pod's quota where it has none left.
func (n *Node) grab(e *entity) bool {
	p := e.pod
	if p.quota == 0 || e.local > 0 {
		return true
	}
	if !p.ticking {
		// The periods of a pod stand on a grid; in idle ones the timer rests.
		p.ticking = true
		since := (n.now - p.phase) % n.machine.Period
		if since < 0 {
			since += n.machine.Period
		}
		n.events.plan(p.per, n.now-since+n.machine.Period)
		n.passIdle()
		p.idleAt = n.idleTime
	}
	take := min(bandwidthSlice-e.local, p.pool)
	p.pool -= take
	e.local += take
	p.unused = false
	return e.local > 0
}

// throttle takes an entity off the run queue until there is quota again.
func (n *Node) throttle(e *entity) {
	n.leave(e)
	e.throttled, e.throttledAt = true, n.now
	e.pod.throttledOn++
	n.waits(e.pod)
}

// wakeQuota ends the wait for quota.
func (n *Node) wakeQuota(e *entity) {
	e.throttled = false
	e.pod.throttledOn--
	e.pod.ThrottledTime += n.now - e.throttledAt
}

// unthrottle lets all entities of a pod run again.
func (n *Node) unthrottle(p *pod) {
	if p.throttledOn == 0 {
		return
	}
	for i := range p.ent {
		e := &p.ent[i]
		if !e.throttled {
			continue
		}
		n.wakeQuota(e)
		if len(e.threads) == 0 {
			continue
		}
		n.charge(e.core)
		n.enter(e)
		if e.core.cur == nil {
			n.schedule(e.core)
		} else {
			n.plan(e.core)
		}
	}
	n.balance()
}

// giveBack returns what an entity without threads keeps of the quota, but for a little.
func (n *Node) giveBack(e *entity) {
	p := e.pod
	if p.quota == 0 || e.local <= keptSlice {
		return
	}
	p.pool += e.local - keptSlice
	e.local = keptSlice
	if p.throttledOn > 0 && p.pool > bandwidthSlice {
		n.unthrottle(p)
	}
}

// refill is the end of a pod's period, in the order of do_sched_cfs_period_timer in kernel/sched/fair.c.
func (n *Node) refill(p *pod) {
	throttled := p.throttledOn > 0
	p.Periods++
	p.pool = p.quota
	n.passIdle()
	idle := n.idleTime - p.idleAt
	p.idleAt = n.idleTime
	if p.unused && !throttled {
		p.ticking = false
		n.events.plan(p.per, never)
		return
	}
	n.events.plan(p.per, n.now+n.machine.Period)
	if !throttled {
		p.unused = true
		n.balance()
		return
	}
	p.Throttled++
	if float64(idle) > 0.1*float64(n.machine.Period)*float64(len(n.cores)) {
		p.ThrottledIdle++
	}
	p.unused = false
	n.unthrottle(p)
}

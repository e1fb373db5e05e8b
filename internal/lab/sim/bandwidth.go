package sim

// acquireQuota says whether the entity may run. Without local quota it takes a slice of the pod's.
func (n *Node) acquireQuota(e *entity) bool {
	p := e.pod
	if p.quota == 0 || e.localQuota > 0 {
		return true
	}
	if !p.timerActive {
		// Periods start at fixed times; the timer does not run in idle ones.
		p.timerActive = true
		since := (n.now - p.phase) % n.machine.Period
		if since < 0 {
			since += n.machine.Period
		}
		n.events.plan(p.periodSlot, n.now-since+n.machine.Period)
		n.accountIdle()
		p.idleAtPeriodStart = n.idleTime
	}
	take := min(bandwidthSlice-e.localQuota, p.pool)
	p.pool -= take
	e.localQuota += take
	p.quotaUnused = false
	return e.localQuota > 0
}

// throttle dequeues an entity until the pod has quota again.
func (n *Node) throttle(e *entity) {
	n.dequeue(e)
	e.throttled, e.throttledAt = true, n.now
	e.pod.throttledOn++
	n.updatePressure(e.pod)
}

// endThrottle ends the wait for quota.
func (n *Node) endThrottle(e *entity) {
	e.throttled = false
	e.pod.throttledOn--
	e.pod.ThrottledTime += n.now - e.throttledAt
}

// unthrottle lets all entities of a pod run again.
func (n *Node) unthrottle(p *pod) {
	if p.throttledOn == 0 {
		return
	}
	for i := range p.entities {
		e := &p.entities[i]
		if !e.throttled {
			continue
		}
		n.endThrottle(e)
		if len(e.threads) == 0 {
			continue
		}
		n.accountRuntime(e.core)
		n.enqueue(e)
		if e.core.current == nil {
			n.schedule(e.core)
		} else {
			n.plan(e.core)
		}
	}
	n.balance()
}

// returnQuota returns the local quota of an entity without threads to the pod, all but keptSlice.
func (n *Node) returnQuota(e *entity) {
	p := e.pod
	if p.quota == 0 || e.localQuota <= keptSlice {
		return
	}
	p.pool += e.localQuota - keptSlice
	e.localQuota = keptSlice
	if p.throttledOn > 0 && p.pool > bandwidthSlice {
		n.unthrottle(p)
	}
}

// refill is the end of a pod's period, in the order of do_sched_cfs_period_timer in
// kernel/sched/fair.c.
func (n *Node) refill(p *pod) {
	throttled := p.throttledOn > 0
	p.Periods++
	p.pool = p.quota
	n.accountIdle()
	idle := n.idleTime - p.idleAtPeriodStart
	p.idleAtPeriodStart = n.idleTime
	if p.quotaUnused && !throttled {
		p.timerActive = false
		n.events.plan(p.periodSlot, never)
		return
	}
	n.events.plan(p.periodSlot, n.now+n.machine.Period)
	if !throttled {
		p.quotaUnused = true
		n.balance()
		return
	}
	p.Throttled++
	if float64(idle) > 0.1*float64(n.machine.Period)*float64(len(n.cores)) {
		p.ThrottledIdle++
	}
	p.quotaUnused = false
	n.unthrottle(p)
}

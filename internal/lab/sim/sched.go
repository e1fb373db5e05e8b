package sim

import (
	"math"
	"slices"
	"time"
)

// thread is one thread of a pod.
type thread struct {
	request          // in progress; work is the rest of it
	entity   *entity // nil: it sleeps
	lastCore int32   // core on which it ran last
	busy     bool
}

// entity is a pod on one core's run queue: the kernel's scheduling entity of a group.
type entity struct {
	pod        *pod
	core       *core
	threads    []*thread     // runnable here; the first runs when the entity does
	vruntime   float64       // virtual run time, in ns at weight 1024
	deadline   float64       // virtual deadline
	weight     float64       // its part of the pod's weight
	load       loadAverage   // of threads runnable here
	lag        float64       // when it was dequeued
	leftAt     time.Duration // when it was dequeued
	localQuota time.Duration
	// throttledAt is set while throttled.
	throttled   bool
	throttledAt time.Duration
}

// core is one CPU and its run queue.
type core struct {
	id          int32
	queue       []*entity // runnable and not throttled
	current     *entity   // nil: idle
	accountedAt time.Duration
	gapEnd      time.Duration // end of its last gap
	pendingGap  time.Duration // the longest gap since it became idle
	lastAverage float64       // last known average virtual time
	failedPulls int           // of load, in a row
}

// setThreads changes how many threads of a pod are runnable on a core.
func (n *Node) setThreads(e *entity, threads []*thread) {
	e.load.advance(n.now, len(e.threads))
	e.pod.load.advance(n.now, e.pod.runnable)
	e.pod.runnable += len(threads) - len(e.threads)
	e.threads = threads
}

// updateWeight divides the pod's weight by load: the entity's beside the averaged load on all other
// cores (calc_group_shares in kernel/sched/fair.c). Its lag keeps its amount of CPU time
// (reweight_entity).
func (n *Node) updateWeight(e *entity) {
	e.load.advance(n.now, len(e.threads))
	e.pod.load.advance(n.now, e.pod.runnable)
	here := max(1, float64(len(e.threads)), e.load.value)
	there := max(0, e.pod.load.value-e.load.value)
	w := max(2, e.pod.weight*here/(here+there))
	if w == e.weight {
		return
	}
	if slices.Contains(e.core.queue, e) {
		left := (e.deadline - e.vruntime) * e.weight / w
		v := e.core.averageVruntime()
		e.vruntime = v - (v-e.vruntime)*e.weight/w
		e.deadline = e.vruntime + left
	}
	e.weight = w
}

// slice is the base slice in the entity's virtual time.
func (n *Node) slice(e *entity) float64 { return float64(n.machine.Slice) * 1024 / e.weight }

// accountRuntime accounts the time since the last call to the current entity.
func (n *Node) accountRuntime(c *core) {
	ran := n.now - c.accountedAt
	lost := c.accountedAt < c.gapEnd // a gap ends with an event, so all of the time was lost
	c.accountedAt = n.now
	if c.current == nil || ran == 0 || lost {
		return
	}
	e := c.current
	p := e.pod
	e.vruntime += float64(ran) * 1024 / e.weight
	p.Usage += ran
	if p.quota > 0 {
		e.localQuota -= ran
	}
	if t := e.threads[0]; !t.busy {
		t.work -= ran
		p.Useful += ran
	}
}

// averageVruntime is the weighted average of a run queue. An entity at or below it is eligible.
func (c *core) averageVruntime() float64 {
	var sum, weights float64
	for _, e := range c.queue {
		w := e.weight
		sum += e.vruntime * w
		weights += w
	}
	if weights > 0 {
		c.lastAverage = sum / weights
	}
	return c.lastAverage
}

// pickNext is the eligible entity with the earliest deadline (EEVDF; Stoica and Abdel-Wahab 1995).
func (c *core) pickNext() *entity {
	switch len(c.queue) {
	case 0:
		return nil
	case 1:
		return c.queue[0]
	}
	v := c.averageVruntime()
	var best *entity
	least := c.queue[0]
	for _, e := range c.queue {
		if e.vruntime < least.vruntime {
			least = e
		}
		if e.vruntime <= v && (best == nil || e.deadline < best.deadline) {
			best = e
		}
	}
	if best == nil { // rounding
		return least
	}
	return best
}

// runCoreEvent handles a core's planned event: a request is complete, a slice is over, or the quota
// is used up.
func (n *Node) runCoreEvent(c *core) {
	n.accountRuntime(c)
	if n.gapJustEnded(c) {
		n.plan(c)
		return
	}
	if e := c.current; e != nil {
		t := e.threads[0]
		switch {
		case !t.busy && t.work <= 0:
			n.completeRequest(t)
		case len(e.threads) > 1 && e.vruntime >= e.deadline:
			copy(e.threads, e.threads[1:])
			e.threads[len(e.threads)-1] = t
		}
		if len(e.threads) > 0 {
			n.updateWeight(e)
		}
		n.renewDeadline(e)
	}
	n.schedule(c)
	if len(c.queue) > 1 { // a thread that waits now may be able to run where its predecessor was throttled
		n.balance()
	}
}

// gapJustEnded says whether a gap ended now within the slice of the current entity.
func (n *Node) gapJustEnded(c *core) bool {
	e := c.current
	if e == nil || c.gapEnd != n.now || e.vruntime >= e.deadline || e.pod.quota > 0 && e.localQuota <= 0 {
		return false
	}
	t := e.threads[0]
	return t.busy || t.work > 0
}

// renewDeadline sets the next deadline of an entity whose slice is over.
func (n *Node) renewDeadline(e *entity) {
	if e.vruntime >= e.deadline {
		e.deadline = e.vruntime + n.slice(e)
	}
}

// completeRequest ends a thread's request. The thread takes the next one, or sleeps.
func (n *Node) completeRequest(t *thread) {
	p := t.entity.pod
	p.Served++
	p.Latency.Add(n.now - t.arrived)
	if len(p.queue) > 0 {
		t.request, p.queue = p.queue[0], p.queue[1:]
		return
	}
	n.sleep(t)
	p.sleeping = append(p.sleeping, t)
}

// schedule picks the core's next entity and plans its next event.
func (n *Node) schedule(c *core) {
	if n.inGap(c) {
		n.plan(c)
		return
	}
	for {
		e := c.pickNext()
		if e == nil {
			if n.pullFromBusiest(c) {
				continue
			}
		} else if !n.acquireQuota(e) {
			n.throttle(e)
			continue
		}
		n.run(c, e)
		n.plan(c)
		return
	}
}

// run makes an entity the current one; nil: the core idles.
func (n *Node) run(c *core, e *entity) {
	if e == c.current {
		return
	}
	if (e == nil) != (c.current == nil) {
		n.accountIdle()
		if e == nil {
			n.idle++
		} else {
			n.idle--
		}
	}
	if c.current != nil {
		c.current.pod.running--
		n.updatePressure(c.current.pod)
	}
	c.current, c.accountedAt = e, n.now
	if e != nil {
		e.pod.running++
		n.updatePressure(e.pod)
		n.startPendingGap(c)
	}
}

// updatePressure updates how many threads of a pod wait.
func (n *Node) updatePressure(p *pod) {
	more := p.runnable - p.running - p.pressure.waiting
	if more == 0 {
		return
	}
	p.pressure.addWaiting(n.now, more)
	n.pressure.addWaiting(n.now, more)
}

// plan plans the core's next event.
func (n *Node) plan(c *core) {
	if n.inGap(c) {
		n.events.plan(c.id, c.gapEnd)
		return
	}
	e := c.current
	if e == nil {
		until := never
		if len(c.queue) > 0 { // schedule follows
			until = n.now
		}
		n.events.plan(c.id, until)
		return
	}
	until := never
	if t := e.threads[0]; !t.busy {
		until = n.now + max(t.work, 0)
	}
	if e.pod.quota > 0 {
		until = min(until, n.now+max(e.localQuota, 0))
	}
	if len(c.queue) > 1 || len(e.threads) > 1 {
		over := n.now + time.Duration(math.Ceil(max(0, e.deadline-e.vruntime)*e.weight/1024))
		// The scheduler preempts at its next tick.
		tick := n.machine.Tick
		over = max(over, n.now+1)
		until = min(until, (over+tick-1)/tick*tick)
	}
	n.events.plan(c.id, until)
}

// wake makes a thread runnable, on an idle core if there is one.
func (n *Node) wake(p *pod, t *thread) {
	c := n.selectCore(p, t)
	e := &p.entities[c.id]
	t.entity, t.lastCore = e, c.id
	n.accountRuntime(c)
	n.setThreads(e, append(e.threads, t))
	n.updatePressure(p)
	if e.throttled {
		return
	}
	n.updateWeight(e)
	if len(e.threads) == 1 {
		n.enqueue(e)
	}
	switch {
	case c.current == nil:
		n.schedule(c)
	case c.current.vruntime >= c.current.deadline: // its slice was over before the tick
		n.renewDeadline(c.current)
		n.schedule(c)
	default:
		n.plan(c)
	}
	n.balance() // where the pod is throttled on the idle cores, another thread may move there
}

// lagLimit bounds the lag of a sleeping entity (update_entity_lag in kernel/sched/fair.c).
func (n *Node) lagLimit(e *entity) float64 {
	return float64(max(2*n.machine.Slice, n.machine.Tick)) * 1024 / e.weight
}

// enqueue puts an entity on its core's run queue. It keeps a positive lag, scaled as its own weight
// moves the average (place_entity in kernel/sched/fair.c); a negative one decays while it sleeps
// (DELAY_DEQUEUE).
func (n *Node) enqueue(e *entity) {
	c := e.core
	if len(c.queue) > 0 {
		weights := 0.0
		for _, o := range c.queue {
			weights += o.weight
		}
		lag := e.lag
		if lag < 0 {
			lag = min(0, lag+float64(n.now-e.leftAt)*1024/e.weight)
		}
		e.vruntime = c.averageVruntime() - lag*(weights+e.weight)/weights
	} else {
		e.vruntime = max(e.vruntime, c.lastAverage)
		c.lastAverage = e.vruntime
	}
	e.deadline = e.vruntime + n.slice(e)
	c.queue = append(c.queue, e)
}

// dequeue takes an entity off its core's run queue.
func (n *Node) dequeue(e *entity) {
	c := e.core
	most := n.lagLimit(e)
	e.lag, e.leftAt = max(-most, min(most, c.averageVruntime()-e.vruntime)), n.now
	if i := slices.Index(c.queue, e); i >= 0 {
		c.queue = append(c.queue[:i], c.queue[i+1:]...)
	}
	if c.current == e {
		n.run(c, nil)
	}
}

// inGap says whether the hypervisor is not running a core.
func (n *Node) inGap(c *core) bool { return c.gapEnd > n.now }

// remove takes a thread off its run queue.
func (n *Node) remove(t *thread) {
	e := t.entity
	i := slices.Index(e.threads, t)
	n.setThreads(e, append(e.threads[:i], e.threads[i+1:]...))
	t.entity = nil
	if len(e.threads) > 0 {
		n.updateWeight(e)
	} else {
		if e.throttled {
			n.endThrottle(e)
		} else {
			n.dequeue(e)
		}
		n.returnQuota(e)
	}
}

// sleep takes a thread without work off its core.
func (n *Node) sleep(t *thread) {
	e := t.entity
	n.remove(t)
	n.updatePressure(e.pod)
	if c := e.core; c.current == nil && len(e.threads) == 0 {
		// The caller schedules its own core; any other is scheduled here.
		n.events.plan(c.id, n.now)
	}
}

// removeThreads removes all threads of an entity.
func (n *Node) removeThreads(e *entity) {
	n.accountRuntime(e.core)
	for len(e.threads) > 0 {
		n.remove(e.threads[len(e.threads)-1])
	}
	if e.core.current == nil {
		n.schedule(e.core)
	}
}

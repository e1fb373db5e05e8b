package sim

import (
	"math"
	"slices"
	"time"
)

// thread is one thread of a pod.
type thread struct {
	request         // in hand; work is what is left of it
	ent     *entity // where it is runnable; nil: it sleeps
	last    int32   // core on which it ran last
	spins   bool
}

// entity is a pod on one core's run queue: the kernel's scheduling entity of a group.
type entity struct {
	pod     *pod
	core    *core
	threads []*thread     // runnable here; the first one runs when the entity does
	v       float64       // virtual run time, in ns at weight 1024
	due     float64       // virtual deadline
	weight  float64       // its part of the pod's weight
	load    decaying      // threads that are runnable here, averaged
	lag     float64       // virtual time owed to it when it left the run queue
	left    time.Duration // when it did
	local   time.Duration
	// throttledAt is since when the entity waits for quota; only where throttled.
	throttled   bool
	throttledAt time.Duration
}

// core is one CPU and its run queue.
type core struct {
	id    int32
	ents  []*entity // with something to run, and not throttled
	cur   *entity   // runs; nil: idle
	since time.Duration
	back  time.Duration // end of its last gap
	owed  time.Duration // the longest gap that came while it idled
	v     float64       // last known average virtual time
}

// decaying is an average over time that forgets half in 32 ms (kernel/sched/pelt.c).
type decaying struct {
	value float64
	at    time.Duration
}

const halfLife = 32 * time.Millisecond

// pass lets time go by in which the level was the same.
func (d *decaying) pass(now time.Duration, level int) {
	if now > d.at {
		d.value = float64(level) + (d.value-float64(level))*math.Exp2(-float64(now-d.at)/float64(halfLife))
		d.at = now
	}
}

// count changes how many threads of a pod are runnable on a core.
func (n *Node) count(e *entity, threads []*thread) {
	e.load.pass(n.now, len(e.threads))
	e.pod.load.pass(n.now, e.pod.runnable)
	e.pod.runnable += len(threads) - len(e.threads)
	e.threads = threads
}

// reweigh works out the entity's part of its pod's weight: as large as its load is beside the averaged one on all
// other cores (calc_group_shares in kernel/sched/fair.c). What it is owed stays the same amount of CPU time
// (reweight_entity).
func (n *Node) reweigh(e *entity) {
	e.load.pass(n.now, len(e.threads))
	e.pod.load.pass(n.now, e.pod.runnable)
	here := max(1, float64(len(e.threads)), e.load.value)
	there := max(0, e.pod.load.value-e.load.value)
	w := max(2, e.pod.weight*here/(here+there))
	if w == e.weight {
		return
	}
	if slices.Contains(e.core.ents, e) {
		left := (e.due - e.v) * e.weight / w
		v := e.core.average()
		e.v = v - (v-e.v)*e.weight/w
		e.due = e.v + left
	}
	e.weight = w
}

// slice is the base slice in the entity's virtual time.
func (n *Node) slice(e *entity) float64 { return float64(n.machine.Slice) * 1024 / e.weight }

// charge counts what has run on the core since it was last looked at.
func (n *Node) charge(c *core) {
	ran := n.now - c.since
	lost := c.since < c.back // the core's turn comes as a gap ends, so all of it was
	c.since = n.now
	if c.cur == nil || ran == 0 || lost {
		return
	}
	e := c.cur
	p := e.pod
	e.v += float64(ran) * 1024 / e.weight
	p.Usage += ran
	if p.quota > 0 {
		e.local -= ran
	}
	if t := e.threads[0]; !t.spins {
		t.work -= ran
		p.Useful += ran
	}
}

// average is the weighted average virtual time of a run queue: who is at or below it is owed CPU time.
func (c *core) average() float64 {
	var sum, weights float64
	for _, e := range c.ents {
		w := e.weight
		sum += e.v * w
		weights += w
	}
	if weights > 0 {
		c.v = sum / weights
	}
	return c.v
}

// pick is the entity that runs next: of those that are owed time, the one with the earliest deadline (EEVDF; Stoica
// and Abdel-Wahab 1995).
func (c *core) pick() *entity {
	switch len(c.ents) {
	case 0:
		return nil
	case 1:
		return c.ents[0]
	}
	v := c.average()
	var best *entity
	least := c.ents[0]
	for _, e := range c.ents {
		if e.v < least.v {
			least = e
		}
		if e.v <= v && (best == nil || e.due < best.due) {
			best = e
		}
	}
	if best == nil { // rounding
		return least
	}
	return best
}

// turn is the end of what was planned on a core: a request is done, a slice is over, or the quota is used up.
func (n *Node) turn(c *core) {
	n.charge(c)
	if n.resumes(c) {
		n.plan(c)
		return
	}
	if e := c.cur; e != nil {
		t := e.threads[0]
		switch {
		case !t.spins && t.work <= 0:
			n.finish(t)
		case len(e.threads) > 1 && e.v >= e.due:
			copy(e.threads, e.threads[1:])
			e.threads[len(e.threads)-1] = t
		}
		if len(e.threads) > 0 {
			n.reweigh(e)
		}
		n.renew(e)
	}
	n.schedule(c)
	if len(c.ents) > 1 { // who waits now may be able to run on a core on which its predecessor was throttled
		n.balance()
	}
}

// resumes says whether a gap of the core has just ended within what it was about to run.
func (n *Node) resumes(c *core) bool {
	e := c.cur
	if e == nil || c.back != n.now || e.v >= e.due || e.pod.quota > 0 && e.local <= 0 {
		return false
	}
	t := e.threads[0]
	return t.spins || t.work > 0
}

// renew gives an entity whose slice is over its next deadline.
func (n *Node) renew(e *entity) {
	if e.v >= e.due {
		e.due = e.v + n.slice(e)
	}
}

// finish ends the request in hand; the thread takes the next one, or sleeps.
func (n *Node) finish(t *thread) {
	p := t.ent.pod
	p.Served++
	p.Latency.Add(n.now - t.arrived)
	if p.queue.len() > 0 {
		t.request = p.queue.pop()
		return
	}
	n.sleep(t)
	p.free = append(p.free, t)
}

// schedule chooses what the core runs, and plans until when.
func (n *Node) schedule(c *core) {
	if n.gone(c) {
		n.plan(c)
		return
	}
	for {
		e := c.pick()
		if e == nil {
			if n.steal(c) {
				continue
			}
		} else if !n.grab(e) {
			n.throttle(e)
			continue
		}
		n.run(c, e)
		n.plan(c)
		return
	}
}

// run puts an entity, or nothing, on a core.
func (n *Node) run(c *core, e *entity) {
	if e == c.cur {
		return
	}
	if (e == nil) != (c.cur == nil) {
		n.passIdle()
		if e == nil {
			n.idle++
		} else {
			n.idle--
		}
	}
	if c.cur != nil {
		c.cur.pod.running--
		n.waits(c.cur.pod)
	}
	c.cur, c.since = e, n.now
	if e != nil {
		e.pod.running++
		n.waits(e.pod)
		n.pay(c)
	}
}

// waits tells the pressure counters how many threads of a pod wait.
func (n *Node) waits(p *pod) {
	more := p.runnable - p.running - p.pressure.waiting
	if more == 0 {
		return
	}
	p.pressure.wait(n.now, more)
	n.pressure.wait(n.now, more)
}

// plan says when the core has to be looked at again.
func (n *Node) plan(c *core) {
	if n.gone(c) {
		n.events.plan(c.id, c.back)
		return
	}
	e := c.cur
	if e == nil {
		until := never
		if len(c.ents) > 0 { // its turn is still to come
			until = n.now
		}
		n.events.plan(c.id, until)
		return
	}
	until := never
	if t := e.threads[0]; !t.spins {
		until = n.now + max(t.work, 0)
	}
	if e.pod.quota > 0 {
		until = min(until, n.now+max(e.local, 0))
	}
	if len(c.ents) > 1 || len(e.threads) > 1 {
		over := n.now + time.Duration(math.Ceil(max(0, e.due-e.v)*e.weight/1024))
		// The scheduler notices at its next tick.
		tick := n.machine.Tick
		over = max(over, n.now+1)
		until = min(until, (over+tick-1)/tick*tick)
	}
	n.events.plan(c.id, until)
}

// wake makes a thread runnable, on an idle core if there is one.
func (n *Node) wake(p *pod, t *thread) {
	c := n.place(p, t)
	e := &p.ent[c.id]
	t.ent, t.last = e, c.id
	n.charge(c)
	n.count(e, append(e.threads, t))
	n.waits(p)
	if e.throttled {
		return
	}
	n.reweigh(e)
	if len(e.threads) == 1 {
		n.enter(e)
	}
	switch {
	case c.cur == nil:
		n.schedule(c)
	case c.cur.v >= c.cur.due: // its slice was over, though no tick had come
		n.renew(c.cur)
		n.schedule(c)
	default:
		n.plan(c)
	}
	n.balance() // where the pod is throttled on the idle cores, somebody else has to make room
}

// lagLimit bounds what a sleeper is owed (update_entity_lag in kernel/sched/fair.c).
func (n *Node) lagLimit(e *entity) float64 {
	return float64(max(2*n.machine.Slice, n.machine.Tick)) * 1024 / e.weight
}

// enter puts an entity on its core's run queue. What it was owed when it left it still is, stretched as its own
// coming moves the average (place_entity in kernel/sched/fair.c); what it owed it pays by sleeping (DELAY_DEQUEUE).
func (n *Node) enter(e *entity) {
	c := e.core
	if len(c.ents) > 0 {
		weights := 0.0
		for _, o := range c.ents {
			weights += o.weight
		}
		lag := e.lag
		if lag < 0 {
			lag = min(0, lag+float64(n.now-e.left)*1024/e.weight)
		}
		e.v = c.average() - lag*(weights+e.weight)/weights
	} else {
		e.v = max(e.v, c.v)
		c.v = e.v
	}
	e.due = e.v + n.slice(e)
	c.ents = append(c.ents, e)
}

// leave takes an entity off its core's run queue.
func (n *Node) leave(e *entity) {
	c := e.core
	most := n.lagLimit(e)
	e.lag, e.left = max(-most, min(most, c.average()-e.v)), n.now
	if i := slices.Index(c.ents, e); i >= 0 {
		c.ents = append(c.ents[:i], c.ents[i+1:]...)
	}
	if c.cur == e {
		n.run(c, nil)
	}
}

// gone says whether the hypervisor keeps a core just now.
func (n *Node) gone(c *core) bool { return c.back > n.now }

// place is the core for a thread that wakes: the one it ran on if that is idle, or an idle one, or else
// the one it ran on, unless its pod is throttled there (select_task_rq_fair in kernel/sched/fair.c).
func (n *Node) place(p *pod, t *thread) *core {
	idle := func(c *core) bool { return c.cur == nil && !n.gone(c) }
	if c := &n.cores[t.last]; idle(c) && !p.ent[c.id].throttled {
		return c
	}
	best := &n.cores[t.last]
	for i := range n.cores {
		// Begin behind its last core, so that no core is preferred by its number.
		c := &n.cores[(int(t.last)+i)%len(n.cores)]
		switch {
		case p.ent[c.id].throttled:
		case idle(c):
			return c
		case p.ent[best.id].throttled:
			best = c
		}
		if n.idle == 0 && !p.ent[best.id].throttled {
			break
		}
	}
	return best
}

// steal brings a waiting thread to a core that has none, from where most wait.
func (n *Node) steal(c *core) bool {
	var from *entity
	most := 0
	for i := range n.cores {
		other := &n.cores[i]
		waiting := 0
		for _, e := range other.ents {
			waiting += len(e.threads)
		}
		if other.cur != nil || !n.gone(other) { // one of them runs, or is about to
			waiting--
		}
		if waiting <= most {
			continue
		}
		for _, e := range other.ents {
			if (e != other.cur || len(e.threads) > 1) && n.couldRun(&e.pod.ent[c.id]) {
				from, most = e, waiting
				break
			}
		}
	}
	if from == nil {
		return false
	}
	n.pull(c, from)
	if c.cur != nil { // quota that was given back has brought it something else meanwhile
		n.balance()
	}
	return true
}

// pull moves a waiting thread of an entity to a core.
func (n *Node) pull(c *core, from *entity) {
	t := from.threads[len(from.threads)-1]
	n.charge(from.core)
	n.charge(c)
	n.remove(t)
	to := &from.pod.ent[c.id]
	t.ent, t.last = to, c.id
	n.count(to, append(to.threads, t))
	n.reweigh(to)
	if len(to.threads) == 1 {
		n.enter(to)
	}
	n.waits(from.pod)
	n.plan(from.core)
}

// couldRun says whether a thread would run as part of an entity, and not wait for quota.
func (n *Node) couldRun(e *entity) bool {
	return !e.throttled && (e.pod.quota == 0 || e.pod.pool > 0 || e.local > 0)
}

// balance lets idle cores look for threads that wait elsewhere.
func (n *Node) balance() {
	for i := range n.cores {
		if n.idle == 0 {
			return
		}
		if n.cores[i].cur == nil {
			n.schedule(&n.cores[i])
		}
	}
}

// remove takes a thread off its run queue.
func (n *Node) remove(t *thread) {
	e := t.ent
	i := slices.Index(e.threads, t)
	n.count(e, append(e.threads[:i], e.threads[i+1:]...))
	t.ent = nil
	if len(e.threads) > 0 {
		n.reweigh(e)
	} else {
		if e.throttled {
			n.wakeQuota(e)
		} else {
			n.leave(e)
		}
		n.giveBack(e)
	}
}

// sleep takes a thread that has nothing to do off its core.
func (n *Node) sleep(t *thread) {
	e := t.ent
	n.remove(t)
	n.waits(e.pod)
	if c := e.core; c.cur == nil && len(e.threads) == 0 {
		// The caller schedules the core when it is the one that has its turn; any other is scheduled here.
		n.events.plan(c.id, n.now)
	}
}

// clear takes all threads of an entity away.
func (n *Node) clear(e *entity) {
	n.charge(e.core)
	for len(e.threads) > 0 {
		n.remove(e.threads[len(e.threads)-1])
	}
	if e.core.cur == nil {
		n.schedule(e.core)
	}
}

package sim

import (
	"math"
	"slices"
	"time"
)

// selectCore is the core for a thread that wakes: its last core if that is idle, an idle core, or
// its last core unless the pod is throttled there (select_task_rq_fair in kernel/sched/fair.c).
func (n *Node) selectCore(p *pod, t *thread) *core {
	idle := func(c *core) bool { return c.current == nil && !n.inGap(c) }
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
		if n.idle == 0 && !p.entities[best.id].throttled {
			break
		}
	}
	return best
}

// pullFromBusiest moves a waiting thread to an idle core, from the core where most wait.
func (n *Node) pullFromBusiest(c *core) bool {
	var from *entity
	most := 0
	for i := range n.cores {
		other := &n.cores[i]
		waiting := n.waiting(other)
		if waiting <= most {
			continue
		}
		for _, e := range other.queue {
			if n.canMove(e, c) {
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

// waiting is how many threads of a core wait for it.
func (n *Node) waiting(c *core) (waiting int) {
	for _, e := range c.queue {
		waiting += len(e.threads)
	}
	if c.current != nil || !n.inGap(c) { // one runs, or is about to
		waiting--
	}
	return waiting
}

// canMove says if a thread of the entity waits that could run on a core.
func (n *Node) canMove(e *entity, to *core) bool {
	return (e != e.core.current || len(e.threads) > 1) && n.hasQuota(&e.pod.entities[to.id])
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
	for i := range n.cores {
		if n.idle == 0 {
			return
		}
		if n.cores[i].current == nil {
			n.schedule(&n.cores[i])
		}
	}
}

// balanceEvery is the time from one core that looks for more load to the next. The kernel's cores look every 16 ms times
// the number of cores while they are busy, less a tick, so that not the same threads wait each time (sd_init in
// kernel/sched/topology.c, get_sd_balance_interval in kernel/sched/fair.c).
func (m Machine) balanceEvery() time.Duration {
	return 16*time.Millisecond - m.Tick/time.Duration(max(1, m.Cores))
}

const (
	// imbalance is how many times as much load the busiest core must have (imbalance_pct in kernel/sched/topology.c).
	imbalance = 1.17
	// maxFailedPulls bounds how much load a thread may have that is moved after failures.
	maxFailedPulls = 8
)

// pullLoad moves waiting threads to a busy core from the one with the most load that has any to move, while both come
// closer to the mean: the longest waiting first, as far as they have no more load than that (load_balance in
// kernel/sched/fair.c). Each failure doubles the load that a thread may have. Other than in the kernel, threads that sleep
// have no load, and the load of one that moves follows it only as time passes.
func (n *Node) pullLoad(c *core) {
	if c.current == nil || n.inGap(c) || n.pressure.waiting == 0 {
		return // idle cores pull any thread that waits
	}
	here, total := n.load(c), 0.0
	from, most := c, here
	for i := range n.cores {
		other := &n.cores[i]
		load := n.load(other)
		total += load
		if load > most && slices.ContainsFunc(other.queue, func(e *entity) bool { return n.canMove(e, c) }) {
			from, most = other, load
		}
	}
	mean := total / float64(len(n.cores))
	left := min(most-mean, mean-here)
	if left <= 0 || n.waiting(c) > 0 && most <= imbalance*here {
		c.failedPulls = 0
		return
	}
	moved := false
	for left > 0 {
		var longest *entity
		for _, e := range from.queue {
			fits := n.canMove(e, c) && n.threadLoad(e) <= math.Ldexp(left, c.failedPulls)
			if fits && (longest == nil || e.vruntime < longest.vruntime) {
				longest = e
			}
		}
		if longest == nil {
			break
		}
		left -= n.threadLoad(longest)
		n.migrate(c, longest)
		moved = true
	}
	c.failedPulls = min(c.failedPulls+1, maxFailedPulls)
	if moved {
		c.failedPulls = 0
		n.plan(c)
	}
}

// load is the averaged load of a core: the parts of their pods' weights that its entities have.
func (n *Node) load(c *core) (sum float64) {
	for _, e := range c.queue {
		sum += n.entityLoad(e)
	}
	return sum
}

func (n *Node) entityLoad(e *entity) float64 {
	e.load.advance(n.now, len(e.threads))
	e.pod.load.advance(n.now, e.pod.runnable)
	return e.pod.weight * e.load.value / max(1, e.pod.load.value)
}

// threadLoad is the load of a thread of an entity (task_h_load in kernel/sched/fair.c).
func (n *Node) threadLoad(e *entity) float64 { return n.entityLoad(e) / float64(len(e.threads)) }

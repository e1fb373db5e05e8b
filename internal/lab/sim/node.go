// Package sim simulates pods and their load on nodes, under a policy that sets their limits. A node
// is a discrete-event model of the Linux scheduler: run queues with weights (EEVDF), CFS bandwidth
// control with periods, quota and per-CPU slices, and pressure (PSI). Requests arrive open loop and
// queue, so latency shows what the scheduler did to them.
//
// What it promises, each a test of the same name:
//   - Deterministic: the same set-up and seed give the same result.
//   - SameLoadForAll: arrivals and their CPU times do not depend on the policy.
//   - CPUTimeIsConserved: usage and idle time add up to the cores' time, and no pod uses CPU
//     without work.
//   - WorkConserving: no core idles while an unthrottled thread waits.
//   - QuotaHolds: a pod uses at most its quota in a period, plus one slice per core.
//   - WeightsShare: busy pods share a busy node by their requests.
//   - GapsAreLost: a core that the hypervisor does not run executes nothing.
package sim

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Machine is the hardware and the kernel's constants.
type Machine struct {
	Cores int
	// Allocatable is what Kubernetes may give to pods; 0: all cores.
	Allocatable cpu.Milli
	// Period is the CFS period (cpu.cfs_period_us); 0: 100 ms.
	Period time.Duration
	// Tick is the scheduler's tick (1/CONFIG_HZ); 0: 4 ms.
	Tick time.Duration
	// Slice is the scheduler's base slice; 0: the kernel's, 0.7 ms times one more than the binary
	// logarithm of the cores, at most 2.8 ms (kernel/sched/fair.c).
	Slice time.Duration
	// Gaps are in any order. One that starts within another follows it.
	Gaps []Gap
}

// Gap is a time in which the hypervisor does not run a core ("steal" in /proc/stat). The core's
// current thread continues after it. The time counts towards no usage, slice or quota; load
// averages, periods and throttled time continue. A gap of an idle core starts when the core wakes;
// of several, the longest. A gap before 0 starts at 0.
type Gap struct {
	Core         int // from 0
	At, Duration time.Duration
}

// bandwidthSlice is what a core takes from a pod's quota at a time, and keptSlice what it keeps
// when the pod has nothing to run there (sched_cfs_bandwidth_slice_us, min_cfs_rq_runtime;
// kernel/sched/fair.c).
const (
	bandwidthSlice = 5 * time.Millisecond
	keptSlice      = time.Millisecond
)

func (m Machine) withDefaults() Machine {
	m.Allocatable = cmp.Or(m.Allocatable, cpu.Milli(m.Cores)*cpu.Core)
	m.Period = cmp.Or(m.Period, 100*time.Millisecond)
	m.Tick = cmp.Or(m.Tick, 4*time.Millisecond)
	m.Slice = cmp.Or(m.Slice, time.Duration(bits.Len(uint(min(m.Cores, 8))))*700*time.Microsecond)
	return m
}

// Node is one machine and its pods. It is not safe for concurrent use.
type Node struct {
	machine Machine
	seed    uint64
	now     time.Duration
	events  events
	cores   []core
	pods    []*pod // by ID, ended pods included
	// slots are the owners of event slots. The first slots are the cores'.
	slots []slot

	gaps       []Gap         // not started yet
	nextToPull int           // the core that looks for load next
	idle       int           // cores that run nothing
	idleTime   time.Duration // core time without a thread, up to idleAt
	idleAt     time.Duration
	pressure   pressure
}

type slot struct {
	pod  *pod
	kind slotKind
}

type slotKind uint8

const (
	coreSlot slotKind = iota
	arrivalSlot
	periodSlot
	busySlot
	gapSlot
	balanceSlot
)

// NewNode is a machine without pods. Arrivals depend on the seed alone.
func NewNode(m Machine, seed uint64) *Node {
	n := &Node{machine: m.withDefaults(), seed: seed, idle: m.Cores}
	n.cores = make([]core, m.Cores)
	for i := range n.cores {
		n.events.add()
		n.slots = append(n.slots, slot{})
		n.cores[i].id = int32(i)
	}
	n.events.plan(n.slot(nil, balanceSlot), n.machine.balanceEvery())
	if len(m.Gaps) > 0 {
		n.gaps = slices.Clone(m.Gaps)
		slices.SortFunc(n.gaps, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Core, b.Core)) })
		n.events.plan(n.slot(nil, gapSlot), max(0, n.gaps[0].At))
	}
	return n
}

// Advance lets time pass.
func (n *Node) Advance(until time.Duration) {
	for {
		s, at := n.events.next()
		if at > until {
			break
		}
		n.now = at
		if int(s) < len(n.cores) {
			n.runCoreEvent(&n.cores[s])
			continue
		}
		p := n.slots[s].pod
		switch n.slots[s].kind {
		case arrivalSlot:
			n.acceptRequest(p)
		case periodSlot:
			n.refill(p)
		case busySlot:
			n.updateBusyThreads(p)
		case gapSlot:
			n.beginGap(s)
		case balanceSlot:
			n.pullLoad(&n.cores[n.nextToPull])
			n.nextToPull = (n.nextToPull + 1) % len(n.cores)
			n.events.plan(s, n.now+n.machine.balanceEvery())
		}
	}
	n.now = until
}

// beginGap starts the next gap.
func (n *Node) beginGap(slot int32) {
	g := n.gaps[0]
	c := &n.cores[g.Core]
	n.accountRuntime(c)
	c.pendingGap = max(c.pendingGap, g.Duration)
	n.startPendingGap(c)
	n.plan(c)
	next := never
	if n.gaps = n.gaps[1:]; len(n.gaps) > 0 {
		next = max(0, n.gaps[0].At)
	}
	n.events.plan(slot, next)
}

// startPendingGap starts the pending gap of a core that is not idle.
func (n *Node) startPendingGap(c *core) {
	if c.current != nil {
		c.gapEnd, c.pendingGap = max(c.gapEnd, n.now)+c.pendingGap, 0
	}
}

// updateCounters brings all counters up to now.
func (n *Node) updateCounters() {
	for i := range n.cores {
		n.accountRuntime(&n.cores[i])
	}
	for _, p := range n.pods {
		p.pressure.advance(n.now)
	}
	n.pressure.advance(n.now)
	n.accountIdle()
}

func (n *Node) accountIdle() {
	n.idleTime += time.Duration(n.idle) * (n.now - n.idleAt)
	n.idleAt = n.now
}

// pressure is the time in which some thread waited for a CPU, throttled ones included (PSI "some").
type pressure struct {
	waiting int
	total   time.Duration
	at      time.Duration
}

func (p *pressure) advance(now time.Duration) {
	if p.waiting > 0 {
		p.total += now - p.at
	}
	p.at = now
}

func (p *pressure) addWaiting(now time.Duration, more int) {
	p.advance(now)
	p.waiting += more
}

package loads

import (
	"sync"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
)

// Container runs a load.
type Container struct {
	*Load
	Request, Limit cpu.Milli // of the kernel: its weight, and its quota; 0: none

	want, use   float64 // cores, in the second under way
	usage       time.Duration
	waited      time.Duration
	periods     float64
	throttled   float64
	throttledAt time.Duration
}

// Node is the counters of a node. It divides its cores as the kernel does: by weight, up to what each
// container wants and its quota. It stands in for a kernel.Host.
type Node struct {
	Cores, System float64          // System: used outside of pods
	Now           func() time.Time // nil: time.Now

	mu         sync.Mutex
	began, at  time.Time
	frozen     bool
	containers map[string]*Container
	pods, all  time.Duration
}

// Set has the node run a container, or, where it does, changes its quota.
func (n *Node) Set(id string, limit cpu.Milli, begin func() *Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.containers == nil {
		n.containers = map[string]*Container{}
	}
	c := n.containers[id]
	if c == nil {
		c = begin()
		n.containers[id] = c
		if n.frozen {
			c.Freeze(n.at.Sub(n.began))
		}
	}
	c.Limit = limit
}

// Keep ends all containers but these.
func (n *Node) Keep(ids map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.containers {
		if !ids[id] {
			delete(n.containers, id)
		}
	}
}

// Freeze ends noise and bursts: each load stays at its trend, also that of a container that begins later.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = true
	for _, c := range n.containers {
		c.Freeze(n.at.Sub(n.began))
	}
}

// Descriptors is how many files are open.
func (*Node) Descriptors() int { return 0 }

// Close does nothing.
func (*Node) Close() error { return nil }

// Read lets the time since the last one pass, and reads the counters.
func (n *Node) Read(targets []kernel.Target) kernel.Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.look(targets)
	s.Node.Usage, s.Node.Kubepods = kernel.KnownTotal(n.all), kernel.KnownTotal(n.pods)
	s.Node.Pressure = kernel.Pressure{Known: true}
	return s
}

// Look is a Read of the idle time and the targets.
func (n *Node) Look(targets []kernel.Target) kernel.Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.look(targets)
}

// Find is a Look.
func (n *Node) Find(targets []kernel.Target) kernel.Sample { return n.Look(targets) }

func (n *Node) look(targets []kernel.Target) kernel.Sample {
	now := time.Now()
	if n.Now != nil {
		now = n.Now()
	}
	n.pass(now)
	idle := time.Duration(n.Cores*float64(now.Sub(n.began))) - n.all
	s := kernel.Sample{Node: kernel.NodeSample{At: now, Idle: kernel.KnownTotal(max(0, idle))}}
	for _, t := range targets {
		p := kernel.PodSample{Pod: t.Pod, Own: kernel.Group{Found: true, At: now}}
		for _, id := range t.Containers {
			g := kernel.Group{ID: id}
			if c := n.containers[id]; c != nil {
				g = c.group(id, now)
			}
			p.Own.Stat.Usage += g.Stat.Usage
			p.Containers = append(p.Containers, g)
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// pass lets time pass for all containers.
func (n *Node) pass(now time.Time) {
	if n.began.IsZero() {
		n.began, n.at = now, now
	}
	elapsed := now.Sub(n.at)
	n.at = now
	if elapsed <= 0 {
		return
	}
	list := make([]*Container, 0, len(n.containers))
	for _, c := range n.containers {
		c.want = c.Want(now.Sub(n.began))
		list = append(list, c)
	}
	divide(list, n.Cores-n.System)
	for _, c := range list {
		n.pods += c.pass(elapsed)
	}
	n.all = n.pods + time.Duration(n.System*float64(now.Sub(n.began)))
}

// most is what it would use alone.
func (c *Container) most() float64 {
	if c.Limit > 0 {
		return min(c.want, c.Limit.Cores())
	}
	return c.want
}

// divide gives each container what it would use alone, or its part by weight of what the others leave.
func divide(list []*Container, cores float64) {
	for _, c := range list {
		c.use = 0
	}
	for left := cores; left > 1e-9; {
		weights := 0.0
		for _, c := range list {
			if c.use < c.most() {
				weights += c.weight()
			}
		}
		if weights == 0 {
			return
		}
		share, given := left/weights, 0.0
		for _, c := range list {
			more := max(0, min(c.most()-c.use, share*c.weight()))
			c.use += more
			given += more
		}
		if left -= given; given < 1e-9 {
			return
		}
	}
}

func (c *Container) weight() float64 { return float64(max(2, c.Request)) }

// periodsPerSecond is how many CFS periods a second has.
const periodsPerSecond = 10

// pass counts, and returns the CPU time used. A container that its quota stops is throttled in the more
// of its periods, the more it wants beyond.
func (c *Container) pass(elapsed time.Duration) time.Duration {
	spent := time.Duration(c.use * float64(elapsed))
	c.usage += spent
	if c.want <= 0 {
		return spent
	}
	missing := (c.want - c.use) / c.want
	c.waited += time.Duration(missing * float64(elapsed))
	if c.Limit > 0 {
		c.periods += periodsPerSecond * elapsed.Seconds()
		if limit := c.Limit.Cores(); c.want > limit && c.use >= limit*0.99 {
			c.throttled += periodsPerSecond * elapsed.Seconds() * min(1, 0.3+missing)
			c.throttledAt += time.Duration(missing * float64(elapsed))
		}
	}
	return spent
}

// period is that of quotas.
const period = 100 * time.Millisecond

func (c *Container) group(id string, now time.Time) kernel.Group {
	return kernel.Group{
		ID: id, Found: true, At: now, Pressure: kernel.Pressure{Known: true, Some: c.waited},
		Stat: kernel.Stat{
			Usage: c.usage, Periods: uint64(c.periods), Throttled: uint64(c.throttled), ThrottledTime: c.throttledAt,
		},
		Quota: kernel.Quota{Limit: time.Duration(c.Limit) * period / time.Duration(cpu.Core), Period: period},
	}
}

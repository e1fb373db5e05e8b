package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
)

// Loads are like those of recorded services: a mean of 5 to 40 % of the request with noise that lasts
// for some seconds. Some pods always want more than they declare.
const (
	noiseKept  = 0.9 // of one second's deviation in the next
	noiseSwing = 0.2 // standard deviation, as a share of the mean
	greed      = 1.6 // what a throttled pod wants, as a multiple of its declared limit
)

// source is the demand of a container. Its node's sampler alone uses what is not atomic.
type source struct {
	mean  float64 // thousandths of a core
	extra atomic.Int64
	limit *atomic.Int64 // in force
	rng   *rand.Rand
	noise float64

	usage, throttledAt float64 // seconds
	periods, throttled float64
}

// loads are those of all containers.
type loads struct {
	kubelets *fakekubelet.Kubelets
	sources  sync.Map // container ID: *source
	kind     func(*corev1.Pod) loadKind
}

// loadKind is the part that a pod plays.
type loadKind uint8

const (
	calm       loadKind = iota
	throttled           // wants more than it declares, always
	saturating          // takes all that it gets
)

// add makes the sources of a pod.
func (l *loads) add(pod *corev1.Pod) {
	kind := l.kind(pod)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		id := fakekubelet.ContainerID(pod.UID, c.Name)
		if _, known := l.sources.Load(id); known {
			continue
		}
		s := &source{rng: drawn(id)}
		request := float64(kube.Milli(c.Resources.Requests[corev1.ResourceCPU]))
		limit := float64(kube.Milli(c.Resources.Limits[corev1.ResourceCPU]))
		s.mean = mean(s.rng, kind, request, limit)
		s.noise = s.rng.NormFloat64()
		l.sources.Store(id, s)
	}
}

// mean is what a container wants on average, drawn first of all that is drawn for it.
func mean(rng *rand.Rand, kind loadKind, request, limit float64) float64 {
	calmly := request * (0.05 + 0.35*rng.Float64())
	switch {
	case kind == throttled && limit > 0:
		return greed * limit
	case kind == saturating && limit > 0:
		return 8000
	}
	return calmly
}

func (l *loads) drop(pod *corev1.Pod) {
	for _, c := range pod.Spec.Containers {
		l.sources.Delete(fakekubelet.ContainerID(pod.UID, c.Name))
	}
}

// want adds demand to a container, until it is set to 0 again.
func (l *loads) want(pod *corev1.Pod, container string, extra cpu.Milli) {
	if v, ok := l.sources.Load(fakekubelet.ContainerID(pod.UID, container)); ok {
		v.(*source).extra.Store(int64(extra))
	}
}

// node is the counters of one node.
type node struct {
	loads *loads
	cores float64
	at    time.Time
	pods  float64 // seconds of CPU
	all   float64
	idle  float64
	last  []kernel.Target // of the last Read
}

var _ agent.Sampler = (*node)(nil)

// open is what an agent opens in place of the kernel's counters.
func (l *loads) open(cores int) func(context.Context) (agent.Sampler, error) {
	return func(context.Context) (agent.Sampler, error) {
		return &node{loads: l, cores: float64(cores)}, nil
	}
}

// Descriptors implements agent.Sampler.
func (*node) Descriptors() int { return 0 }

// Find implements agent.Sampler: new pods are found by the next Read, in whose time they share.
func (*node) Find(targets []kernel.Target) kernel.Sample {
	out := kernel.Sample{Node: kernel.NodeSample{At: time.Now()}, Pods: make([]kernel.PodSample, len(targets))}
	for i, t := range targets {
		out.Pods[i] = kernel.PodSample{Pod: t.Pod, Containers: make([]kernel.Group, len(t.Containers))}
	}
	return out
}

// Close implements agent.Sampler.
func (*node) Close() error { return nil }

// system is the CPU that the node uses outside of pods, in cores.
const system = 0.2

// Read implements agent.Sampler: it lets the time since the last call pass for all containers.
func (n *node) Read(targets []kernel.Target) kernel.Sample {
	now := time.Now()
	elapsed := 0.0
	if !n.at.IsZero() {
		elapsed = now.Sub(n.at).Seconds()
	}
	n.at = now
	wanted := 0.0
	sources := make([][]*source, len(targets))
	for i, t := range targets {
		sources[i] = make([]*source, len(t.Containers))
		for j, id := range t.Containers {
			if s := n.source(id); s != nil {
				sources[i][j] = s
				wanted += s.step(elapsed)
			}
		}
	}
	share := 1.0 // of its use that each gets where the node is full
	if room := n.cores - system; wanted > room {
		share = room / wanted
	}
	out := kernel.Sample{Pods: make([]kernel.PodSample, len(targets))}
	for i, t := range targets {
		p := kernel.PodSample{
			Pod: t.Pod, Own: kernel.Group{Found: true, At: now}, Containers: make([]kernel.Group, len(sources[i])),
		}
		for j, s := range sources[i] {
			p.Containers[j] = kernel.Group{ID: t.Containers[j]}
			if s != nil {
				n.pods += s.pass(elapsed, share)
				p.Containers[j] = s.group(t.Containers[j], now)
				p.Own.Stat.Usage += p.Containers[j].Stat.Usage
			}
		}
		out.Pods[i] = p
	}
	n.all += elapsed * system
	n.idle += elapsed * max(0, n.cores-system-min(wanted, n.cores-system))
	n.last = targets
	out.Node = kernel.NodeSample{
		At: now, Usage: kernel.KnownTotal(seconds(n.pods + n.all)), Kubepods: kernel.KnownTotal(seconds(n.pods)),
		Pressure: kernel.Pressure{Known: true}, Idle: kernel.KnownTotal(seconds(n.idle)),
	}
	return out
}

// Look implements agent.Sampler: a Read of all, of which it returns some.
func (n *node) Look(targets []kernel.Target) kernel.Sample {
	all := n.Read(n.last)
	out := kernel.Sample{Pods: make([]kernel.PodSample, len(targets))}
	out.Node.At, out.Node.Idle = all.Node.At, all.Node.Idle
	for i, t := range targets {
		if j := slices.IndexFunc(all.Pods, func(p kernel.PodSample) bool { return p.Pod == t.Pod }); j >= 0 {
			out.Pods[i] = all.Pods[j]
		}
	}
	return out
}

// source is that of a container whose kubelet has started it.
func (n *node) source(id string) *source {
	v, ok := n.loads.sources.Load(id)
	if !ok {
		return nil
	}
	s := v.(*source)
	if s.limit == nil {
		s.limit = n.loads.kubelets.Limit(id)
	}
	if s.limit == nil {
		return nil
	}
	return s
}

// step lets the noise go on, and returns the CPU that the container would use, in cores.
func (s *source) step(elapsed float64) float64 {
	keep := math.Pow(noiseKept, elapsed)
	s.noise = keep*s.noise + math.Sqrt(1-keep*keep)*s.rng.NormFloat64()
	use, _ := s.use()
	return use
}

// use is the CPU in cores that the container uses with its limit, and what it wants.
func (s *source) use() (use, want float64) {
	want = max(0, s.mean*(1+noiseSwing*s.noise)+float64(s.extra.Load())) / 1000
	use = want
	if limit := float64(s.limit.Load()) / 1000; limit > 0 {
		use = min(want, limit)
	}
	return use, want
}

// periodsPerSecond is how many CFS periods a second has.
const periodsPerSecond = 10

// pass adds to the counters, and returns the CPU time used in seconds.
func (s *source) pass(elapsed, share float64) float64 {
	use, want := s.use()
	use *= share
	s.usage += use * elapsed
	if s.limit.Load() > 0 {
		s.periods += periodsPerSecond * elapsed
		if over := want - use; over > 0 && share == 1 {
			s.throttled += periodsPerSecond * elapsed * min(1, 0.3+over/want)
			s.throttledAt += elapsed * over / want
		}
	}
	return use * elapsed
}

// period is that of the CFS quota.
const period = 100 * time.Millisecond

func (s *source) group(id string, now time.Time) kernel.Group {
	return kernel.Group{
		ID: id, Found: true, At: now, Pressure: kernel.Pressure{Known: true, Some: seconds(s.throttledAt)},
		Stat: kernel.Stat{
			Usage: seconds(s.usage), Periods: uint64(s.periods), Throttled: uint64(s.throttled),
			ThrottledTime: seconds(s.throttledAt),
		},
		Quota: kernel.Quota{Limit: time.Duration(s.limit.Load()) * period / 1000, Period: period},
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

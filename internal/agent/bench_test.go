//go:build linux

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/market"
)

// BenchmarkRound110Pods2Containers is what the agent does each second on a full node where CPU is
// scarce: it reads 330 real cgroups, runs the round and queues what is to be published.
// cpu-ms/op is the CPU time of the process, user and system, collection of garbage included, with
// the memory settings of the shipped program.
//
//	go test -run '^$' -bench Round110 ./internal/agent
func BenchmarkRound110Pods2Containers(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent))
	v := fullNode()
	turn, _ := turns(b, v, kernel.Config{Root: realCgroups(b, v.Targets)})
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		turn()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
}

// BenchmarkLook is one look on the same node, at as many containers as a look reads at most. There are up to
// four of them in a second.
func BenchmarkLook(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent))
	v := fullNode()
	_, look := turns(b, v, kernel.Config{Root: realCgroups(b, v.Targets)})
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		look()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
}

// BenchmarkStallSignals is what --memory-io-pressure costs: the same round with it and without,
// alternating, so that what else the machine does falls on both. x is the CPU time with it as a multiple
// of that without.
func BenchmarkStallSignals(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent))
	v := fullNode()
	root := realCgroups(b, v.Targets)
	without, _ := turns(b, v, kernel.Config{Root: root})
	with, _ := turns(b, v, kernel.Config{Root: root, MemoryIOPressure: true})
	var off, on time.Duration
	for b.Loop() {
		start := cpuTime(b)
		without()
		between := cpuTime(b)
		with()
		off, on = off+between-start, on+cpuTime(b)-between
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / float64(b.N) }
	b.ReportMetric(per(off), "off-cpu-ms/op")
	b.ReportMetric(per(on), "on-cpu-ms/op")
	b.ReportMetric(float64(on)/float64(off), "x")
}

// fullNode is a node with as many pods as a kubelet takes, where CPU is scarce.
func fullNode() *snapshot {
	const pods, each = 110, 2
	v := &snapshot{Node: round.Node{Capacity: 64000, Allocatable: 60000}}
	for i := range pods {
		uid := fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
		p := round.PodInput{Pod: demand.Pod{UID: uid, Budget: market.Budget(200 + i)}}
		t := kernel.Target{Pod: uid}
		for j := range each {
			id := fmt.Sprintf("%064x", i*each+j)
			p.Containers = append(p.Containers, demand.Container{
				Name: fmt.Sprint("c", j), ID: id, Request: 100, Declared: 500, Limit: 500,
			}.Within(0, 60000))
			t.Containers = append(t.Containers, id)
		}
		v.Refs = append(v.Refs, podRef{Namespace: "shop", Name: uid, UID: types.UID(uid), Allocation: types.UID(uid)})
		v.Pods, v.Targets = append(v.Pods, p), append(v.Targets, t)
	}
	return v
}

// turns is a round loop past its warm-up on real cgroups.
func turns(b *testing.B, v *snapshot, cfg kernel.Config) (turn, look func()) {
	b.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	host, err := kernel.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	busy := &busyHost{Host: host}
	queue := newPublishQueue(time.Hour)
	p, _ := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(b.Output(), nil))
	p.open = func(context.Context) (Sampler, error) { return busy, nil }
	p.snapshot = func() *snapshot { return v }
	p.publish = func(r *roundResult) { queue.replace(publicationsOf(r), r.At) }
	b.Cleanup(p.close)
	now := time.Now()
	turn = func() {
		p.tick(b.Context(), now)
		now = now.Add(time.Second)
	}
	for range 20 { // past the warm-up
		turn()
	}
	last := p.last.Load()
	if last == nil || len(last.Output.Decisions) != len(v.Pods) || last.Output.Node.Price == 0 ||
		len(queue.pending) != len(v.Pods) {
		b.Fatalf("not a full round: %+v", last)
	}
	if read := last.Output.Decisions[0].Stalls != nil; read != cfg.MemoryIOPressure {
		b.Fatalf("stalls are read: %v, want %v", read, cfg.MemoryIOPressure)
	}
	containers := 0
	for _, t := range p.watch {
		containers += len(t.Containers)
	}
	if containers != 32 {
		b.Fatalf("a look reads %d containers, want 32", containers)
	}
	return turn, func() { p.look(now) }
}

// busyHost reads the real counters and adds CPU use that no process has to burn: a second for each
// Read or Look.
type busyHost struct {
	*kernel.Host
	reads int
}

func (h *busyHost) Read(targets []kernel.Target) kernel.Sample {
	return h.busy(h.Host.Read(targets))
}

func (h *busyHost) Look(targets []kernel.Target) kernel.Sample {
	return h.busy(h.Host.Look(targets))
}

func (h *busyHost) busy(s kernel.Sample) kernel.Sample {
	h.reads++
	at := s.Node.At.Add(time.Duration(h.reads) * time.Second)
	s.Node.At = at
	var all time.Duration
	for i := range s.Pods {
		s.Pods[i].Own.At = at
		for j := range s.Pods[i].Containers {
			g := &s.Pods[i].Containers[j]
			used := time.Duration(h.reads) * time.Duration(200+10*(i%20)) * time.Millisecond
			g.At = at
			g.Stat.Usage += used
			g.Stat.Periods += uint64(10 * h.reads)
			g.Stat.Throttled += uint64(i % 10 * h.reads)
			all += used
		}
	}
	s.Node.Usage, s.Node.Kubepods = kernel.KnownTotal(all), kernel.KnownTotal(all)
	return s
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// realCgroups makes the cgroups of pods in this machine's hierarchies, each container with a quota,
// and returns the Root of a kernel.Config.
func realCgroups(b *testing.B, targets []kernel.Target) (root string) {
	b.Helper()
	c := cgroups.NewReal(b)
	for _, t := range targets {
		c.AddPod(cgroups.Burstable, t.Pod, t.Containers...)
		for _, id := range t.Containers {
			q := kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond}
			if err := c.SetQuota(c.Container(cgroups.Burstable, t.Pod, id), q); err != nil {
				b.Fatal(err)
			}
		}
	}
	return c.Dir
}

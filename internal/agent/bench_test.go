//go:build linux

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/agent/recording"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// BenchmarkRound110Pods2Containers is what the agent does each second where CPU is scarce: it reads 330
// real cgroups, runs the round and queues what is to be published. On the full node all CPUs are busy, so
// that the pressure of all containers is read; on the quiet one it is read rarely, as where the price is from before.
// Quotas enforce the limits on both. On v2 they are missing where this machine has the cpu controller on
// v1. cpu-ms/op is the CPU time of the process, user and system, collection
// of garbage included, with the memory settings of the shipped program.
//
//	go test -run '^$' -bench Round110 ./internal/agent
func BenchmarkRound110Pods2Containers(b *testing.B) {
	for tree, make := range map[string]func(*testing.B, []kernel.Target) string{"": realCgroups, "v2/": unifiedCgroups} {
		for name, from := range map[string]float64{"full": 0, "quiet": neverBusy} {
			b.Run(tree+name, func(b *testing.B) {
				v := fullNode()
				w := turns(b, v, kernel.Config{Root: make(b, v.Targets), PressureFrom: from})
				measure(b, w.round)
			})
		}
	}
}

// BenchmarkLook110Pods2Containers is one of the looks between two rounds on such a node, at as many
// containers as a look reads.
func BenchmarkLook110Pods2Containers(b *testing.B) {
	v := fullNode()
	w := turns(b, v, kernel.Config{Root: realCgroups(b, v.Targets)})
	containers := 0
	for _, t := range w.loop.watch {
		containers += len(t.Containers)
	}
	if containers != 24 && containers != 32 {
		b.Fatalf("looks read %d containers", containers)
	}
	measure(b, w.look)
}

// BenchmarkSecond110Pods2Containers is a second of the agent as it passes: a round and four looks, 200 ms
// apart, with other programs' instructions and data in the caches in between. 0.3 % of a core are 3 ms.
//
//	go test -run '^$' -bench Second110 -benchtime 20x ./internal/agent
func BenchmarkSecond110Pods2Containers(b *testing.B) {
	for name, from := range map[string]float64{"full": 0, "quiet": neverBusy} {
		b.Run(name, func(b *testing.B) {
			v := fullNode()
			w := turns(b, v, kernel.Config{Root: realCgroups(b, v.Targets), PressureFrom: from})
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			measure(b, func() {
				w.round()
				for range 4 {
					<-tick.C
					w.look()
				}
				<-tick.C
			})
		})
	}
}

// neverBusy has the pressure read rarely.
const neverBusy = 2

// measure reports the CPU time of what is done.
func measure(b *testing.B, do func()) {
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
}

// BenchmarkStallSignals is what --memory-io-pressure costs: the same round with it and without,
// alternating, so that what else the machine does falls on both. x is the CPU time with it as a multiple
// of that without.
func BenchmarkStallSignals(b *testing.B) {
	v := fullNode()
	root := realCgroups(b, v.Targets)
	without := turns(b, v, kernel.Config{Root: root})
	with := turns(b, v, kernel.Config{Root: root, MemoryIOPressure: true})
	var off, on time.Duration
	for b.Loop() {
		start := cpuTime(b)
		without.round()
		between := cpuTime(b)
		with.round()
		off, on = off+between-start, on+cpuTime(b)-between
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / float64(b.N) }
	b.ReportMetric(per(off), "off-cpu-ms/op")
	b.ReportMetric(per(on), "on-cpu-ms/op")
	b.ReportMetric(float64(on)/float64(off), "x")
}

// BenchmarkRecording is what recording costs: a second of rounds and looks with it and without, in turns. 0.02 % of a core
// is 0.2 ms. Counters and the times at which they are read have the noise of real ones, which cannot be compressed.
// MiB/30min is what half an hour takes.
//
//	go test -run '^$' -bench Recording -benchtime 600x ./internal/agent
func BenchmarkRecording(b *testing.B) {
	v := fullNode()
	root := realCgroups(b, v.Targets)
	without, with := turns(b, v, kernel.Config{Root: root}), turns(b, v, kernel.Config{Root: root})
	rec := record.NewRecorder(record.Limits{Keep: 24 * time.Hour, Bytes: 1 << 30})
	with.loop.record = recording.Feed{To: rec, Log: slog.New(slog.DiscardHandler)}
	second := func(w *turning) time.Duration {
		start := cpuTime(b)
		w.host.noise++
		w.round()
		for range 4 {
			w.host.noise++
			w.look()
		}
		return cpuTime(b) - start
	}
	var off, on time.Duration
	for b.Loop() {
		off += second(without)
		on += second(with)
	}
	with.loop.record.Panicked(with.host.now) // ends the minute
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / float64(b.N) }
	b.ReportMetric(per(on-off), "extra-cpu-ms/s")
	b.ReportMetric(float64(on)/float64(off), "x")
	b.ReportMetric(float64(rec.Held().Bytes)/float64(b.N)*1800/(1<<20), "MiB/30min")
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
			t.Containers, t.Limits = append(t.Containers, id), append(t.Limits, 500)
		}
		v.Refs = append(v.Refs, podRef{Namespace: "shop", Name: uid, UID: types.UID(uid), Allocation: types.UID(uid)})
		v.Quotas = append(v.Quotas, podQuota{})
		v.Pods, v.Targets = append(v.Pods, p), append(v.Targets, t)
	}
	return v
}

// turns is a round loop past its warm-up on real cgroups, with the memory settings of the shipped program.
func turns(b *testing.B, v *snapshot, cfg kernel.Config) *turning {
	b.Helper()
	before := debug.SetGCPercent(GCPercent)
	b.Cleanup(func() { debug.SetGCPercent(before) })
	busy := &busyHost{now: time.Now()}
	cfg.Log, cfg.Now = slog.New(slog.DiscardHandler), func() time.Time { return busy.now }
	host, err := kernel.Open(cfg)
	must.Succeed(b, err)
	busy.Host, busy.start = host, busy.now
	queue := newPublishQueue(time.Hour)
	p, _ := newLoop(nil)
	p.log = slog.New(slog.NewTextHandler(b.Output(), nil))
	p.cfg = round.DefaultConfig()
	p.open = func(context.Context) (Sampler, error) { return busy, nil }
	p.snapshot = func() *snapshot { return v }
	p.publish = func(r *roundResult) { queue.replace(publicationsOf(r), r.At) }
	p.raise = p.publish
	b.Cleanup(p.close)
	w := &turning{loop: p, host: busy, b: b}
	for range 20 { // past the warm-up
		w.round()
	}
	last := p.last.Load()
	if last == nil || len(last.Output.Decisions) != len(v.Pods) || last.Output.Node.Price == 0 ||
		len(queue.pending) != len(v.Pods) || last.Quotas.Mismatches > 0 {
		b.Fatalf("not a full round: %+v", last)
	}
	if read := last.Output.Decisions[0].Stalls != nil; read != cfg.MemoryIOPressure {
		b.Fatalf("stalls are read: %v, want %v", read, cfg.MemoryIOPressure)
	}
	return w
}

// turning is a round loop whose seconds are turned by hand.
type turning struct {
	b    *testing.B
	loop *roundLoop
	host *busyHost
}

// round is a round, a second after the last.
func (w *turning) round() {
	passed := w.host.now.Sub(w.host.start).Truncate(time.Second)
	w.host.now = w.host.start.Add(passed + time.Second)
	w.loop.tick(w.b.Context(), w.host.now)
}

// look is a look, 200 ms after what was before.
func (w *turning) look() {
	w.host.now = w.host.now.Add(200 * time.Millisecond)
	w.loop.look(w.host.now)
}

// busyHost reads the real counters, and adds CPU use that no process has to burn. Its time is turned by
// hand.
type busyHost struct {
	*kernel.Host
	start, now time.Time
	noise      uint64 // the seed of that of the counters; 0: none
}

func (h *busyHost) Read(targets []kernel.Target) kernel.Sample {
	s := h.Host.Read(targets)
	all := kernel.KnownTotal(h.use(s))
	s.Node.Usage, s.Node.Kubepods = all, all
	return s
}

func (h *busyHost) Look(targets []kernel.Target) kernel.Sample {
	s := h.Host.Look(targets)
	h.use(s)
	return s
}

// use adds what each container has used, and how often it was throttled; the sum is returned.
func (h *busyHost) use(s kernel.Sample) (all time.Duration) {
	passed := h.now.Sub(h.start)
	for i := range s.Pods {
		pod, err := strconv.ParseUint(s.Pods[i].Pod[24:], 16, 64)
		if err != nil {
			panic(err)
		}
		for j := range s.Pods[i].Containers {
			g := &s.Pods[i].Containers[j]
			used := passed * time.Duration(200+10*(pod%20)) / 1000
			if h.noise > 0 {
				r := rand.New(rand.NewPCG(h.noise, pod*8+uint64(j)))
				used += time.Duration(r.Int64N(20_000)) * time.Microsecond
				g.At = g.At.Add(time.Duration(i*4+j)*time.Microsecond + time.Duration(r.Int64N(3))*time.Microsecond)
				g.Pressure.Some += (used / 9).Truncate(time.Microsecond)
			}
			periods := uint64(passed / (100 * time.Millisecond))
			g.Stat.Usage += used
			g.Stat.Periods += periods
			g.Stat.Throttled += pod % 10 * periods / 10
			all += used
		}
	}
	return all
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	must.Succeed(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// realCgroups makes the cgroups of pods in this machine's hierarchies, each pod and container with a quota,
// and returns the Root of a kernel.Config.
func realCgroups(b *testing.B, targets []kernel.Target) (root string) {
	b.Helper()
	const period = 100 * time.Millisecond
	c := cgroups.NewReal(b)
	for _, t := range targets {
		c.AddPod(cgroups.Burstable, t.Pod, t.Containers...)
		must.Succeed(b, c.SetQuota(c.Pod(cgroups.Burstable, t.Pod), kernel.Quota{Limit: period, Period: period}))
		for _, id := range t.Containers {
			q := kernel.Quota{Limit: period / 2, Period: period}
			must.Succeed(b, c.SetQuota(c.Container(cgroups.Burstable, t.Pod, id), q))
		}
	}
	return c.Dir
}

// unifiedCgroups makes the cgroups of pods in the v2 hierarchy alone. On a hybrid machine that has usage and
// pressure, and no quotas.
func unifiedCgroups(b *testing.B, targets []kernel.Target) (root string) {
	b.Helper()
	c := cgroups.NewReal(b)
	if c.Version == kernel.V1 {
		b.Skip("no v2 hierarchy")
	}
	for _, t := range targets {
		c.AddPod(cgroups.Burstable, t.Pod, t.Containers...)
	}
	if c.Version == kernel.V2 {
		return c.Dir
	}
	root = b.TempDir()
	must.Succeed(b, os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu\n"), 0o644))
	kubepods := filepath.Join(root, c.Kubepods())
	must.Succeed(b, os.Mkdir(kubepods, 0o755))
	if err := unix.Mount(filepath.Join(c.Tops[2], c.Kubepods()), kubepods, "", unix.MS_BIND, ""); err != nil {
		b.Skipf("no bind mounts: %v", err)
	}
	b.Cleanup(func() { _ = unix.Unmount(kubepods, unix.MNT_DETACH) })
	return root
}

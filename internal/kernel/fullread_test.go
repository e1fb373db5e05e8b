//go:build linux

package kernel_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// counted has the reads of cgroup files counted by their names.
func (n *node) counted() map[string]int {
	count := map[string]int{}
	n.SetPread(func(fd int, to []byte, offset int64) (int, error) {
		path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		if err != nil {
			return 0, err
		}
		count[filepath.Base(path)]++
		return unix.Pread(fd, to, offset)
	})
	return count
}

// quietNode is a node whose containers' pressure is read rarely while CPUs are idle.
func quietNode(t *testing.T, version kernel.Version) *node {
	return newNode(t, cgroups.Shape{Version: version}, func(n *node) {
		n.cfg.PressureFrom = 0.85
		n.pass(0)
	})
}

// pass lets a second pass in which the CPUs are busy for a share of it, on a machine with ten of them.
func (n *node) pass(busy float64) {
	n.must(n.UpdateNode(func(s *kernel.NodeSample) {
		used := time.Duration(busy * 10 * float64(time.Second))
		s.Usage, s.Idle = kernel.KnownTotal(s.Usage.Time+used), kernel.KnownTotal(s.Idle.Time+10*time.Second-used)
	}))
}

// limited adds pods whose containers have quotas of 500m, and a target with these limits for each.
func limited(n *node, count, containers int) []kernel.Target {
	targets := pods(n.t, n.Tree, count, containers)
	for i, target := range targets {
		n.must(n.Update(target.Pod, "", func(g *kernel.Group) { g.Quota = quotaOf(cpu.Milli(500 * containers)) }))
		for _, id := range target.Containers {
			n.must(n.Update(target.Pod, id, func(g *kernel.Group) { g.Quota = quotaOf(500) }))
			targets[i].Limits = append(targets[i].Limits, 500)
		}
	}
	return targets
}

// quotaOf is the quota that the kubelet sets for a limit.
func quotaOf(limit cpu.Milli) kernel.Quota {
	const period = 100 * time.Millisecond
	return kernel.Quota{Limit: time.Duration(limit) * period / 1000, Period: period}
}

// TestReadsPerRound: a round reads the counters of all cgroups, on a full node the pressure of all
// containers, and all of each pod every ten seconds.
func TestReadsPerRound(t *testing.T) {
	const pods, containers = 10, 20
	for _, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid} {
		for busy, pressures := range map[float64]int{0.84: containers / 10, 0.86: containers} {
			t.Run(fmt.Sprint(version, " ", busy), func(t *testing.T) {
				n := quietNode(t, version)
				targets := limited(n, pods, 2)
				count := n.counted()
				// as many Reads as it takes until each pod has its turn; none of them with a recheck
				for range 20 {
					n.pass(busy)
					n.read(targets...)
				}
				want := map[string]int{"stat": 1, "cpu": 1, "uptime": 1}
				want["cpu.stat"] = pods + containers + 1
				quota := "cpu.max"
				if version != kernel.V2 {
					want["cpuacct.usage"], quota = containers+1, "cpu.cfs_quota_us"
				}
				if want["cpu.pressure"] = pressures; version == kernel.V1 {
					delete(want, "cpu.pressure")
				}
				want[quota] = (pods + containers) / 10
				for range 9 {
					clear(count)
					n.pass(busy)
					n.read(targets...)
					if !maps.Equal(count, want) {
						t.Errorf("reads %v, want %v", count, want)
					}
				}
			})
		}
	}
}

// TestPressureIsReadRarely: on a machine that is not busy the pressure is that of ten seconds ago at most, with
// the time of its read; from the first Read on after a busy second it is new.
func TestPressureIsReadRarely(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V2, kernel.Hybrid} {
		t.Run(string(version), func(t *testing.T) {
			n := quietNode(t, version)
			target := limited(n, 1, 1)[0]
			const unknown = 0.1
			var waited time.Duration
			second := func(busy float64) kernel.Group {
				if n.pass(busy); busy == unknown {
					n.must(os.WriteFile(filepath.Join(n.cfg.Proc, "uptime"), []byte("nonsense"), 0o644))
				}
				waited += 100 * time.Millisecond
				n.must(n.Update(target.Pod, target.Containers[0], func(g *kernel.Group) { g.Pressure.Some = waited }))
				return n.read(target).Pods[0].Containers[0]
			}
			if g := second(0); g.Pressure.Some != waited || !g.PressureTime().Equal(n.now) {
				t.Fatalf("the first time: %+v, want it read", g)
			}
			times := map[time.Time]bool{}
			for range 100 {
				g := second(0.5)
				age := n.now.Sub(g.PressureTime())
				if want := waited - age/10; g.Pressure.Some != want || age >= kernel.FullReadInterval {
					t.Fatalf("pressure %v of %v ago, want %v", g.Pressure.Some, age, want)
				}
				times[g.PressureTime()] = true
			}
			if len(times) > 11 {
				t.Errorf("read %d times in 100 s", len(times))
			}
			for range 5 {
				if g := second(0.9); g.Pressure.Some != waited || !g.PressureTime().Equal(n.now) {
					t.Errorf("on a busy machine: %+v, want it read", g)
				}
			}
			for range 5 {
				if g := second(unknown); g.Pressure.Some != waited {
					t.Errorf("where idle time is not known: %+v, want it read", g)
				}
			}
		})
	}
}

// TestQuotasAreReadRarely: a quota is read in each Read while it is not that of the limit in the spec; a change of
// which nothing tells is found within ten seconds. Burst and period are read with a new quota.
func TestQuotasAreReadRarely(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid} {
		t.Run(string(version), func(t *testing.T) {
			n := newNode(t, cgroups.Shape{Version: version}, nil)
			target := limited(n, 1, 2)[0]
			set := func(id string, q kernel.Quota) {
				n.must(n.Update(target.Pod, id, func(g *kernel.Group) { g.Quota = q }))
			}
			check := func(when string, own, first kernel.Quota) {
				t.Helper()
				p := n.read(target).Pods[0]
				if p.Own.Quota != own || p.Containers[0].Quota != first || p.Containers[1].Quota != quotaOf(500) {
					t.Errorf("%s: %+v", when, p)
				}
			}
			count := n.counted()
			reads := func() int { return count["cpu.max"] + count["cpu.cfs_quota_us"] }
			check("at first", quotaOf(1000), quotaOf(500))
			n.read(target)
			clear(count)
			check("nothing has changed", quotaOf(1000), quotaOf(500))
			if reads() != 0 {
				t.Errorf("%d quotas were read", reads())
			}
			target.Limits[0] = 700
			for range 3 {
				clear(count)
				check("the spec has, the kernel has not", quotaOf(1000), quotaOf(500))
				if reads() != 3 {
					t.Errorf("%d quotas were read, want all of the pod", reads())
				}
			}
			raised := quotaOf(700)
			raised.Burst = 7 * time.Millisecond
			set("", quotaOf(1200))
			set(target.Containers[0], raised)
			check("the kernel has", quotaOf(1200), raised)
			clear(count)
			n.read(target)
			if reads() != 0 {
				t.Errorf("%d quotas were read after that", reads())
			}
			set(target.Containers[0], quotaOf(600)) // by another program
			for range int(kernel.FullReadInterval / time.Second) {
				n.read(target)
			}
			check("ten seconds after an external change", quotaOf(1200), quotaOf(600))
			set(target.Containers[0], kernel.Quota{Period: 100 * time.Millisecond})
			check("it does not enforce the limit, so its end is seen at once", quotaOf(1200), kernel.Quota{Period: 100 * time.Millisecond})
			set(target.Containers[0], quotaOf(700))
			check("none enforces no limit", quotaOf(1200), quotaOf(700))
		})
	}
}

// TestQuotaEnforces: the quota that the kubelet sets for a limit enforces it.
func TestQuotaEnforces(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		quota kernel.Quota
		limit cpu.Milli
		want  bool
	}{
		{quotaOf(500), 500, true},
		{quotaOf(500), 509, true}, // as the runtime rounds
		{quotaOf(500), 520, false},
		{quotaOf(500), 480, false},
		{quotaOf(500), 0, false},
		{kernel.Quota{Period: 100 * ms}, 500, false},
		{kernel.Quota{Period: 100 * ms}, 0, true},
		{kernel.Quota{}, 0, true},
		{kernel.Quota{Limit: ms, Period: 10 * ms}, 50, true},                        // the least quota
		{kernel.Quota{Limit: 30 * ms, Period: 100 * ms, Burst: 30 * ms}, 100, true}, // no less than the burst
		{kernel.Quota{Limit: 40 * ms, Period: 100 * ms, Burst: 30 * ms}, 100, false},
	} {
		if got := c.quota.Enforces(c.limit); got != c.want {
			t.Errorf("%+v enforces %v: %v, want %v", c.quota, c.limit, got, c.want)
		}
	}
}

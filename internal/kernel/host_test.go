//go:build linux

package kernel_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// A node is a tree of files with a Host on it and a clock that stands still.
type node struct {
	*cgroups.Tree
	*kernel.Host
	t   *testing.T
	cfg kernel.Config
	now time.Time
	log bytes.Buffer
}

func newNode(t *testing.T, shape cgroups.Shape, prepare func(*node)) *node {
	t.Helper()
	n := &node{t: t, now: time.Unix(1000, 0)}
	tree, err := cgroups.New(t.TempDir(), shape)
	n.must(err)
	n.Tree, n.cfg = tree, tree.Config()
	n.cfg.Now = func() time.Time { return n.now }
	n.cfg.Log = slog.New(slog.NewTextHandler(&n.log, nil))
	if prepare != nil {
		prepare(n)
	}
	n.Host, err = kernel.Open(n.cfg)
	n.must(err)
	t.Cleanup(func() { n.Close() })
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	must.Succeed(n.t, err)
}

// read is one Read a second after the last.
func (n *node) read(targets ...kernel.Target) kernel.Sample {
	n.now = n.now.Add(time.Second)
	return n.Read(targets)
}

func (n *node) logged(what string) int { return strings.Count(n.log.String(), what) }

// TestRead: what is in the files comes back in units, on each version.
func TestRead(t *testing.T) {
	for i, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid, kernel.V1, kernel.V2, kernel.Hybrid} {
		stalls := i >= 3
		t.Run(fmt.Sprintf("%s, stalls %v", version, stalls), func(t *testing.T) {
			n := newNode(t, cgroups.Shape{Version: version}, func(n *node) {
				n.cfg.MemoryIOPressure = stalls
				n.must(n.UpdateNode(func(s *kernel.NodeSample) { s.Idle = kernel.KnownTotal(time.Second) }))
			})
			n.must(n.AddPod(cgroups.Burstable, uid(1), id(1), id(2)))
			want := kernel.Group{
				ID: id(2), Found: true,
				Stat:  kernel.Stat{Usage: 1234 * time.Microsecond, Periods: 50, Throttled: 7, ThrottledTime: 99 * time.Microsecond},
				Quota: kernel.Quota{Limit: 250 * time.Millisecond, Period: 100 * time.Millisecond, Burst: 5 * time.Millisecond},
			}
			if version != kernel.V1 {
				want.Pressure = kernel.Pressure{Known: true, Some: 30 * time.Microsecond}
			}
			var calm *kernel.Stalls // of a container that waits for nothing
			if stalls && version != kernel.V1 {
				none := kernel.Pressure{Known: true}
				calm = &kernel.Stalls{Memory: none, IO: none}
				want.Stalls = &kernel.Stalls{
					Memory: kernel.Pressure{Known: true, Some: 50 * time.Microsecond, Full: 40 * time.Microsecond},
					IO:     kernel.Pressure{Known: true, Some: 70 * time.Microsecond, Full: 60 * time.Microsecond},
				}
			}
			n.must(n.Update(uid(1), id(2), func(g *kernel.Group) { *g = want }))
			n.must(n.UpdateNode(func(s *kernel.NodeSample) {
				s.Usage, s.Kubepods = kernel.KnownTotal(90*time.Second), kernel.KnownTotal(60*time.Second)
				s.Pressure.Some, s.Idle = time.Second, kernel.KnownTotal(7890*time.Millisecond)
			}))

			got := n.read(kernel.Target{Pod: uid(1), Containers: []string{id(1), "", id(2)}},
				kernel.Target{Pod: uid(7), Containers: []string{id(7)}})
			period := kernel.Quota{Period: 100 * time.Millisecond}
			known := kernel.Pressure{Known: version != kernel.V1}
			want.At = n.now
			wantSample := kernel.Sample{
				Node: kernel.NodeSample{
					At:       n.now,
					Usage:    kernel.KnownTotal(90 * time.Second),
					Kubepods: kernel.KnownTotal(60 * time.Second),
					Pressure: kernel.Pressure{Known: true, Some: time.Second},
					Idle:     kernel.KnownTotal(7890 * time.Millisecond),
				},
				Pods: []kernel.PodSample{
					{
						Pod: uid(1),
						Own: kernel.Group{Found: true, At: n.now, Quota: period},
						Containers: []kernel.Group{
							{ID: id(1), Found: true, At: n.now, Quota: period, Pressure: known, Stalls: calm}, {}, want,
						},
					},
					{Pod: uid(7), Containers: []kernel.Group{{ID: id(7)}}},
				},
			}
			if diff := cmp.Diff(wantSample, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRecheckOnABusyNode: pods that come in each second, each a reason to list, do not keep living
// cgroups from being rechecked.
func TestRecheckOnABusyNode(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	targets := []kernel.Target{{Pod: uid(1), Containers: []string{id(1)}}}
	set := func(burst time.Duration) {
		n.must(n.Update(uid(1), id(1), func(g *kernel.Group) {
			g.Quota = kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond, Burst: burst}
		}))
	}
	set(5 * time.Millisecond)
	n.read(targets...)
	set(9 * time.Millisecond)
	for i := range 31 {
		n.must(n.AddPod(cgroups.Burstable, uid(100+i)))
		targets = append(targets, kernel.Target{Pod: uid(100 + i)})
		if s := n.read(targets...); s.Pods[0].Containers[0].Quota.Burst == 9*time.Millisecond {
			return
		}
	}
	t.Error("half a minute of new pods, and the burst has not been read again")
}

// TestDescriptors: files are held for targets only, and Close leaves none.
func TestDescriptors(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		n.must(err)
		return len(entries)
	}
	base, baseOpen := n.Descriptors(), open()
	for round := range 4 {
		var targets []kernel.Target
		for i := range 4 {
			u := uid(round*4 + i)
			n.must(n.AddPod(cgroups.Burstable, u, id(1), id(2)))
			targets = append(targets, kernel.Target{Pod: u, Containers: []string{id(1), id(2)}})
		}
		n.read(targets...)
		if got := n.Descriptors() - base; got != 4*(3+2*4) {
			t.Fatalf("round %d: %d files for 4 pods with 2 containers", round, got)
		}
		for i := range targets[:2] { // half of the pods go, the others are only forgotten
			n.must(n.Remove(targets[i].Pod, ""))
		}
	}
	n.read(kernel.Target{Pod: uid(15), Containers: []string{id(1)}})
	if got := n.Descriptors() - base; got != 3+4 {
		t.Errorf("%d files for a pod and a container", got)
	}
	n.read()
	if n.Descriptors() != base || open() != baseOpen {
		t.Errorf("%d files, %d in the process; want %d, %d", n.Descriptors(), open(), base, baseOpen)
	}
	n.must(n.Close())
	if n.Descriptors() != 0 {
		t.Errorf("%d files after Close", n.Descriptors())
	}
	if s := n.read(kernel.Target{Pod: uid(15), Containers: []string{id(1)}}); s.Pods[0].Own.Found ||
		s.Pods[0].Containers[0].ID != id(1) {
		t.Errorf("read after Close: %+v", s)
	}
}

// TestQuiet: what stays wrong does not fill the log.
func TestQuiet(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, func(n *node) {
		kp := filepath.Join(n.cfg.Root, n.Kubepods())
		n.must(os.Remove(filepath.Join(kp, "cpu.pressure")))
		n.must(os.RemoveAll(filepath.Join(n.cfg.Proc, "pressure")))
	})
	if n.Layout().PSI {
		t.Error("pressure reported where there is none")
	}
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	n.must(n.AddPod(cgroups.Burstable, uid(2), id(2)))
	for i := 1; i <= 2; i++ {
		n.must(os.Remove(filepath.Join(n.cfg.Root, n.Container(cgroups.Burstable, uid(i), id(i)), "cpu.pressure")))
	}
	stat := filepath.Join(n.cfg.Root, n.Container(cgroups.Burstable, uid(1), id(1)), "cpu.stat")
	n.must(os.WriteFile(stat, []byte("usage_usec nonsense\n"), 0o644))
	n.must(os.WriteFile(filepath.Join(n.cfg.Proc, "stat"), []byte("cpu nonsense\n"), 0o644))
	targets := []kernel.Target{
		{Pod: uid(1), Containers: []string{id(1)}},
		{Pod: uid(2), Containers: []string{id(2)}},
		{Pod: uid(3), Containers: []string{id(3)}},
	}
	for range 600 {
		s := n.read(targets...)
		if s.Pods[0].Containers[0].Found || !s.Pods[1].Containers[0].Found || s.Pods[1].Containers[0].Pressure.Known {
			t.Fatalf("%+v", s.Pods)
		}
		if s.Node.Usage.Known || !s.Node.Kubepods.Known {
			t.Fatalf("%+v: want the machine's use unknown, and that of its pods known", s.Node)
		}
	}
	for what, atMost := range map[string]int{"cgroup layout": 1, "usage_usec": 11, "proc/stat": 11, "\n": 1 + 11 + 11} {
		if got := n.logged(what); got > atMost {
			t.Errorf("%d lines with %q in 10 minutes, want at most %d:\n%.2000s", got, what, atMost, n.log.String())
		}
	}
	n.must(os.WriteFile(stat, []byte("usage_usec 5\n"), 0o644))
	if s := n.read(targets...); s.Pods[0].Containers[0].Stat.Usage != 5*time.Microsecond {
		t.Errorf("not read again: %+v", s.Pods[0])
	}
}

func await(t *testing.T, hints <-chan struct{}) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(time.Minute):
		t.Fatal("no hint")
	}
}

// TestClosedWhileReading: Close may come from another goroutine at any time.
func TestClosedWhileReading(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	n.Watch(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 100 {
				n.Read([]kernel.Target{{Pod: uid(1), Containers: []string{id(1)}}})
				n.Layout()
				n.Descriptors()
			}
		})
	}
	n.must(n.Close())
	n.must(n.Close())
	wg.Wait()
}

// TestReadDoesNotAllocate: besides the slices of the Sample. On the clock of the bubble no read is
// late, so none is taken to be blocked.
func TestReadDoesNotAllocate(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V2, kernel.Hybrid} {
		for stalls, slices := range map[bool]float64{false: 2, true: 3} {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, cgroups.Shape{Version: version}, func(n *node) { n.cfg.MemoryIOPressure = stalls })
				targets := pods(t, n.Tree, 5, 2)
				n.read(targets...)
				if got := testing.AllocsPerRun(20, func() { n.Read(targets) }); got > slices {
					t.Errorf("%v, stalls %v: %v allocations, want %v", version, stalls, got, slices)
				}
			})
		}
	}
}

// pods adds pods to a tree.
func pods(t testing.TB, tree *cgroups.Tree, count, containers int) []kernel.Target {
	t.Helper()
	var targets []kernel.Target
	for i := range count {
		target := kernel.Target{Pod: uid(i)}
		for c := range containers {
			target.Containers = append(target.Containers, fmt.Sprintf("%064x", i*100+c+1))
		}
		must.Succeed(t, tree.AddPod(cgroups.Burstable, target.Pod, target.Containers...))
		targets = append(targets, target)
	}
	return targets
}

// TestOpenSaysWhatToDo: an error names the path and the way out.
func TestOpenSaysWhatToDo(t *testing.T) {
	empty := t.TempDir()
	for root, want := range map[string]string{
		empty:                           "neither cgroup v2 (cgroup.controllers) nor v1",
		filepath.Join(empty, "missing"): "mount the host's /sys/fs/cgroup there",
	} {
		_, err := kernel.Open(kernel.Config{Root: root, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: error %v, want %q", root, err, want)
		}
	}
}

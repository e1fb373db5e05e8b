//go:build linux

package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// look is one Look a fifth of a second after the last Read or Look.
func (n *node) look(targets ...kernel.Target) kernel.Sample {
	n.now = n.now.Add(200 * time.Millisecond)
	return n.Look(targets)
}

// TestLookReadsCountersAlone: on each version a Look reads the idle time, and of its targets the usage and
// the throttling; and it reads no other file.
func TestLookReadsCountersAlone(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid} {
		t.Run(string(version), func(t *testing.T) {
			n := newNode(t, cgroups.Shape{Version: version}, func(n *node) {
				n.cfg.MemoryIOPressure = true
				n.must(n.UpdateNode(func(s *kernel.NodeSample) { s.Idle = kernel.KnownTotal(time.Second) }))
			})
			targets := pods(t, n.Tree, 3, 2)
			n.read(targets...)
			files := n.Descriptors()
			stat := kernel.Stat{Usage: 7 * time.Second, Periods: 60, Throttled: 9, ThrottledTime: time.Second}
			n.must(n.Update(targets[1].Pod, targets[1].Containers[1], func(g *kernel.Group) { g.Stat = stat }))
			n.must(n.UpdateNode(func(s *kernel.NodeSample) { s.Idle = kernel.KnownTotal(12340 * time.Millisecond) }))
			read := map[string]bool{}
			n.SetPread(func(fd int, to []byte, offset int64) (int, error) {
				path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
				read[filepath.Base(path)] = err == nil
				return unix.Pread(fd, to, offset)
			})
			targets = append(targets[1:2:2], kernel.Target{Pod: uid(99), Containers: []string{id(99)}})
			got := n.look(targets...)

			found := kernel.Group{Found: true, At: n.now}
			first, second := found, found
			first.ID, second.ID, second.Stat = targets[0].Containers[0], targets[0].Containers[1], stat
			want := kernel.Sample{
				Node: kernel.NodeSample{At: n.now, Idle: kernel.KnownTotal(12340 * time.Millisecond)},
				Pods: []kernel.PodSample{
					{Pod: targets[0].Pod, Own: found, Containers: []kernel.Group{first, second}},
					{Pod: uid(99), Containers: []kernel.Group{{ID: id(99)}}}, // no Read has found it
				},
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var names []string
			for name := range read {
				names = append(names, name)
			}
			slices.Sort(names)
			usage := []string{"cpu.stat", "uptime"}
			if version != kernel.V2 {
				usage = []string{"cpu.stat", "cpuacct.usage", "uptime"}
			}
			if !slices.Equal(names, usage) {
				t.Errorf("it read %v, want %v", names, usage)
			}
			if got := n.Descriptors(); got != files {
				t.Errorf("%d files are open, were %d", got, files)
			}
		})
	}
}

// TestLookAtWhatIsGone: a cgroup that was removed since the Read is not found, the others are, and the next
// Read finds one that was made again. Without idle time a Look still reads the rest.
func TestLookAtWhatIsGone(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid} {
		t.Run(string(version), func(t *testing.T) {
			n := newNode(t, cgroups.Shape{Version: version}, nil)
			targets := pods(t, n.Tree, 2, 2)
			n.read(targets...)
			n.must(n.Remove(targets[0].Pod, targets[0].Containers[1]))
			n.SetPread(func(fd int, to []byte, offset int64) (int, error) { // as the kernel does, other than a file system
				var s unix.Stat_t
				if err := unix.Fstat(fd, &s); err == nil && s.Nlink == 0 {
					return 0, unix.ENODEV
				}
				return unix.Pread(fd, to, offset)
			})
			s := n.look(targets...)
			if s.Node.Idle.Known {
				t.Errorf("without /proc/uptime the idle time is %v", s.Node.Idle)
			}
			for i, p := range s.Pods {
				for j, g := range p.Containers {
					if gone := i == 0 && j == 1; g.Found == gone {
						t.Errorf("pod %d, container %d: found %v", i, j, g.Found)
					}
				}
			}
			n.must(n.AddPod(cgroups.Burstable, targets[0].Pod, targets[0].Containers...))
			if g := n.read(targets...).Pods[0].Containers[1]; !g.Found {
				t.Error("the Read after the Look does not find the cgroup that was made again")
			}
			n.must(n.Close())
			if s := n.look(targets...); s.Node.Idle.Known || s.Pods[1].Own.Found {
				t.Errorf("a Look after Close found %+v", s)
			}
		})
	}
}

// TestBlockedReadEndsALook: where the read of a pod does not end, the Look does within a tenth of a second.
// The Read after it does not wait for this pod, and the one after that reads it again.
func TestBlockedReadEndsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, cgroups.Shape{}, nil)
		targets := pods(t, n.Tree, 4, 2)
		n.read(targets...)
		files := n.Descriptors()
		release := make(chan struct{})
		n.block(release, targets[1])
		begin := time.Now()
		s := n.look(targets...)
		if took := time.Since(begin); took > 2*50*time.Millisecond {
			t.Errorf("the Look took %v, want a tenth of a second at most", took)
		}
		for i, p := range s.Pods {
			if p.Own.Found != (i < 1) || p.Blocked != (i >= 1) {
				t.Errorf("pod %d: found %v, blocked %v", i, p.Own.Found, p.Blocked)
			}
		}
		for _, read := range []func(...kernel.Target) kernel.Sample{n.look, n.read} {
			begin = time.Now()
			s = read(targets...)
			for i, p := range s.Pods {
				if blocked := i == 1; p.Own.Found == blocked || p.Blocked != blocked {
					t.Errorf("while it blocks: pod %d: found %v, blocked %v", i, p.Own.Found, p.Blocked)
				}
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("while it blocks: it took %v, want it not to wait", took)
			}
		}
		close(release)
		synctest.Wait()
		for i, p := range n.read(targets...).Pods {
			if !p.Own.Found || !p.Containers[1].Found {
				t.Errorf("when the read has ended: pod %d is not found", i)
			}
		}
		if got := n.Descriptors(); got != files {
			t.Errorf("%d files are open, want %d", got, files)
		}
	})
}

// TestFindOpensNewPods: a pod that no Read knows is opened and read by a Find; a Look reads it from then on,
// and the next Read closes it unless it is among its targets.
func TestFindOpensNewPods(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	old := kernel.Target{Pod: uid(1), Containers: []string{id(1)}}
	n.read(old)
	files := n.Descriptors()

	n.must(n.AddPod(cgroups.Burstable, uid(2), id(2)))
	n.must(n.Update(uid(2), id(2), func(g *kernel.Group) {
		g.Stat.Periods, g.Stat.Throttled = 5, 3
		g.Quota = kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond}
	}))
	fresh := kernel.Target{Pod: uid(2), Containers: []string{id(2)}}
	if g := n.Look([]kernel.Target{fresh}).Pods[0].Containers[0]; g.Found {
		t.Errorf("a Look has looked up a pod: %+v", g)
	}
	found := n.Find([]kernel.Target{fresh, {Pod: uid(3), Containers: []string{id(3)}}})
	if g := found.Pods[0].Containers[0]; !g.Found || g.Stat.Throttled != 3 || g.Quota.Limit != 50*time.Millisecond {
		t.Errorf("found %+v", g)
	}
	if found.Pods[1].Containers[0].Found || found.Node.Usage.Known {
		t.Errorf("found %+v: want no pod that does not exist, and nothing of the machine", found)
	}
	if got := n.Descriptors() - files; got != 2*4-1 {
		t.Errorf("%d files for a pod and its container, want 7", got)
	}
	looked := n.Look([]kernel.Target{old, fresh})
	if !looked.Pods[0].Containers[0].Found || looked.Pods[1].Containers[0].Stat.Throttled != 3 {
		t.Errorf("looked at %+v", looked.Pods)
	}
	if s := n.read(old, fresh); !s.Pods[1].Containers[0].Found {
		t.Errorf("read %+v", s.Pods[1])
	}
	n.read(old)
	if got := n.Descriptors(); got != files {
		t.Errorf("%d files, want %d: the pod has gone", got, files)
	}
}

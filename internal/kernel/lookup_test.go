//go:build linux

package kernel_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// TestGone: a removed cgroup is not found; one that is created again is read from its start.
func TestGone(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	target := kernel.Target{Pod: uid(1), Containers: []string{id(1), id(2)}}
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1), id(2)))
	n.must(n.Update(uid(1), id(1), func(g *kernel.Group) { g.Stat.Usage = time.Hour }))
	check := func(reason string, own, first, second bool, usage time.Duration) {
		t.Helper()
		p := n.read(target).Pods[0]
		if p.Own.Found != own || p.Containers[0].Found != first || p.Containers[1].Found != second ||
			p.Containers[0].Stat.Usage != usage {
			t.Errorf("%s: %+v", reason, p)
		}
	}
	check("all there", true, true, true, time.Hour)
	n.must(n.Remove(uid(1), id(1)))
	check("container removed", true, false, true, 0)
	check("still", true, false, true, 0)
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	check("made again, counters start anew", true, true, true, 0)
	n.must(n.Remove(uid(1), ""))
	check("pod removed", false, false, false, 0)
	n.must(n.AddPod(cgroups.BestEffort, uid(1), id(1), id(2)))
	check("pod made again elsewhere", true, true, true, 0)
}

// TestWholeTreeIsSearchedOnceAMinute: the search for containers outside of their pods is expensive.
func TestWholeTreeIsSearchedOnceAMinute(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	n.must(n.AddPod(cgroups.Burstable, uid(1)))
	target := kernel.Target{Pod: uid(1), Containers: []string{id(1), id(2)}}
	stray := func(id string) string { return "system.slice/containerd.service/x:cri-containerd:" + id }
	seconds := func(container int) (s int) {
		for n.read(target).Pods[0].Containers[container].Found == false {
			if s++; s > 120 {
				t.Fatal("not found")
			}
		}
		return s
	}
	n.must(n.Write(stray(id(1)), kernel.Group{}))
	if s := seconds(0); s < 5 || s > 8 {
		t.Errorf("first found after %d s, want the 5 s that a pod's directory may take to fill", s)
	}
	n.must(n.Write(stray(id(2)), kernel.Group{}))
	if s := seconds(1); s < 50 || s > 61 {
		t.Errorf("second found after %d s, want a minute after the last search", s)
	}
}

// TestKubepodsMoves: a kubelet that restarts with another driver is found again.
func TestKubepodsMoves(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, nil)
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	target := kernel.Target{Pod: uid(1), Containers: []string{id(1)}}
	if !n.read(target).Pods[0].Own.Found {
		t.Fatal("not found")
	}
	n.must(n.Remove(uid(1), ""))
	n.must(os.Truncate(filepath.Join(n.cfg.Root, n.Kubepods(), "cpu.stat"), 0))
	n.must(os.RemoveAll(filepath.Join(n.cfg.Root, n.Kubepods())))
	n.Driver = kernel.Cgroupfs
	n.must(n.UpdateNode(func(s *kernel.NodeSample) { s.Kubepods = kernel.KnownTotal(time.Minute) }))
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	for range 60 {
		s := n.read(target)
		if s.Pods[0].Containers[0].Found && s.Node.Kubepods == kernel.KnownTotal(time.Minute) {
			if l := n.Layout(); l.Driver != kernel.Cgroupfs {
				t.Errorf("layout %v", l)
			}
			return
		}
	}
	t.Errorf("not found within a minute:\n%s", n.log.String())
}

// TestWatch: a new pod causes a hint, also in a QoS directory that is created later.
func TestWatch(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, func(n *node) { n.must(n.AddPod(cgroups.Burstable, uid(1))) })
	hints := n.Watch(t.Context())
	for i := range 50 {
		n.must(n.AddPod(cgroups.Burstable, uid(10+i)))
	}
	await(t, hints)
	// A QoS directory that came later is watched, too. Its own coming is the
	// first hint; pods are added until one shows.
	n.must(n.AddPod(cgroups.BestEffort, uid(2)))
	await(t, hints)
	deadline := time.After(10 * time.Second)
	for i := 100; ; i++ {
		n.must(n.AddPod(cgroups.BestEffort, uid(i)))
		select {
		case <-hints:
		case <-deadline:
			t.Fatal("no hint from a new QoS directory")
		default:
			continue
		}
		break
	}
	n.must(n.Close())
	select {
	case <-hints: // one may have been waiting
	default:
	}
	if n.Watch(t.Context()) == nil {
		t.Error("no channel after Close")
	}
}

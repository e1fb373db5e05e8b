//go:build linux

package kernel_test

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

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

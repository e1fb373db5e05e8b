//go:build linux

package kernel_test

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// TestWholePod: the cgroup of a pod that is read as a whole is read like a container's, by Reads and by Looks, whatever the
// version of the cgroups; and in the next Read once the pod counts as its containers again.
func TestWholePod(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V1, kernel.V2, kernel.Hybrid} {
		t.Run(string(version), func(t *testing.T) {
			n := newNode(t, cgroups.Shape{Version: version}, nil)
			target := limited(n, 1, 2)[0]
			set := func(id string, f func(*kernel.Group)) { n.must(n.Update(target.Pod, id, f)) }
			set("", func(g *kernel.Group) { g.Quota = quotaOf(500) })
			n.read(target)
			files := n.Descriptors()
			target.Whole = "whole"
			before := n.read(target)
			if own := before.Pods[0].Own; !own.Found || own.ID != "whole" || own.Quota != quotaOf(500) {
				t.Fatalf("the pod is read as %+v", own)
			}
			used := func(since kernel.Sample, look bool) sense.Rate {
				set("", func(g *kernel.Group) {
					g.Stat.Usage, g.Stat.Periods, g.Stat.Throttled = g.Stat.Usage+400*time.Millisecond, g.Stat.Periods+10, g.Stat.Throttled+1
					g.Pressure.Some += 100 * time.Millisecond
				})
				set(target.Containers[1], func(g *kernel.Group) { g.Stat.Periods, g.Stat.Throttled = g.Stat.Periods+10, g.Stat.Throttled+7 })
				if before = n.read(target); look {
					before = n.Look([]kernel.Target{target})
				}
				return sense.Compare(since, before, 3*time.Second).Pods[0].Containers[0]
			}
			r := used(before, false)
			if r.Validity != sense.Valid || r.Usage != 400 || r.ThrottleRatio != 0.7 || r.Quota != 500 || r.Pressure.Known != (version != kernel.V1) {
				t.Errorf("%+v, want 400m of 500m, throttled in 0.7 of the periods", r)
			}
			if r := used(before, true); r.Validity != sense.Valid || r.Usage != 400 || r.ThrottleRatio != 0.7 {
				t.Errorf("by a look %+v, want the same", r)
			}
			set("", func(g *kernel.Group) { g.Quota = quotaOf(300) })
			for i := range target.Limits {
				target.Limits[i] = 300
			}
			if q := n.read(target).Pods[0].Own.Quota; q != quotaOf(300) {
				t.Errorf("quota %+v in the first Read with another limit, want %+v", q, quotaOf(300))
			}
			target.Whole = ""
			if own := n.read(target).Pods[0].Own; !own.Found || own.ID != "" || own.Pressure.Known || n.Descriptors() != files {
				t.Errorf("as its containers: %+v, and %d files, want %d", own, n.Descriptors(), files)
			}
		})
	}
}

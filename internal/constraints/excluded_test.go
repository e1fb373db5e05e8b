package constraints

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestExcludedContainersKeepTheirLimit: whatever the node's size, constraints, max-cpu and the limit in force are, an
// excluded container is bound to its declared limit, which counts in the pod's bounds.
func TestExcludedContainersKeepTheirLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := podtest.Shop()
		declared := kube.Limits(p) // app 500m, proxy 200m
		p.Annotations[kube.ExcludeContainersKey] = "proxy"
		milli := func(what string, low int) cpu.Milli { return cpu.Milli(rapid.IntRange(low, 4000).Draw(t, what)) }
		p = kube.WithLimits(p, map[string]cpu.Milli{"app": milli("limit of app", 110), "proxy": milli("limit of proxy", 60)})
		if rapid.Bool().Draw(t, "max-cpu") {
			p.Annotations[kube.MaxCPUKey] = milli("max-cpu", 10).String()
		}
		floor, ceiling := milli("floor", 1), milli("ceiling", 10)
		c := &v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "proxy", Floor: &floor, Ceiling: &ceiling}}}
		if rapid.Bool().Draw(t, "no decrease") {
			c.NoDecrease = "ScaledByHPA"
		}
		if rapid.Bool().Draw(t, "quota") {
			c.Ceiling = new(milli("ceiling of the pod", 400)) // of which both minimums, 110m and 200m, have room
		}
		b := BoundsOf(p, declared, milli("node", 300), c)
		if got := b.Containers["proxy"]; got.Floor != 200 || got.Ceiling != 200 {
			t.Fatalf("proxy has the bounds %+v", got)
		}
		if got := b.Containers["app"]; got.Floor > got.Ceiling {
			t.Fatalf("app has the bounds %+v", got)
		}
		if low, high := b.Total(); low < 200 || high < low {
			t.Fatalf("the pod has the bounds %v to %v", low, high)
		}
	})
}

// TestExcludedAtItsRequest: a declared limit that equals the request stays; a higher one returns to the lowest limit that
// a resize sets.
func TestExcludedAtItsRequest(t *testing.T) {
	for limit, want := range map[cpu.Milli]cpu.Milli{50: 50, 300: 60} {
		p := podtest.Shop()
		p.Spec.InitContainers[1] = podtest.Container("proxy", "50m", "50m")
		p.Spec.InitContainers[1].RestartPolicy = podtest.Shop().Spec.InitContainers[1].RestartPolicy
		declared := kube.Limits(p)
		p.Annotations[kube.ExcludeContainersKey] = "proxy"
		b := BoundsOf(kube.WithLimits(p, map[string]cpu.Milli{"proxy": limit}), declared, 4000, nil)
		if got := b.Containers["proxy"]; got.Floor != want || got.Ceiling != want {
			t.Errorf("at %v: %+v, want %v", limit, got, want)
		}
	}
}

package sense

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
)

// TestWholePodIsOneContainer: its usage, quota and pressure are those of the pod's cgroup, and it is throttled as the one of
// its cgroups that is throttled most.
func TestWholePodIsOneContainer(t *testing.T) {
	at := func(d time.Duration, own, app, log kernel.Stat) kernel.Sample {
		s := sample(d, "app", app)
		p := &s.Pods[0]
		p.Own, p.Containers = p.Containers[0], append(p.Containers, p.Containers[0])
		p.Own.ID, p.Own.Stat = "whole", own
		p.Containers[1].ID, p.Containers[1].Stat = "log", log
		return s
	}
	before := at(0, kernel.Stat{Usage: time.Second, Periods: 10}, kernel.Stat{Periods: 10}, kernel.Stat{Periods: 10})
	after := at(time.Second, kernel.Stat{Usage: 3 * time.Second / 2, Periods: 20, Throttled: 2},
		kernel.Stat{Usage: 400 * time.Millisecond, Periods: 20, Throttled: 6}, kernel.Stat{Usage: 100 * time.Millisecond, Periods: 20})
	rates := Compare(before, after, 3*time.Second).Pods[0]
	if len(rates.Containers) != 1 {
		t.Fatalf("%d rates, want one", len(rates.Containers))
	}
	r := rates.Containers[0]
	if r.Validity != Valid || r.Usage != 500 || r.ThrottleRatio != 0.6 || r.Quota != 500 || !r.Pressure.Known {
		t.Errorf("%+v, want 500m of 500m, throttled in 0.6 of the periods", r)
	}
	if usage, known := rates.Usage(); usage != 0.5 || !known {
		t.Errorf("the pod uses %v, known %v, want its usage once", usage, known)
	}
	t.Run("a container restarts", func(t *testing.T) {
		after := after
		after.Pods = append([]kernel.PodSample(nil), after.Pods...)
		c := append([]kernel.Group(nil), after.Pods[0].Containers...)
		c[0].ID, c[0].Stat = "app-2", kernel.Stat{}
		after.Pods[0].Containers = c
		if r := Compare(before, after, 3*time.Second).Pods[0].Containers[0]; r.Validity != Valid || r.Usage != 500 || r.ThrottleRatio != 0.2 {
			t.Errorf("%+v, want the usage of the pod, and its own throttling", r)
		}
	})
	t.Run("it was not read as a whole before", func(t *testing.T) {
		before.Pods[0].Own = kernel.Group{Found: true, At: before.Pods[0].Own.At}
		r := Compare(before, after, 3*time.Second).Pods[0].Containers[0]
		if r.Validity == Valid {
			t.Errorf("%+v: the usage of a pod that was not read is no rate", r)
		}
	})
}

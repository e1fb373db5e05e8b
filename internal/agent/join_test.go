package agent

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
)

// with is the snapshot and a managed pod of one container.
func (s *snapshot) with(name string) *snapshot {
	c := *s
	container := demand.Container{
		Name: "app", ID: name, Request: 100, Declared: 500, Limit: 500, Bounds: demand.Bounds{Floor: 100, Ceiling: 1800},
	}
	c.Refs = append(slices.Clone(s.Refs), podRef{Namespace: "shop", Name: name, UID: types.UID(name)})
	c.Pods = append(slices.Clone(s.Pods), round.PodInput{Pod: demand.Pod{UID: name, Budget: 100, Containers: []demand.Container{container}}})
	c.Targets = append(slices.Clone(s.Targets), kernel.Target{Pod: name, Containers: []string{name}})
	c.Quotas = append(slices.Clone(s.Quotas), podQuota{Settled: true})
	return &c
}

// arrivals is the round loop of a node on which each container is throttled in half of its periods, with a
// function that replaces its snapshot, and what it has raised between rounds.
func arrivals(t *testing.T) (loop *roundLoop, host *fakeSampler, arrive func(*snapshot), raised *[]string) {
	t.Helper()
	loop, host = newLoop(nil)
	begin := time.Now()
	sample := func(targets []kernel.Target) kernel.Sample {
		now := time.Now()
		idle := kernel.KnownTotal(2 * now.Sub(begin))
		s := kernel.Sample{Node: kernel.NodeSample{At: now, Idle: idle, Usage: kernel.KnownTotal(0), Kubepods: kernel.KnownTotal(0)}}
		for _, target := range targets {
			p := kernel.PodSample{Pod: target.Pod, Own: kernel.Group{Found: true, At: now}}
			for _, id := range target.Containers {
				p.Containers = append(p.Containers, kernel.Group{
					ID: id, Found: true, At: now, Stat: kernel.Stat{Periods: 10, Throttled: 5},
				})
			}
			s.Pods = append(s.Pods, p)
		}
		return s
	}
	var current atomic.Pointer[snapshot]
	current.Store(smallNode())
	loop.snapshot, host.read, host.look = current.Load, sample, sample
	changed, names := make(chan struct{}, 1), []string{}
	loop.changed = changed
	loop.raise = func(r *roundResult) {
		for _, d := range r.Output.Decisions {
			names = append(names, fmt.Sprintf("%s %v %.1f", r.Snapshot.Refs[d.Pod].Name, d.Limit, time.Since(begin).Seconds()))
		}
	}
	return loop, host, func(s *snapshot) {
		current.Store(s)
		signal(changed)
	}, &names
}

// TestNewPodsAreReadAtOnce: a new managed pod is read when it arrives, and raised if it is throttled. Whatever
// arrives, that is at most four reads a second, and rounds stay on their grid.
func TestNewPodsAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop, host, arrive, raised := arrivals(t)
		stop := start(loop.Run)
		defer stop()
		s := loop.snapshot()
		time.Sleep(20300 * time.Millisecond)
		arrive(s.with("first"))
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if want := []string{"first 1000m 20.3"}; !slices.Equal(*raised, want) {
			t.Fatalf("raised %v, want %v", *raised, want)
		}
		arrive(s) // nothing new
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if n := len(host.finds); n != 1 {
			t.Errorf("%d reads of new pods, want 1", n)
		}
		time.Sleep(500 * time.Millisecond) // second 21
		for i := range 200 {
			s = s.with(fmt.Sprint("pod-", i))
			arrive(s)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(host.finds); n < 6 || n > 1+2*4 {
			t.Errorf("read new pods at %v: want at most four times a second", host.finds)
		}
		if got := host.reads(); len(got) != 24 || got[23] != 23 {
			t.Errorf("rounds at %v", got)
		}
	})
}

// TestNewPodsOfASnapshot: new are managed pods that run another container, or that were not managed.
func TestNewPodsOfASnapshot(t *testing.T) {
	old := (&snapshot{}).with("same").with("restarted").with("unmanaged").with("set aside")
	old.Pods[2].Unmanaged = true
	now := (&snapshot{}).with("set aside").with("unmanaged").with("restarted").with("added").with("same")
	now.Targets[2].Containers = []string{"another"}
	now.Targets[4].Containers = []string{""} // it has ended
	faulty := map[types.UID]time.Time{"set aside": {}}
	now.Targets[0].Containers = []string{"another"}
	extended, first := old.withNewPods(now, faulty)
	var names []string
	for _, r := range extended.Refs[first:] {
		names = append(names, r.Name)
	}
	if want := []string{"unmanaged", "restarted", "added"}; first != 4 || !slices.Equal(names, want) {
		t.Errorf("new are %v from %d on, want %v", names, first, want)
	}
	if len(old.Refs) != 4 || len(extended.Pods) != 7 || extended.Targets[5].Containers[0] != "another" ||
		extended.Pods[6].Containers[0].Limit != cpu.Milli(500) {
		t.Errorf("extended to %+v", extended)
	}
	if again, _ := extended.withNewPods(now, faulty); again != nil {
		t.Errorf("again %+v", again.Refs)
	}
}

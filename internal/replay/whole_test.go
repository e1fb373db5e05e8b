package replay_test

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// TestWholePodsReplay: a pod that is read as a whole, of which one of two containers is throttled, is raised, and replayed
// as it was, also under other names.
func TestWholePodsReplay(t *testing.T) {
	rec, cfg := record.NewRecorder(recordings.Everything), round.DefaultConfig()
	var state round.State
	raised := false
	for i := range 40 {
		at := time.Duration(i) * time.Second
		in := wholeInput(recordings.Noon.Add(at), at, uint64(i))
		rec.Begin(in.Now, cfg, &state)
		var out round.Output
		state, out = round.Run(cfg, state, in)
		for _, d := range out.Decisions {
			raised = raised || d.Limit > 1000 && d.ThrottleRatio > 0.8 && d.Usage > 900
		}
		rec.Round(in, []record.Name{{Namespace: "shop", Name: "web"}}, &out)
	}
	if !raised {
		t.Error("the pod is not raised for the throttling of its container")
	}
	original := recordings.Of(t, rec)
	renamed, err := original.Rename(func(s string) string { return "other-" + s }, func(s string) string { return s })
	if err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*record.Recording{"as recorded": original, "renamed": renamed} {
		sum, err := replay.Play(r, func(*replay.Frame) error { return nil })
		if err != nil || sum.Others > 0 && what == "as recorded" || sum.Decisions == 0 {
			t.Errorf("%s: %+v, first %v, %v", what, sum, sum.First, err)
		}
	}
	odd := wholeInput(recordings.Noon, 0, 0)
	odd.Pods[0].Containers = append(odd.Pods[0].Containers, odd.Pods[0].Containers[0])
	r := record0()
	r.Round(odd, nil, &round.Output{})
	if _, err := replay.Play(recordings.Of(t, r), func(*replay.Frame) error { return nil }); err == nil {
		t.Error("a whole pod of two containers is replayed")
	}
}

// wholeInput is that of a node with a pod that uses its own limit of 1000m up, of which one container shows the throttling.
func wholeInput(now time.Time, at time.Duration, second uint64) round.Input {
	c := demand.Container{Name: "spec.resources", ID: "web", Request: 500, Declared: 1000, Limit: 1000}.Within(0, 4000)
	group := func(id string, s kernel.Stat) kernel.Group {
		q := kernel.Quota{Limit: 100 * time.Millisecond, Period: 100 * time.Millisecond}
		return kernel.Group{ID: id, Found: true, At: now, Quota: q, Stat: s}
	}
	in := round.Input{Now: now, Node: round.Node{Capacity: 4000, Allocatable: 4000}, Pods: []round.PodInput{
		{Pod: demand.Pod{UID: "web", Budget: 500, Containers: []demand.Container{c}}},
	}}
	in.Sample = kernel.Sample{
		Node: kernel.NodeSample{At: now, Usage: kernel.KnownTotal(at), Kubepods: kernel.KnownTotal(at), Idle: kernel.KnownTotal(3 * at)},
		Pods: []kernel.PodSample{{Pod: "web", Own: group("spec.resources", kernel.Stat{Usage: at, Periods: 10 * second}), Containers: []kernel.Group{
			group("app", kernel.Stat{Usage: at * 9 / 10, Periods: 10 * second, Throttled: 9 * second}),
			group("log", kernel.Stat{Usage: at / 10, Periods: 10 * second}),
		}}},
	}
	return in
}

package incident

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/recordings"
	"github.com/mbcas/mbcas/internal/whatif"
)

// recorded is the recording of a simulated node.
func recorded(t *testing.T, cfg mbcas.Config, setup sim.Setup) *record.Recording {
	t.Helper()
	cfg.Record = record.NewRecorder(recordings.Everything)
	setup.Seed = 1
	sim.Run(setup, mbcas.New(cfg))
	return recordings.Of(t, cfg.Record)
}

func of(t *testing.T, rec *record.Recording) *Incident {
	t.Helper()
	i, err := Of(rec)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func pod(t *testing.T, i *Incident, name string) *Pod {
	t.Helper()
	for k := range i.Pods {
		if i.Pods[k].Name.String() == name {
			return &i.Pods[k]
		}
	}
	t.Fatalf("there is no pod %s", name)
	return nil
}

// TestDemand: a free pod demands what it used; a capped one more than that; pods are there while they
// ran, and unmanaged ones stay so.
func TestDemand(t *testing.T) {
	i := of(t, recorded(t, mbcas.DefaultConfig(), sim.Setup{
		Machine: sim.Machine{Cores: 4}, Length: 100 * time.Second, Pods: []sim.PodSpec{
			{Name: "system", System: true, Spin: load.Constant(0.6)},
			{Name: "free", Namespace: "shop", Request: 500, Limit: 2000, Priority: 4000, Requests: load.Requests{
				Rate: load.Constant(50), ServiceTime: 10 * time.Millisecond, EvenlySpaced: true,
			}},
			{Name: "capped", Namespace: "shop", Request: 100, Limit: 500, Spin: load.Constant(1),
				Constraints: sim.Constraints{Ceiling: 500}},
			{Name: "out", Namespace: "shop", Request: 100, Limit: 300, OptOut: true},
			{Name: "late", Namespace: "shop", Request: 100, Limit: 300, Spin: load.Constant(0),
				Start: 40 * time.Second, End: 70 * time.Second},
		},
	}))
	if i.Cores != 4 || i.Allocatable != 4000 || i.Seconds != 99 ||
		i.Recommend || i.Interval != time.Second || len(i.Pods) != 4 || i.System < 900 || i.System > 1000 {
		t.Errorf("%d cores, %v allocatable, %v of system, %d s, recommend %v, every %v, %d pods",
			i.Cores, i.Allocatable, i.System, i.Seconds, i.Recommend, i.Interval, len(i.Pods))
	}
	mean := func(p *Pod, of func(Point) cpu.Milli) float64 {
		sum := 0.0
		for _, point := range p.Points {
			sum += of(point).Cores() / float64(len(p.Points))
		}
		return sum
	}
	demand, usage := func(p Point) cpu.Milli { return p.Demand }, func(p Point) cpu.Milli { return p.Usage }
	free, capped, late := pod(t, i, "shop/free"), pod(t, i, "shop/capped"), pod(t, i, "shop/late")
	if d, u := mean(free, demand), mean(free, usage); d != u || math.Abs(d-0.5) > 0.02 ||
		free.Hindered > 0 || free.Priority < 3900 || free.Priority > 4100 {
		t.Errorf("free demands %v, used %v, hindered %v, priority %d", d, u, free.Hindered, free.Priority)
	}
	if d, u := mean(capped, demand), mean(capped, usage); d < 1.3*u || math.Abs(u-0.5) > 0.02 ||
		capped.Hindered < 0.9 || capped.Ceiling != 500 {
		t.Errorf("capped demands %v, used %v, hindered %v, ceiling %v", d, u, capped.Hindered, capped.Ceiling)
	}
	if out := pod(t, i, "shop/out"); out.Managed || out.Declared != 300 || !free.Managed {
		t.Errorf("out is %+v", out.Name)
	}
	if start, end := late.life(); start < 39 || start > 42 || end < 68 || end > 71 {
		t.Errorf("late is there from %d to %d", start, end)
	}
}

// TestGaps: the longest time without a gap is taken; too short a recording, and none, are refused.
func TestGaps(t *testing.T) {
	rec := recordings.Played(t, "uncontended-bursts", mbcas.DefaultConfig(), 5*time.Minute)
	minutes := rec.Minutes
	rec.Minutes = append(minutes[:1:1], minutes[2:]...)
	i := of(t, rec)
	if got := i.From.Sub(minutes[0].From); got != 2*time.Minute || i.Seconds != 179 {
		t.Errorf("it begins after %v and takes %d s", got, i.Seconds)
	}
	rec.Minutes = nil
	if _, err := Of(rec); err == nil || !strings.Contains(err.Error(), "no round") {
		t.Errorf("empty: %v", err)
	}
	brief := recordings.Played(t, "duel", mbcas.DefaultConfig(), 15*time.Second)
	if _, err := Of(brief); err == nil || !strings.Contains(err.Error(), "at least 20 s can be played") {
		t.Errorf("short: %v", err)
	}
}

// TestFilesAreAScenario: whatever the names of pods are, the files are read as a scenario whose loads
// are those of the recording.
func TestFilesAreAScenario(t *testing.T) {
	i := of(t, recordings.Played(t, "pod-churn", mbcas.DefaultConfig(), 4*time.Minute))
	for k, name := range []string{
		"a.b_c", "A.b_c", "\x1b[31m\nname: x", strings.Repeat("long", 30), strings.Repeat("long", 31), "---", "",
	} {
		i.Pods[k].Name = record.Name{Namespace: "shop", Name: name}
	}
	taken := map[string]bool{}
	for k := range i.Pods {
		i.Pods[k].Alias = alias(i.Pods[k].Name, taken)
	}
	i.Node = "node\n- \"x"
	s, err := i.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != len(i.Pods) || len(taken) != len(i.Pods) || s.Length != time.Duration(i.Seconds)*time.Second ||
		s.WarmUp != warmUp {
		t.Errorf("%d pods of %d, %v", len(s.Pods), len(i.Pods), s.Length)
	}
	spins, serves := 0, 0
	for k, p := range s.Setup(0, 1).Pods[:len(i.Pods)] {
		of := &i.Pods[k]
		start, end := of.life()
		for at := start; at < end; at++ {
			want := of.Points[at].Demand.Cores()
			var got float64
			when := time.Duration(at) * time.Second
			if of.spins() {
				spins++
				got, _ = p.Spin.At(when)
				want = max(0, math.Ceil(want-0.05))
			} else {
				serves++
				got, _ = p.Requests.Rate.At(when)
				got *= p.Requests.ServiceTime.Seconds()
			}
			if math.Abs(got-want) > 1e-9 {
				t.Fatalf("%s demands %v in second %d, want %v", p.Name, got, at, want)
			}
		}
	}
	if spins == 0 || serves == 0 {
		t.Errorf("%d seconds of threads and %d of requests", spins, serves)
	}
	for name := range i.Files() {
		if strings.ContainsAny(name, "/\\\n") {
			t.Errorf("a file is named %q", name)
		}
	}
}

func play(t *testing.T, rec *record.Recording, c whatif.Change) Played {
	t.Helper()
	p, err := Play(rec, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlayedTellsItsError: without a change both runs are one; the error is that of its figures, small
// where nothing hindered the pods, and printed with each answer.
func TestPlayedTellsItsError(t *testing.T) {
	free := play(t, recordings.Played(t, "uncontended-bursts", mbcas.DefaultConfig(), 5*time.Minute), whatif.Change{})
	scarce := play(t, recordings.Played(t, "requests-that-tell", mbcas.DefaultConfig(), 5*time.Minute), whatif.Change{})
	for name, p := range map[string]Played{"free": free, "scarce": scarce} {
		used, apart := 0.0, 0.0
		for _, pod := range p.Pods {
			if pod.Before != pod.After || pod.Recorded.Seconds < 200 {
				t.Errorf("%s: %+v", name, pod)
			}
			used += pod.Recorded.Usage.Cores()
			apart += math.Abs(pod.Recorded.Usage.Cores() - pod.Before.Usage.Cores())
		}
		if want := apart / used; math.Abs(p.Error.Usage-want) > 0.01 {
			t.Errorf("%s: the error of usage is %v, want %v", name, p.Error.Usage, want)
		}
		within := fmt.Sprintf("recorded usage of the pods within %.0f %%", 100*p.Error.Usage)
		if text := p.Text(); !strings.Contains(text, within) || !strings.Contains(text, "PLAYED by the simulator") {
			t.Errorf("%s", text)
		}
	}
	if free.Error.Usage > 0.05 || free.Estimated > 0.3 {
		t.Errorf("free: error %+v, %v estimated", free.Error, free.Estimated)
	}
	if scarce.Error.Usage > 0.1 || scarce.Error.Throttled > 0.1 || scarce.Estimated < 0.1 {
		t.Errorf("scarce: error %+v, %v estimated", scarce.Error, scarce.Estimated)
	}
}

// TestPlayedChanges: more budget gives a pod more CPU, a highest limit less, and without MBCAS limits
// are as declared.
func TestPlayedChanges(t *testing.T) {
	rec := recordings.Played(t, "requests-that-tell", mbcas.DefaultConfig(), 150*time.Second)
	find := func(p Played, name string) PlayedPod {
		for _, pod := range p.Pods {
			if pod.Name.String() == name {
				return pod
			}
		}
		t.Fatalf("there is no pod %s", name)
		return PlayedPod{}
	}
	high := int32(1_000_000)
	p := play(t, rec, whatif.Change{Pods: []whatif.PodChange{{Pattern: "*/hog-1", Priority: &high}}})
	hog, other := find(p, "default/hog-1"), find(p, "default/hog-2")
	if p.Matched != 1 || hog.After.Usage <= hog.Before.Usage || other.After.Usage >= other.Before.Usage {
		t.Errorf("a priority:\n%s", p.Text())
	}
	p = play(t, rec, whatif.Change{Pods: []whatif.PodChange{{Pattern: "*/hog-?", MaxCPU: 300}}})
	if hog := find(p, "default/hog-1"); p.Matched != 3 || hog.After.Usage > 310 || hog.Before.Usage < 320 {
		t.Errorf("a highest limit:\n%s", p.Text())
	}
	p = play(t, rec, whatif.Change{Off: true})
	if hog := find(p, "default/hog-1"); hog.After.Limit != 4000 || hog.Before.Limit >= 4000 || p.Matched != 0 {
		t.Errorf("off:\n%s", p.Text())
	}
	p = play(t, rec, whatif.Change{Pods: []whatif.PodChange{{Pattern: "other/*", OptOut: true}}})
	if p.Matched != 0 || p.Changed {
		t.Errorf("no such pod: %+v", p)
	}
}

// TestRecommended: a recording of limits that were decided and not applied is played so.
func TestRecommended(t *testing.T) {
	cfg := mbcas.DefaultConfig()
	cfg.Recommend = true
	rec := recordings.Played(t, "requests-that-tell", cfg, 150*time.Second)
	if i := of(t, rec); !i.Recommend {
		t.Error("it is taken for enforced")
	}
	for _, pod := range play(t, rec, whatif.Change{}).Pods {
		if pod.Before.Limit != pod.Recorded.Limit {
			t.Errorf("%s: limit %v, recorded %v", pod.Name, pod.Before.Limit, pod.Recorded.Limit)
		}
	}
}

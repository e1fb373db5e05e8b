package plan

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

func TestPlanIsSound(t *testing.T) {
	p := Default(false, true)
	for _, s := range p.Situations {
		rollout := slices.ContainsFunc(s.Workloads, func(w Workload) bool { return w.Name == s.Rollout && !w.Batch() })
		if s.Rollout != "" && !rollout {
			t.Errorf("%s updates %q, which is none of its services", s.Name, s.Rollout)
		}
		var requests cpu.Milli
		services := 0
		for _, w := range s.Workloads {
			requests += w.Request
			if w.Limit <= w.Request {
				t.Errorf("%s/%s: limit %v, request %v: the market cannot manage it", s.Name, w.Name, w.Limit, w.Request)
			}
			if w.Batch() == (len(w.Load) > 0) {
				t.Errorf("%s/%s: want either load or threads", s.Name, w.Name)
			}
			if !w.Batch() {
				services++
			}
		}
		if requests > Allocatable {
			t.Errorf("%s: requests %v do not fit %v", s.Name, requests, Allocatable)
		}
		if services == 0 || s.Event <= 0 || s.Event >= s.Length || len(s.Policies) < 2 {
			t.Errorf("%s: %d services, event at %v of %v, policies %v", s.Name, services, s.Event, s.Length, s.Policies)
		}
		for _, name := range s.Policies {
			if _, ok := p.Policy(name); !ok {
				t.Errorf("%s: no policy %q", s.Name, name)
			}
		}
	}
	if p.Repeats < 5 {
		t.Errorf("%d repeats: too few for an interval", p.Repeats)
	}
}

func TestInterleaved(t *testing.T) {
	p := Default(false, false)
	cells := p.Cells()
	var orders [][]string
	for repeat := 1; repeat <= p.Repeats; repeat++ {
		var order []string
		for _, c := range cells {
			if c.Repeat == repeat {
				order = append(order, c.Name()[:len(c.Name())-1])
			}
		}
		for _, before := range orders {
			if slices.Equal(before, order) {
				t.Errorf("repeat %d has the order of another", repeat)
			}
		}
		orders = append(orders, order)
	}
	for i := 1; i < len(cells); i++ {
		if cells[i].Situation.Name == cells[i-1].Situation.Name && cells[i].Policy.Name == cells[i-1].Policy.Name {
			t.Errorf("%s follows %s: no other policy between them", cells[i].Name(), cells[i-1].Name())
		}
	}
	seen := map[string]bool{}
	for _, c := range cells {
		if seen[c.Name()] {
			t.Errorf("%s is there twice", c.Name())
		}
		seen[c.Name()] = true
	}
}

// TestTakes: a tenth of the promised time is left for cells that take longer or are played again.
func TestTakes(t *testing.T) {
	for quick, promised := range map[bool]time.Duration{false: 3 * time.Hour, true: 30 * time.Minute} {
		p := Default(quick, false)
		if got := p.Takes(); got > promised*9/10 {
			t.Errorf("quick %v: %d cells take %v, want at most nine tenths of %v", quick, len(p.Cells()), got, promised)
		}
	}
}

func TestPartsAreAll(t *testing.T) {
	p := Default(false, false)
	for what, name := range map[string]func(Cell) string{
		"situations": func(c Cell) string { return c.Situation.Name },
		"policies":   func(c Cell) string { return c.Policy.Name },
	} {
		parts := p.Parts(name)
		var takes time.Duration
		cells := 0
		for _, x := range parts {
			takes, cells = takes+x.Takes, cells+x.Cells
		}
		if takes != p.Takes() || cells != len(p.Cells()) || len(parts) < 3 || parts[0].Takes < parts[1].Takes {
			t.Errorf("%s: %+v are %v and %d cells, want %v and %d, the longest first",
				what, parts, takes, cells, p.Takes(), len(p.Cells()))
		}
	}
}

// TestArrivalsDoNotDependOnThePolicy: and keys do.
func TestArrivalsDoNotDependOnThePolicy(t *testing.T) {
	p := Default(false, false)
	s := p.Situations[0]
	a, b := Cell{s, p.Policies[0], 1}, Cell{s, p.Policies[1], 1}
	again := p.Key(Cell{s, p.Policies[0], 1}, 1)
	if p.SeedOf(a, "web") != p.SeedOf(b, "web") || p.SeedOf(a, "web") == p.SeedOf(a, "nginx") {
		t.Error("seeds depend on the policy, or not on the service")
	}
	if p.Key(a, nil) == p.Key(b, nil) || p.Key(a, 1) == p.Key(a, 2) || p.Key(a, 1) != again {
		t.Error("keys do not tell cells and calibrations apart")
	}
	said := a
	said.Policy.Settings, said.Situation.Question = "said in other words", "Asked in other words."
	if p.Key(a, 1) != p.Key(said, 1) {
		t.Error("keys depend on prose")
	}
}

// TestEveryGapHasAReason: and what is played has none.
func TestEveryGapHasAReason(t *testing.T) {
	for _, quick := range []bool{false, true} {
		p := Default(quick, false)
		for _, s := range p.Situations {
			for _, x := range p.Policies {
				if why := p.WhyNot(s, x.Name); (why == "") != slices.Contains(s.Policies, x.Name) {
					t.Errorf("%s, %s: %q", s.Name, x.Name, why)
				}
			}
		}
	}
}

// times is how often a situation is played under a policy.
func (p Plan) times(situation, policy string) (n int) {
	for _, c := range p.Cells() {
		if c.Situation.Name == situation && c.Policy.Name == policy {
			n++
		}
	}
	return n
}

// TestRivalsArePlayed: where a priority tells what matters, and requests mislead or do not suffice.
func TestRivalsArePlayed(t *testing.T) {
	all := []string{Declared, None, Static, VPAInPlace, VPATuned, VPARecreate, HPA, HPAMBCAS}
	for _, x := range []struct {
		more      bool
		situation string
		policies  []string
	}{
		{false, "requests-mislead", []string{VPATuned, HPA, Static}},
		{false, "everybody-bursts", []string{HPA, Static}},
		{true, "requests-mislead", all}, {true, "everybody-bursts", all},
	} {
		p := Default(false, x.more)
		for _, policy := range x.policies {
			if n := p.times(x.situation, policy); n != p.Repeats {
				t.Errorf("%s under %s is played %d times, want %d", x.situation, policy, n, p.Repeats)
			}
		}
	}
}

// TestWeightsArePlayed: beside MBCAS without them, wherever a neighbour saturates; the quick version has one of these.
func TestWeightsArePlayed(t *testing.T) {
	for _, x := range []struct {
		quick, more bool
		situations  []string
	}{
		{false, false, []string{"requests-tell", "requests-mislead", "everybody-bursts"}},
		{false, true, []string{
			"requests-tell", "requests-mislead", "no-priority", "everybody-bursts", "rolling-update",
		}},
		{true, false, []string{"requests-mislead"}},
	} {
		p := Default(x.quick, x.more)
		for _, s := range p.Situations {
			want := 0
			if slices.Contains(x.situations, s.Name) {
				want = p.Repeats
			}
			with, without := p.times(s.Name, Weights), p.times(s.Name, MBCAS)
			if with != want || without != p.Repeats {
				t.Errorf("quick %v, more %v: %s is played %d times with weights and %d times without, want %d and %d",
					x.quick, x.more, s.Name, with, without, want, p.Repeats)
			}
		}
	}
	w, ok := Default(false, false).Policy(Weights)
	if !ok || !w.Weights || !w.MBCAS || !w.Acts() {
		t.Errorf("%+v: want MBCAS with weights", w)
	}
}

// TestCapsFit: a static cap and what the services use after the event fit two cores with room for the system.
func TestCapsFit(t *testing.T) {
	const cores, system = 2000.0, 200
	for _, s := range Default(false, true).Situations {
		used, capped := 0.0, 0.0
		for _, w := range s.Workloads {
			if w.Batch() {
				capped = float64(w.Cap)
			} else {
				used += 1000 * w.Load[len(w.Load)-1].Cores
			}
		}
		if capped > 0 && math.Abs(used+capped+system-cores) > 1 {
			t.Errorf("%s: services use %vm, the cap is %vm: want %vm in all, %dm of it for the system",
				s.Name, used, capped, cores, system)
		}
		if capped == 0 && s.Workloads[len(s.Workloads)-1].Batch() {
			t.Errorf("%s: its batch job has no cap", s.Name)
		}
	}
}

// TestLoadBefore: policies that do not learn have the same warm-up; nothing is played before where the reaction counts.
func TestLoadBefore(t *testing.T) {
	for _, c := range Default(false, true).Cells() {
		want := Warm
		if c.Policy.Learning > 0 && !c.Situation.Cold {
			want = c.Policy.Learning
		}
		if c.Load() != want || c.Policy.Acts() && c.Age()+c.Situation.Event < MinAge || c.Age() < c.Load() {
			t.Errorf("%s: load for %v, want %v; age %v before the event", c.Name(), c.Load(), want, c.Age())
		}
	}
}

package eval

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim/rival"
	"github.com/mbcas/mbcas/internal/sim/scenario"
)

func named(t *testing.T, name string) rival.Named {
	t.Helper()
	all := Policies()
	i := slices.IndexFunc(all, func(p rival.Named) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no policy %q", name)
	}
	return all[i]
}

func TestPoliciesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Policies() {
		if p.Name == "" || p.About == "" || seen[p.Name] || p.New() == nil {
			t.Errorf("policy %q (%q) has no name of its own, says nothing, or does nothing", p.Name, p.About)
		}
		seen[p.Name] = true
	}
	for _, name := range []string{Default, Static, NoLimits, "max-min", "mbcas-no-trim", "mbcas-no-smoothing", "mbcas-conservative"} {
		if !seen[name] {
			t.Errorf("no policy %q", name)
		}
	}
}

// TestPlay: what a policy does shows in the measures, and the same run gives the same figures.
func TestPlay(t *testing.T) {
	duel, err := scenario.Find("duel", "")
	if err != nil {
		t.Fatal(err)
	}
	duel.Length, duel.WarmUp = 30*time.Second, 10*time.Second
	static := Play(duel, named(t, Static), 1, 0, true)
	if again := Play(duel, named(t, Static), 1, 0, true); !reflect.DeepEqual(static, again) {
		t.Errorf("the same run gave other figures:\n%v\n%v", static.Values, again.Values)
	}
	free := Play(duel, named(t, NoLimits), 1, 0, false)
	if static.Values["changes"] != 0 || free.Values["throttled-%"] != 0 || free.Values["util-%"] < 99 {
		t.Errorf("static changed %v limits; without limits %v %% are throttled and %v %% used", static.Values["changes"], free.Values["throttled-%"], free.Values["util-%"])
	}
	if free.Series != nil || static.Series == nil || len(static.Series.Pods) != 2 || len(static.Series.Idle) != 30 {
		t.Errorf("series are %+v and %+v, want 30 points of two pods for the one that asked", static.Series, free.Series)
	}
}

func TestLengthIsCut(t *testing.T) {
	s, err := scenario.Find("steady", "")
	if err != nil {
		t.Fatal(err)
	}
	o := Play(s, named(t, Static), 1, 10*time.Second, true) // at least as long as the warm-up again
	if got := time.Duration(len(o.Series.Idle)) * time.Duration(o.Series.Step) * time.Second; got != 2*s.WarmUp {
		t.Errorf("the run took %v, want %v", got, 2*s.WarmUp)
	}
}

func TestSeriesIsThin(t *testing.T) {
	r := small()
	n := &r.Nodes[0]
	for len(n.Result.Idle) < 1000 {
		n.Result.Idle = append(n.Result.Idle, 0)
		for i := range n.Result.Pods {
			p := &n.Result.Pods[i]
			p.Points = append(p.Points, p.Points[len(p.Points)%10])
		}
	}
	n.Setup.Length = 1000 * time.Second
	s := r.Outcome(Key{}, true).Series
	if len(s.Idle) != 200 || s.Step != 5 || len(s.Pods) != 2 || s.Pods[0].Pod != "hog" || s.Pods[1].Limit[0] != cpu.Milli(400).Cores() {
		t.Errorf("%d points of %v s for %d pods, the first %q", len(s.Idle), s.Step, len(s.Pods), s.Pods[0].Pod)
	}
}

package experiment

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func named(t *testing.T, name string) baseline.Policy {
	t.Helper()
	all := Policies()
	i := slices.IndexFunc(all, func(p baseline.Policy) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no policy %q", name)
	}
	return all[i]
}

func TestPoliciesHaveNames(t *testing.T) {
	seen, name := map[string]bool{}, regexp.MustCompile(`^[a-z0-9.-]+$`)
	for _, p := range Policies() {
		if !name.MatchString(p.Name) || p.Description == "" || seen[p.Name] || p.New() == nil {
			t.Errorf("policy %q (%q) has no name of its own in lower case, says nothing, or does nothing", p.Name, p.Description)
		}
		seen[p.Name] = true
	}
	for _, name := range []string{Default, Static, NoLimits, "max-min", "mbcas-no-smoothing", "mbcas-conservative"} {
		if !seen[name] {
			t.Errorf("no policy %q", name)
		}
	}
}

// TestRunScenario: what a policy does shows in the measures, and the same run gives the same
// figures.
func TestRunScenario(t *testing.T) {
	duel, err := scenario.Find("duel")
	must.Succeed(t, err)
	duel.Length, duel.WarmUp = 30*time.Second, 10*time.Second
	static := RunScenario(duel, named(t, Static), 1, 0, true)
	if again := RunScenario(duel, named(t, Static), 1, 0, true); !reflect.DeepEqual(static, again) {
		t.Errorf("the same run gave other figures:\n%v\n%v", static.Values, again.Values)
	}
	free := RunScenario(duel, named(t, NoLimits), 1, 0, false)
	if static.Values["changes"] != 0 || free.Values["throttled-%"] != 0 || free.Values["util-%"] < 99 {
		t.Errorf("static changed %v limits; without limits %v %% are throttled and %v %% used", static.Values["changes"], free.Values["throttled-%"], free.Values["util-%"])
	}
	if free.Series != nil || static.Series == nil || len(static.Series.Pods) != 2 || len(static.Series.Idle) != 30 {
		t.Errorf("series are %+v and %+v, want 30 points of two pods for the one that asked", static.Series, free.Series)
	}
}

// TestEventsCount: where the file says that load rises, reactions are measured, and nowhere else.
func TestEventsCount(t *testing.T) {
	for rate, want := range map[string]float64{
		"{ramp: {from: 20, to: 200, start: 10s, end: 10100ms}}":                 math.NaN(),
		"{ramp: {from: 20, to: 200, start: 10s, end: 10100ms}}, loadSteps: 10s": 10, // the limit stays, so it is the time to the end
		"{step: {before: 20, after: 200, at: 10s}}":                             10,
		"{step: {before: 20, after: 200, at: 10s}}, loadSteps: 15s":             math.NaN(),
	} {
		rate, events, _ := strings.Cut(rate, ", loadSteps: ")
		s, err := scenario.Parse("f.yaml", []byte(`name: t
description: a test
node: {cores: 4}
length: 20s
warmUp: 5s
loadSteps: [`+events+`]
pods:
  - {name: web, role: service, request: 200m, limit: 500m, load: {requests: {serviceTime: 10ms, rate: `+rate+`}}}
`), ".")
		must.Succeed(t, err)
		got, measured := RunScenario(s, named(t, Static), 1, 0, false).Values["react-worst-s"]
		if measured == math.IsNaN(want) || measured && got != want {
			t.Errorf("%s, events %q: reaction %v s (measured: %t), want %v", rate, events, got, measured, want)
		}
	}
}

func TestLengthIsCut(t *testing.T) {
	s, err := scenario.Find("steady")
	must.Succeed(t, err)
	o := RunScenario(s, named(t, Static), 1, 10*time.Second, true) // at least as long as the warm-up again
	if got := time.Duration(len(o.Series.Idle)) * time.Duration(o.Series.Step) * time.Second; got != 2*s.WarmUp {
		t.Errorf("the run took %v, want %v", got, 2*s.WarmUp)
	}
}

func TestSeriesIsThinned(t *testing.T) {
	r := smallRun()
	n := &r.Nodes[0]
	for len(n.Result.Idle) < 1000 {
		n.Result.Idle = append(n.Result.Idle, 0)
		for i := range n.Result.Pods {
			p := &n.Result.Pods[i]
			p.Points = append(p.Points, p.Points[len(p.Points)%10])
		}
	}
	n.Setup.Length = 1000 * time.Second
	s := r.Summarize(Key{}, true).Series
	if len(s.Idle) != 200 || s.Step != 5 || len(s.Pods) != 2 || s.Pods[0].Pod != "batch" || s.Pods[1].Limit[0] != cpu.Milli(400).Cores() {
		t.Errorf("%d points of %v s for %d pods, the first %q", len(s.Idle), s.Step, len(s.Pods), s.Pods[0].Pod)
	}
}

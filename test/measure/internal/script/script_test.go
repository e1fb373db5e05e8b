package script

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

func open(t *testing.T, name string) *Script {
	t.Helper()
	s, err := Open(scripts.Files, name)
	must.Succeed(t, err)
	return s
}

func TestShippedScripts(t *testing.T) {
	for _, name := range []string{"demo", "reaction", "quota", "hpa", "requests-tell"} {
		s := open(t, name)
		for _, r := range s.Runs {
			plan := s.Plan(r.Name, true, 1)
			if len(plan.Services()) == 0 || plan[0].From != 0 || plan.At(plan.Length()+time.Hour).To != plan.Length() {
				t.Errorf("%s, run %s: %+v", name, r.Name, plan)
			}
		}
	}
	demo, sum := open(t, "demo"), time.Duration(0)
	for _, r := range demo.Runs {
		sum += demo.Plan(r.Name, false, 1).Length()
	}
	if sum > 300*time.Second || demo.React.Steps(false) != 0 {
		t.Errorf("the short demo plays %v; cluster, pods and clean-up need the rest of 8 minutes", sum)
	}
	if r := open(t, "reaction").React; r.Steps(false)*len(r.Kinds) < 40 || len(r.Kinds) != 4 {
		t.Errorf("%d reactions of each of the kinds %v, want 40 of four", r.Steps(false), r.Kinds)
	}
	steady, ok := demo.Plan("mbcas", true, 1).Phase("steady")
	if !ok || steady.To-steady.From != 5*time.Minute || demo.React.Steps(true) < 20 {
		t.Errorf("the full demo measures %v of steady load and %d reactions", steady, demo.React.Steps(true))
	}
	requests := 0
	for _, w := range demo.Workloads {
		requests += int(w.Request)
	}
	if requests > 1500 {
		t.Errorf("requests add up to %dm: beside MBCAS they do not fit 1600m", requests)
	}
}

func TestArrivalsDependOnSeedAlone(t *testing.T) {
	s := open(t, "demo")
	static, mbcas := s.Plan("static", false, 1), s.Plan("mbcas", false, 1)
	a, b := static.Arrivals(1, "checkout"), mbcas.Arrivals(1, "checkout")
	if len(a) == 0 || len(b) < len(a) || !slices.Equal(a, b[:len(a)]) {
		t.Error("two runs get other requests")
	}
	if slices.Equal(a, static.Arrivals(2, "checkout")) {
		t.Error("two seeds give the same requests")
	}
	both := Plan{{Phase: Phase{Rates: map[string]float64{"x": 5, "y": 5}}, To: time.Hour}}
	if slices.Equal(both.Arrivals(1, "x"), both.Arrivals(1, "y")) {
		t.Error("two services share their requests")
	}
}

// TestMovingLoad: in every turn as many workloads are busy as the script says, and not always the
// same ones.
func TestMovingLoad(t *testing.T) {
	s := open(t, "quota")
	plan := s.Plan("mbcas", true, 1)
	if len(plan) != 20 || len(plan.Phases()) != 1 || len(plan.Services()) != 20 {
		t.Fatalf("%d turns of %d phases for %d services", len(plan), len(plan.Phases()), len(plan.Services()))
	}
	for i, turn := range plan {
		busy := 0
		for _, rate := range turn.Rates {
			if rate > 1 {
				busy++
			}
		}
		if busy != 4 || i > 0 && maps.Equal(turn.Rates, plan[i-1].Rates) {
			t.Errorf("turn %d: %d busy: %v", i, busy, turn.Rates)
		}
	}
	if p, ok := plan.Phase("moving load"); !ok || p.To-p.From != 10*time.Minute {
		t.Errorf("%+v, %v", p, ok)
	}
	if other := s.Plan("mbcas", true, 2)[0].Rates; other["tenant-1"] == 0 || maps.Equal(other, plan[0].Rates) {
		t.Error("two seeds give the same load")
	}
}

func TestSpansAreJoined(t *testing.T) {
	plan := open(t, "demo").Plan("mbcas", true, 1)
	spans := plan.Spans("hog")
	if len(spans) != 3 {
		t.Fatalf("hog spins in %v", spans)
	}
	steady, _ := plan.Phase("steady")
	settle, _ := plan.Phase("settle")
	if spans[2] != [2]time.Duration{settle.From, steady.To} {
		t.Errorf("hog spins in %v, want settle and steady joined", spans)
	}
	if len(plan.Spans("checkout")) != 0 {
		t.Error("a service spins")
	}
}

func TestMistakes(t *testing.T) {
	text, err := scripts.Files.ReadFile("demo.yaml")
	must.Succeed(t, err)
	for _, c := range [][3]string{
		{"restore: true", "restored: true", "field restored not found"},
		{"full: 15s, rates", "full: 1s, rates", "phase base: short 4s, full 1s"},
		{"spin: [small-hog]", "spin: [checkout]", `phase small hog: spin: "checkout" is none of besteffort`},
		{"rates: {checkout-plain: 48", "rates: {check: 48", `phase no class: rates: "check" is none of checkout`},
		{"mode: enforce", "mode: on", `run mbcas: mode: "on" is none of enforce, off`},
		{"priorityClass: shop-normal", "priorityClass: x", `workload search: priorityClass: "x"`},
		{"namespace: batch, kind: spin", "namespace: y, kind: spin", `workload hog: namespace: "y"`},
		{"name: recover again", "name: recover", "phase recover: run mbcas plays it again after another phase"},
		{"full: 10s, runs: [mbcas]", "full: 10s, runs: [z]", `phase recover again: runs: "z" is none of`},
		{"over: no_limit, service: checkout, phase: big hog", "over: no, phase: big", `over: "no" is none of mbcas`},
		{"title: No CPU limits, mode: \"off\"", "mode: \"off\", keepPods: true", "run no_limit: keepPods"},
	} {
		if !strings.Contains(string(text), c[0]) {
			t.Errorf("the demo has no %q", c[0])
		}
		path := filepath.Join(t.TempDir(), "own.yaml")
		must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(string(text), c[0], c[1], 1)), 0o644))
		_, err := Open(scripts.Files, path)
		if err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: error %v, want %q", c[1], err, c[2])
		}
	}
	for change, want := range map[[2]string]string{
		{"beside: beside", "beside: search"}:              `reaction: beside: "search" is none of beside, hog`,
		{"  hogLimit: 1200m\n", ""}:                       "other's decrease: want beside and hogLimit",
		{"new pod]", "old pod]"}:                          `reaction: kind: "old pod" is none of`,
		{"limit: 300m, threads: 1,", "limit: 300m,"}:      "want a hog, and a pod with threads and a limit",
		{"kinds: [freed, own decrease,", "kinds: [free,"}: `reaction: kind: "free" is none of`,
	} {
		text, err := scripts.Files.ReadFile("reaction.yaml")
		if err != nil || !strings.Contains(string(text), change[0]) {
			t.Fatalf("%v: no %q", err, change[0])
		}
		if _, err := Read([]byte(strings.Replace(string(text), change[0], change[1], 1))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", change[1], err, want)
		}
	}
	_, err = Open(scripts.Files, "opera")
	if err == nil || !strings.Contains(err.Error(), "demo, hpa, quota, reaction") {
		t.Errorf("unknown name: %v", err)
	}
}

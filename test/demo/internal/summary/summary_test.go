package summary

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/show"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const keys = `{"kubernetes","node":{"cgroup","psi"},"reaction_s":{"n","p50","p99"},"throttled_ms_per_s":{"static","mbcas"},` +
	`"p99_ms":{"static","mbcas","no_limit"},"steady_changes_per_5min","min_limit_m","resizes","failed","restored_exactly"`

func TestKeys(t *testing.T) {
	for name, f := range map[string]Facts{"nothing": {}, "all": measuredFacts()} {
		text, err := json.Marshal(Judge(f))
		if err != nil {
			t.Fatal(err)
		}
		if got := shape(t, text); !strings.HasPrefix(got, keys) {
			t.Errorf("%s: summary.json begins\n%s\nwant\n%s", name, got[:min(len(got), len(keys))], keys)
		}
	}
}

// shape is JSON without its values.
func shape(t *testing.T, text []byte) string {
	t.Helper()
	type level struct {
		object, value bool // value: the next token is one
		n             int
	}
	var out strings.Builder
	var stack []level
	d := json.NewDecoder(strings.NewReader(string(text)))
	for {
		token, err := d.Token()
		if err != nil {
			return out.String()
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			out.WriteString(delim.String())
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 {
			if top := &stack[n-1]; top.object && !top.value {
				if top.n > 0 {
					out.WriteString(",")
				}
				top.n, top.value = top.n+1, true
				out.WriteString(`"` + token.(string) + `"`)
				continue
			} else {
				top.value = false
			}
		}
		if delim, ok := token.(json.Delim); ok {
			if len(stack) > 0 {
				out.WriteString(":")
			}
			out.WriteString(delim.String())
			stack = append(stack, level{object: delim == '{'})
		}
	}
}

func TestUnmeasured(t *testing.T) {
	s := Judge(Facts{})
	for _, c := range s.Checks {
		if c.Met != nil {
			t.Errorf("%s: met is %v although nothing was measured", c.What, *c.Met)
		}
	}
	if s.P99.MBCAS != nil || s.MinLimit != nil || s.SteadyChanges != nil || s.Restored != nil || s.Reaction.P50 != nil {
		t.Error("a figure is there although nothing was measured")
	}
}

// run is a script played with one latency and one throttled time throughout.
func run(name string, latency time.Duration, throttled float64, limit int64) record.Run {
	r := record.Run{Name: name, Script: script.New(false), Requests: map[string][]traffic.Result{}}
	for second := range int(r.Script.Length() / time.Second) {
		at := time.Duration(second) * time.Second
		for _, service := range script.Services {
			r.Requests[service] = append(r.Requests[service], traffic.Result{At: at, Latency: latency})
			r.Samples = append(r.Samples, record.Sample{At: at, App: service, Throttled: throttled, Limit: limit, Quota: limit})
		}
		r.Node = append(r.Node, record.NodeSample{At: at, Idle: 900})
	}
	return r
}

func measuredFacts() Facts {
	ms := time.Millisecond
	f := Facts{
		Kubernetes: "v1.36.3", Cgroup: "hybrid", PSI: true,
		Runs: map[string]record.Run{
			Static: run(Static, 400*ms, 300, 500), NoLimit: run(NoLimit, 100*ms, 0, 0), MBCAS: run(MBCAS, 10*ms, 3, 1600),
		},
		Changes:      []ledger.Change{{App: "hog", From: 1600, To: 810}},
		Steady:       []ledger.Change{{App: "hog"}, {App: "hog"}, {App: "search"}},
		SteadyWindow: 5 * time.Minute,
		Audit:        audit.Count{Resizes: 7, Failed: 1},
		Restored:     new(true),
	}
	for i := range 20 {
		f.Steps = append(f.Steps, show.Step{From: 540, To: 800, Delay: time.Duration(i+1) * 100 * ms})
	}
	return f
}

func TestJudge(t *testing.T) {
	s := Judge(measuredFacts())
	if missed := s.Missed(); len(missed) != 0 {
		t.Errorf("missed: %q", missed)
	}
	for _, c := range s.Checks {
		if c.Met == nil {
			t.Errorf("%s: not judged", c.What)
		}
	}
	got := []float64{*s.Reaction.P50, *s.Reaction.P99, *s.Throttled.Static, *s.P99.MBCAS, *s.SteadyChanges, *s.MinLimit, *s.IdleInStep}
	if diff := cmp.Diff([]float64{1, 2, 300, 10, 2, 810, 900}, got); diff != "" {
		t.Error(diff)
	}
}

// Each worsening misses exactly its own target.
func TestTargetsDoNotBend(t *testing.T) {
	for what, worsen := range map[string]func(*Facts){
		"steps of which": func(f *Facts) { f.Steps[0].NoStep = true },
		"kernel quota, p50": func(f *Facts) {
			for i := range f.Steps {
				f.Steps[i].Delay = 1600 * time.Millisecond
			}
		},
		"kernel quota, p99":        func(f *Facts) { f.Steps[3].Missed = "no reaction" },
		"step, static":             func(f *Facts) { f.Runs[Static] = run(Static, 400*time.Millisecond, 100, 500) },
		"after the step, mbcas":    func(f *Facts) { f.Runs[MBCAS] = run(MBCAS, 10*time.Millisecond, 20, 1600) },
		"steady load":              func(f *Facts) { f.Steady = append(f.Steady, ledger.Change{App: "hog"}) },
		"lowest limit":             func(f *Facts) { f.Changes = append(f.Changes, ledger.Change{App: "search", To: 90}) },
		"restore":                  func(f *Facts) { f.Restored = new(false) },
		"requests, memory":         func(f *Facts) { f.Faults = []string{"touched"} },
		"step: mbcas / no limits":  func(f *Facts) { f.Runs[MBCAS] = worse(f.Runs[MBCAS], script.Checkout, script.StepUp, 116) },
		"hog: mbcas / no limits":   func(f *Facts) { f.Runs[MBCAS] = worse(f.Runs[MBCAS], script.Checkout, script.WithHog, 11) },
		"importance: mbcas / no l": func(f *Facts) { f.Runs[MBCAS] = worse(f.Runs[MBCAS], script.CheckoutTold, script.WithTold, 101) },
	} {
		f := measuredFacts()
		worsen(&f)
		missed := Judge(f).Missed()
		found := false
		for _, m := range missed {
			found = found || strings.Contains(m, what)
		}
		if !found {
			t.Errorf("%s: missed are %q", what, missed)
		}
	}
}

// worse gives the requests of one phase another latency.
func worse(r record.Run, service, phase string, ms int) record.Run {
	p, _ := r.Script.Phase(phase)
	all := r.Requests[service]
	for i := range all {
		if all[i].At >= p.From && all[i].At < p.To {
			all[i].Latency = time.Duration(ms) * time.Millisecond
		}
	}
	return r
}

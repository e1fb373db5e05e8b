package figures

import (
	"bytes"
	"encoding/json"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/player"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/stages"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// played is a script played in full: every request of a run takes the same time, and every second
// looks the same.
func played(t *testing.T, name string, latency map[string]time.Duration) *Facts {
	t.Helper()
	s, err := script.Open(scripts.Files, name)
	must.Succeed(t, err)
	f := &Facts{
		Script: s, Resizes: 7, Refusals: map[string]int{}, Restored: s.Restore, Guard: guard.Report{Pods: 3},
		Setup: Setup{Full: true, Workloads: []Workload{{Name: "checkout", Priority: 1_000_000, Multiplier: 5.98}}},
	}
	for _, r := range s.Runs {
		run := &recorder.Run{Name: r.Name, Plan: s.Plan(r.Name, true, 1), Start: start}
		run.Requests = map[string][]traffic.Result{}
		for at := time.Second; at <= run.Plan.Length(); at += time.Second {
			for _, w := range s.Workloads {
				x := recorder.Sample{At: at, App: w.Name, Limit: 1600, Quota: 1600, Desired: 2, Ready: 2}
				x.P99 = recorder.Milliseconds(latency[r.Name])
				if r.Name == "static" {
					x.Limit, x.Quota, x.Throttled = w.Limit, w.Limit, 300
				}
				run.Samples = append(run.Samples, x)
			}
			for _, service := range run.Plan.Services() {
				x := traffic.Result{At: at - time.Millisecond, Latency: latency[r.Name]}
				run.Requests[service] = append(run.Requests[service], x)
			}
			run.Node = append(run.Node, recorder.NodeSample{At: at, Idle: 900, Used: 2800, Hard: 3200})
		}
		if s.NewPods != nil {
			run.NewPods = []recorder.NewPod{{Free: 320}}
		}
		f.Runs = append(f.Runs, run)
	}
	if s.React != nil {
		for _, kind := range s.React.Kinds {
			for i := range s.React.Steps(len(s.React.Kinds) == 1) {
				x := player.Reaction{Kind: kind, Step: start, From: 540, To: 800, Seconds: new(float64(i+1) * 0.05)}
				if len(s.React.Kinds) > 1 {
					x.Seconds = new(0.2 + *x.Seconds/10)
				}
				f.Reacted = append(f.Reacted, x)
			}
		}
		f.Divide(&stages.Log{})
	}
	if p, ok := f.Runs[len(f.Runs)-1].Plan.Phase("steady"); ok {
		for range 2 {
			f.Changes = append(f.Changes, recorder.Change{At: start.Add(p.From + time.Second), App: "hog", To: 810})
		}
	}
	return f
}

func good(t *testing.T, name string) *Facts {
	ms := time.Millisecond
	return played(t, name, map[string]time.Duration{
		"static_first": 600 * ms, "static": 600 * ms, "no_limit": 100 * ms, "mbcas": 10 * ms,
	})
}

const keys = `{"kubernetes":"","node":{"cgroup":"","psi":false},"reaction_s":{"n":0,"p50":null,"p99":null},` +
	`"throttled_ms_per_s":{"static":null,"mbcas":null},"p99_ms":{"static":null,"mbcas":null,"no_limit":null},` +
	`"steady_changes_per_5min":null,"min_limit_m":null,"resizes":0,"failed":0,"restored_exactly":null,`

func TestKeys(t *testing.T) {
	for _, name := range []string{"demo", "reaction", "quota", "hpa"} {
		text, err := json.Marshal((&Facts{Script: good(t, name).Script}).Summary("", "", false))
		if err != nil || !strings.HasPrefix(string(text), keys) {
			t.Errorf("%s: %v: summary.json begins\n%s\nwant\n%s", name, err, text[:min(len(text), len(keys))], keys)
		}
	}
}

func TestUnmeasured(t *testing.T) {
	for _, name := range []string{"demo", "reaction", "quota", "hpa"} {
		f := &Facts{Script: good(t, name).Script}
		s := f.Summary("", "", false)
		for _, c := range s.Checks {
			if c.Met != nil {
				t.Errorf("%s: %s: met is %v although nothing was measured", name, c.Title, *c.Met)
			}
		}
		for _, figure := range []*float64{s.P99.MBCAS, s.MinLimit, s.SteadyChanges, s.Reaction.P50} {
			if figure != nil || s.Restored != nil {
				t.Errorf("%s: a figure is there although nothing was measured", name)
			}
		}
	}
}

func missed(f *Facts) (missed []string) {
	for _, c := range f.Summary("", "", false).Checks {
		if c.Met == nil || !*c.Met {
			missed = append(missed, c.Title)
		}
	}
	return missed
}

func TestFigures(t *testing.T) {
	s := good(t, "demo").Summary("v1.36.3", "hybrid", true)
	for what, x := range map[string][2]float64{
		"p50 of reactions": {*s.Reaction.P50, 0.55}, "static p99": {*s.P99.Static, 600}, "p99": {*s.P99.MBCAS, 10},
		"throttled": {*s.Throttled.Static, 300}, "steady changes": {*s.SteadyChanges, 2},
		"reactions": {float64(s.Reaction.N), 21}, "lowest limit": {*s.MinLimit, 810},
	} {
		if x[0] != x[1] {
			t.Errorf("%s: %v, want %v", what, x[0], x[1])
		}
	}
	if onsets := s.Onsets["static"]; len(onsets) != 3 || onsets[0].Phase != "big hog" || *onsets[0].P99 != 600 ||
		onsets[0].Requests != 10 || onsets[1].Service != "checkout-sized" {
		t.Errorf("first seconds of contention: %+v", onsets)
	}
	plain := s.Rows[4].Runs
	if *plain["static"] != 600 || *plain["static_first"] != 600 || *plain["mbcas"] != 10 {
		t.Errorf("the row without a PriorityClass is %v", plain)
	}
	hpa := good(t, "hpa").Summary("", "", false)
	if r := hpa.Rows[3]; *r.Runs["mbcas"] != 2 || *hpa.Rows[5].Runs["static"] != 2 {
		t.Errorf("replicas: %+v", hpa.Rows)
	}
	quota := good(t, "quota").Summary("", "", false)
	if *quota.Rows[1].Runs["mbcas"] != 87.5 || *quota.Rows[2].Runs["mbcas"] != 62.5 {
		t.Errorf("quota: %+v", quota.Rows)
	}
}

// misses are changes for the worse, each with the target that it misses.
var misses = []struct {
	script, what string
	worsen       func(*Facts)
}{
	{"demo", "reaction steps", func(f *Facts) { f.Reacted[0].NotLowered, f.Reacted[1].NotLowered = true, true }},
	{"demo", "kernel quota, p50", func(f *Facts) {
		for i := range 12 {
			f.Reacted[i+9].Seconds = new(1.6)
		}
	}},
	{"demo", "kernel quota, p99", func(f *Facts) { f.Reacted[3].Seconds = nil }},
	{"demo", "step, declared limits", func(f *Facts) { throttle(f, "static", 100) }},
	{"demo", "after the step, MBCAS", func(f *Facts) { throttle(f, "mbcas", 20) }},
	{"demo", "steady load", func(f *Facts) { f.Changes = append(f.Changes, f.Changes[0]) }},
	{"demo", "lowest limit", func(f *Facts) { f.Changes = append(f.Changes, recorder.Change{App: "search", To: 90}) }},
	{"demo", "after restore", func(f *Facts) { f.NotRestored = []string{"one"} }},
	{"demo", "evictions", func(f *Facts) { f.Guard.Faults = []string{"evicted"} }},
	{"demo", "in the step: MBCAS / no limits", func(f *Facts) { slow(f, "mbcas", "checkout", "step up", 116) }},
	{"demo", "in the step: MBCAS / declared limits", func(f *Facts) { slow(f, "static", "checkout", "step up", 49) }},
	{"demo", "big hog: MBCAS / no limits", func(f *Facts) {
		all := f.run("mbcas").Requests["checkout"]
		p, _ := f.run("mbcas").Plan.Phase("big hog")
		for i := range all {
			if all[i].At >= p.From && all[i].At < p.From+recorder.Settle {
				all[i].Latency = 11 * time.Millisecond
			}
		}
	}},
	{"demo", "after the start of the big hog", func(f *Facts) { slow(f, "no_limit", "checkout", "big hog", 99) }},
	{"demo", "in the first 10 s of the big hog", func(f *Facts) { slow(f, "static", "checkout", "big hog", 9) }},
	{"reaction", "reaction steps", func(f *Facts) {
		for i := range 5 {
			f.Reacted[i].NotLowered = true
		}
	}},
	{"reaction", "kernel, p50", func(f *Facts) {
		for i := range 23 {
			f.Reacted[i].Seconds = new(0.6)
		}
	}},
	{"reaction", "kernel, p99", func(f *Facts) { f.Reacted[3].Seconds = new(1.1) }},
	{"demo", "small hog: MBCAS / no limits", func(f *Facts) { slow(f, "mbcas", "checkout-sized", "small hog", 101) }},
	{"demo", "idle CPU", func(f *Facts) {
		for i := range f.run("mbcas").Node {
			f.run("mbcas").Node[i].Idle = 160
		}
	}},
	{"quota", "resizes accepted", func(f *Facts) { f.Resizes = 0 }},
	{"quota", "highest use", func(f *Facts) { use(f, 2500) }},
	{"quota", "refusals of MBCAS", func(f *Facts) { f.Refusals[guard.Controller] = 1 }},
	{"quota", "new pods tried", func(f *Facts) { f.Runs[0].NewPods = nil }},
	{"quota", "new pods refused", func(f *Facts) { f.Runs[0].NewPods[0].Refused = "exceeded quota" }},
	{"quota", "new pods refused", func(f *Facts) { f.Refusals["replicaset"] = 1 }},
	{"quota", "headroom", func(f *Facts) { use(f, 2890) }},
	{"hpa", "apart by", func(f *Facts) { scale(f, 4, 0) }},
	{"hpa", "scale-outs after", func(f *Facts) { scale(f, 2, 40) }},
	{"hpa", "scale-out: MBCAS", func(f *Facts) { slow(f, "mbcas", "web", "scale-out", 301) }},
	{"hpa", "evictions", func(f *Facts) { f.Guard.Faults = []string{"evicted"} }},
}

// TestTargetsMiss: each change for the worse misses its own target, and no other one.
func TestTargetsMiss(t *testing.T) {
	for _, name := range []string{"demo", "reaction", "quota", "hpa"} {
		if before := missed(good(t, name)); len(before) != 0 {
			t.Fatalf("%s: missed from the start: %q", name, before)
		}
	}
	for _, c := range misses {
		f := good(t, c.script)
		c.worsen(f)
		got := missed(f)
		allowed := 1
		if c.what == "new pods tried" || c.what == "after the start of the big hog" {
			allowed = 2 // without new pods it is not known that none is refused, and a part of a phase is in all of it
		}
		if len(got) == 0 || len(got) > allowed || !strings.Contains(strings.Join(got, "; "), c.what) {
			t.Errorf("%s, %s: missed are %q", c.script, c.what, got)
		}
	}
}

func throttle(f *Facts, run string, ms float64) {
	for i := range f.run(run).Samples {
		f.run(run).Samples[i].Throttled = ms
	}
}

// slow gives the requests of one phase another latency.
func slow(f *Facts, run, service, phase string, ms int) {
	r := f.run(run)
	p, _ := r.Plan.Phase(phase)
	for i, x := range r.Requests[service] {
		if x.At >= p.From && x.At < p.To {
			r.Requests[service][i].Latency = time.Duration(ms) * time.Millisecond
		}
	}
}

func use(f *Facts, used cpu.Milli) {
	for i := range f.Runs[0].Node {
		f.Runs[0].Node[i].Used = used
	}
}

// scale sets the replicas of the run with MBCAS, and lets the HPA ask for one less and one more
// again at a second of each phase.
func scale(f *Facts, ready, swing int) {
	r := f.run("mbcas")
	for i := range r.Samples {
		r.Samples[i].Ready = ready
		if swing > 0 && i == swing+60 {
			r.Samples[i].Desired--
		}
	}
}

// TestRequests: dry runs and other namespaces do not count, and a pod that changed meanwhile is no
// failure.
func TestRequests(t *testing.T) {
	f := &Facts{Script: &script.Script{Namespaces: []string{"shop"}}}
	for _, x := range []struct {
		namespace, uri, message string
		code                    int
	}{
		{"shop", "", "", 200}, {"shop", "?dryRun=All", "", 200}, {"other", "", "", 200}, {"shop", "", "modified", 409},
		{"shop", "", "invalid", 422}, {"shop", "", "exceeded quota: compute", 403},
	} {
		e := audit.Event{RequestURI: "/resize" + x.uri}
		e.User.Username, e.ObjectRef.Namespace = "controller", x.namespace
		e.ObjectRef.Resource, e.ObjectRef.Subresource = "pods", "resize"
		e.ResponseStatus.Code, e.ResponseStatus.Message = x.code, x.message
		f.Request(e)
	}
	if f.Resizes != 1 || len(f.Failed) != 1 || f.Failed["invalid"] != 1 || f.Refusals["controller"] != 1 {
		t.Errorf("%d resizes, failed %v, refused %v", f.Resizes, f.Failed, f.Refusals)
	}
}

// TestSwings: one replica too many that is taken back is no swing, and a load that changes makes
// none.
func TestSwings(t *testing.T) {
	for _, c := range []struct {
		desired []int
		want    float64
	}{
		{[]int{1, 1, 3, 8, 6}, 0},
		{[]int{1, 8, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 8}, 1}, // over the end of the first phase, whose load goes on
		{[]int{1, 8, 6, 8, 6, 8}, 2},
		{[]int{6, 3, 3, 3}, 0},
		{[]int{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 3, 3, 8}, 0}, // the load changes after 20 s
	} {
		phase := func(from, to int, rate float64) script.Step {
			s := script.Step{From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}
			s.Rates = map[string]float64{"web": rate}
			return s
		}
		r := &recorder.Run{Plan: script.Plan{phase(0, 10, 1), phase(10, 20, 1), phase(20, 60, 2)}}
		for i, n := range c.desired {
			r.Samples = append(r.Samples, recorder.Sample{At: time.Duration(i+1) * time.Second, App: "web", Desired: n})
		}
		q := query{Where: script.Where{Service: "web"}}
		if got := swings(r, q); *got != c.want {
			t.Errorf("%v: %v, want %v", c.desired, *got, c.want)
		}
	}
}

func TestUnknownFigures(t *testing.T) {
	for want, s := range map[string]script.Script{
		`row r: figure "p98"`:   {Rows: []script.Row{{Title: "r", Figure: "p98"}}},
		`"p98" is none of idle`: {Targets: []script.Target{{Figure: "p98", AtMost: new(1.0)}}},
		"0 bounds, want 1":      {Targets: []script.Target{{Figure: "p99"}}},
		"1 bounds, want 0":      {Targets: []script.Target{{Figure: "faults", AtMost: new(1.0)}}},
		`chart c: kind "pie"`:   {Charts: []script.Chart{{Title: "c", Kind: "pie"}}},
	} {
		if err := Check(&s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestColors: a picture draws the runs of one policy, and no others, in one colour.
func TestColors(t *testing.T) {
	s, err := script.Open(scripts.Files, "demo")
	must.Succeed(t, err)
	policies := map[color.RGBA][]string{}
	for _, r := range s.Runs {
		policies[colorOf(r)] = append(policies[colorOf(r)], r.Name)
	}
	want := map[color.RGBA][]string{orange: {"no_limit"}, grey: {"static_first", "static"}, green: {"mbcas"}}
	if !reflect.DeepEqual(policies, want) {
		t.Errorf("runs by colour %v, want %v", policies, want)
	}
}

func TestFilesAndTable(t *testing.T) {
	for _, name := range []string{"demo", "reaction", "quota", "hpa"} {
		folder := t.TempDir()
		f := good(t, name)
		s := f.Summary("v1.36.3", "hybrid", true)
		must.Succeed(t, f.WriteFiles(folder, s))
		files := map[string]string{
			"summary.json": `"mbcas"`, "samples.csv": "run,second,phase", "node.csv": "3200",
		}
		if len(f.Script.Charts) > 0 {
			files[name+".svg"], files[name+".png"] = f.Script.Charts[0].Title, "PNG"
		}
		for file, want := range files {
			text, err := os.ReadFile(filepath.Join(folder, file))
			if err == nil && want == "PNG" {
				_, err = png.Decode(bytes.NewReader(text))
			}
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %s without %s, %v", name, file, want, err)
			}
		}
		var out strings.Builder
		f.Write(&out, s)
		for _, want := range []string{"5.98", "MBCAS", s.Rows[0].Title, "targets met", "no answer in that time"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: the table lacks %q:\n%s", name, want, out.String())
			}
		}
	}
	if err := (&Facts{Script: good(t, "demo").Script}).draw(filepath.Join(t.TempDir(), "nothing")); err != nil {
		t.Errorf("nothing to draw: %v", err)
	}
}

package scenario

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestSchemaIsTheStructs: every field that a file may have is in the schema with an explanation, and
// nothing else is; bounds and words are those of the checks.
func TestSchemaIsTheStructs(t *testing.T) {
	text, err := Schema()
	must.Succeed(t, err)
	var root schema
	must.Succeed(t, json.Unmarshal(text, &root))
	names := map[string]bool{}
	for def, s := range root.Defs {
		if s.Description == "" || s.Type == nil && s.Ref == "" {
			t.Errorf("%s has no description or no type", def)
		}
		if s.Properties != nil && (s.AdditionalProperties == nil || *s.AdditionalProperties) {
			t.Errorf("%s: the schema lets other fields in", def)
		}
	}
	root.Defs["Scenario"] = &root
	for def, s := range root.Defs {
		for name, p := range s.Properties {
			names[name] = true
			if p.Description == "" {
				t.Errorf("%s.%s has no description", def, name)
			}
			for _, p := range []*schema{p, p.Items} {
				if p != nil && p.Ref != "" && root.Defs[strings.TrimPrefix(p.Ref, "#/$defs/")] == nil {
					t.Errorf("%s.%s: the schema has no %s", def, name, p.Ref)
				}
			}
		}
	}
	if d := cmp.Diff(reflectFields(reflect.TypeFor[Scenario](), map[string]bool{}), names); d != "" {
		t.Error(d)
	}
	pod := root.Defs["Pod"]
	want := map[string]*schema{
		"role":        {Type: "string", Enum: []string{"service", "batch", "honest", "liar", "other"}},
		"replicas":    {Type: "integer", Minimum: "1", Maximum: "10000"},
		"start":       {Ref: "#/$defs/duration"},
		"optOut":      {Type: "boolean"},
		"constraints": {Ref: "#/$defs/Constraints"},
	}
	for name, want := range want {
		want.Description = pod.Properties[name].Description
		if d := cmp.Diff(want, pod.Properties[name]); d != "" {
			t.Errorf("%s of a pod: %s", name, d)
		}
	}
	if d := cmp.Diff([]string{"name", "role"}, pod.Required); d != "" || root.Defs["Profile"].MaxProperties != 1 {
		t.Errorf("what a pod requires: %s; a profile has up to %d kinds", d, root.Defs["Profile"].MaxProperties)
	}
}

// TestCatalogueRuns plays the begin of every scenario, under a policy that does nothing and under
// the one that ships.
func TestCatalogueRuns(t *testing.T) {
	all := Catalogue()
	if len(all) < 18 {
		t.Errorf("the catalogue has %d scenarios", len(all))
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			same, err := Find(s.Name)
			if err != nil || same.Name != s.Name {
				t.Fatalf("it is not found by its name: %v", err)
			}
			if s.Reference != "" {
				if _, err := Find(s.Reference); err != nil {
					t.Errorf("its reference: %v", err)
				}
			}
			counted := 0
			for _, p := range s.Pods {
				if p.Role != Other {
					counted++
				}
			}
			if counted == 0 {
				t.Error("nothing in it counts")
			}
			for name, policy := range map[string]sim.Policy{"static": baseline.Static{}, "mbcas": mbcas.New(mbcas.DefaultConfig())} {
				setup := s.Setup(0, 1)
				setup.Length, setup.WarmUp = 5*time.Second, 0
				r := sim.Run(setup, policy)
				var use time.Duration
				for _, p := range r.Pods {
					use += p.Usage
				}
				if use == 0 {
					t.Errorf("%s: nothing ran", name)
				}
			}
		})
	}
}

// TestSetupBySeed: what is drawn depends on node and seed; names, limits and times do not.
func TestSetupBySeed(t *testing.T) {
	s, err := Find("uncontended-bursts")
	must.Succeed(t, err)
	a, same, seed, node := s.Setup(0, 1), s.Setup(0, 1), s.Setup(0, 2), s.Setup(1, 1)
	if !reflect.DeepEqual(a, same) {
		t.Error("the same node and seed give two set-ups")
	}
	if a.Seed == seed.Seed || a.Seed == node.Seed {
		t.Error("another node, or another seed, has the same seed")
	}
	of := func(s sim.Setup, pod int) uint64 { return s.Pods[pod].Requests.Rate.(load.Burst).Seed }
	if of(a, 1) == of(a, 2) || of(a, 1) == of(seed, 1) || of(a, 1) == of(node, 1) {
		t.Error("bursts of two pods, seeds or nodes come at the same times")
	}
	for i := range a.Pods {
		if a.Pods[i].Name != node.Pods[i].Name || a.Pods[i].Limit != node.Pods[i].Limit {
			t.Errorf("pod %d differs from node to node: %v and %v", i, a.Pods[i].Name, node.Pods[i].Name)
		}
	}
}

// TestSetup: what the file says arrives in the simulator.
func TestSetup(t *testing.T) {
	s, err := Parse("f.yaml", []byte(`name: t
description: a test
node: {cores: 4, allocatable: 3500m, systemUsage: 100m}
length: 60s
warmUp: 10s
pods:
  - name: web
    namespace: shop
    workload: front
    role: service
    request: 0.25
    limit: 1
    priority: -5
    replicas: 2
    parallelism: 3
    optOut: true
    start: 2s
    end: 50s
    startInterval: 3s
    stagger: 1s
    load:
      requests: {rate: {burst: {low: 1, high: 9, start: 20s, length: 5s}}, serviceTime: 10ms, distribution: fixed, evenlySpaced: true}
      spin: 2
  - {name: api, role: honest, load: {requests: {rate: 3, serviceTime: 5ms}}}
`), ".")
	must.Succeed(t, err)
	got := s.Setup(0, 1)
	if got.Machine.Cores != 4 || got.Machine.Allocatable != 3500 || got.Length != time.Minute || got.WarmUp != 10*time.Second {
		t.Errorf("the machine is %+v for %v after %v", got.Machine, got.Length, got.WarmUp)
	}
	system, second, api := got.Pods[0], got.Pods[2], got.Pods[3]
	if rate, _ := system.Requests.Rate.At(0); !system.System || rate*system.Requests.ServiceTime.Seconds() != 0.1 {
		t.Errorf("the system is %+v", system)
	}
	// Its load begins at 2 s + 3 s + 1 s, so that the burst comes at 26 s.
	if rate, until := second.Requests.Rate.At(7 * time.Second); rate != 1 || until != 26*time.Second {
		t.Errorf("the second replica's rate is %v until %v", rate, until)
	}
	second.Requests.Rate = nil
	want := sim.PodSpec{
		Name: "web-2", Namespace: "shop", Workload: "front", Request: 250, Limit: 1000, Priority: -5, OptOut: true, Threads: 3,
		Requests: load.Requests{ServiceTime: 10 * time.Millisecond, EvenlySpaced: true, Distribution: load.Fixed}, Spin: load.Constant(2), Start: 5 * time.Second, End: 53 * time.Second,
	}
	if !reflect.DeepEqual(second, want) {
		t.Errorf("the second replica is %+v, want %+v", second, want)
	}
	if api.Workload != "api" || api.Namespace != "default" || api.Requests.Distribution != load.Exponential {
		t.Errorf("the defaults are %+v", api)
	}
	for pod, want := range map[string]Role{"web-1": Service, "web-2": Service, "front-3": Service, "api": Honest, "api-2": Honest, "else": Other, "": Other} {
		if got := s.Role(pod); got != want {
			t.Errorf("the role of %q is %q, want %q", pod, got, want)
		}
	}
	if d := cmp.Diff([]time.Duration{22 * time.Second, 26 * time.Second}, s.Steps("")); d != "" {
		t.Errorf("steps: %s", d)
	}
	if d := cmp.Diff([]time.Duration{26 * time.Second}, s.Steps("web-2")); d != "" {
		t.Errorf("steps of the second replica: %s", d)
	}
}

// TestSteps: rises count, falls and what comes at random do not, nor what comes before the end of
// the warm-up.
func TestSteps(t *testing.T) {
	const sec = time.Second
	for profile, want := range map[string][]time.Duration{
		"5":                                      nil,
		"{step: {before: 1, after: 2, at: 30s}}": {30 * sec},
		"{step: {before: 2, after: 1, at: 30s}}": nil,
		"{square: {low: 1, high: 2, start: 5s, on: 10s, off: 10s}}":        {25 * sec, 45 * sec},
		"{burst: {low: 1, high: 2, start: 15s, length: 5s}}":               {15 * sec},
		"{burst: {high: 2, length: 5s, period: 25s}}":                      {25 * sec, 50 * sec},
		"{burst: {high: 2, length: 5s, period: 25s, jitter: 0.5}}":         nil,
		"{ramp: {from: 1, to: 2, end: 30s}}":                               nil,
		"{burst: {high: 2, start: 5s, length: 5s}}\n    end: 50s":          nil,
		"{burst: {high: 2, length: 5s, period: 20s}}\n    end: 40s":        {20 * sec},
		"{burst: {high: 2, length: 5s, period: 20s}}\nloadSteps: [9s, 7s]": {7 * sec, 9 * sec},
		"{ramp: {from: 1, to: 2, end: 30s}}\nloadSteps: [15s]":             {15 * sec},
	} {
		text := "name: t\ndescription: t\nnode: {cores: 1}\nlength: 60s\nwarmUp: 10s\npods:\n  - name: a\n    role: batch\n    load:\n      spin: " + profile + "\n"
		s, err := Parse("f.yaml", []byte(text), ".")
		if err != nil {
			t.Fatalf("%s: %v", profile, err)
		}
		if d := cmp.Diff(want, s.Steps("")); d != "" {
			t.Errorf("%s: %s", profile, d)
		}
		if got := s.Steps("a"); !slices.Equal(got, want) {
			t.Errorf("%s: the pod has steps at %v, want %v", profile, got, want)
		}
		if got := s.Steps("a-2"); got != nil {
			t.Errorf("%s: a pod that is not in the file has steps at %v", profile, got)
		}
	}
}

// TestExampleInDocs: the file in docs/lab.md is one.
func TestExampleInDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lab.md")
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/lab.md has no YAML")
	}
	s, err := Parse("docs/lab.md", []byte(text), ".")
	must.Succeed(t, err)
	setup := s.Setup(0, 1)
	setup.Length = s.WarmUp + time.Second
	if r := sim.Run(setup, baseline.Static{}); r.Pods[0].Usage == 0 {
		t.Error("nothing runs in it")
	}
	for _, s := range Catalogue() {
		if !strings.Contains(string(page), "`"+s.Name+"`") {
			t.Errorf("docs/lab.md does not name the scenario %s", s.Name)
		}
	}
	for name := range reflectFields(reflect.TypeFor[Scenario](), map[string]bool{}) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/lab.md does not explain the field %s", name)
		}
	}
}

// reflectFields are the names of all fields in a file.
func reflectFields(t reflect.Type, all map[string]bool) map[string]bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return reflectFields(t.Elem(), all)
	case reflect.Struct:
		for i, r := range rulesOf(t) {
			if r.field != "" {
				all[r.field] = true
				reflectFields(t.Field(i).Type, all)
			}
		}
	}
	return all
}

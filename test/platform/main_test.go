//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-only", "x"}, {"-limit", "50"}, {"-what"}} {
		if _, err := parse(args, &bytes.Buffer{}); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	if s, err := parse([]string{"-only", "hpa", "-short"}, &bytes.Buffer{}); err != nil || s.plays(quotaPart) || !s.plays(scalePart) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLoadDependsOnTheSeedAlone: both runs get the same requests, and the load in the quota moves about.
func TestLoadDependsOnTheSeedAlone(t *testing.T) {
	list := phases(false)
	if !slices.Equal(traffic.Arrivals(1, segments(list)), traffic.Arrivals(1, segments(phases(false)))) {
		t.Error("the same seed gave other requests")
	}
	rates := turns(1, quotaFull)
	if len(rates) != 20 {
		t.Fatalf("%d turns", len(rates))
	}
	for i, turn := range rates {
		n := 0
		for _, r := range turn {
			if r > idleRate {
				n++
			}
		}
		if n != busyPods || i > 0 && slices.Equal(turn, rates[i-1]) {
			t.Errorf("turn %d: %d pods are busy: %v", i, n, turn)
		}
	}
	if !slices.Equal(arrivalsOf(1, rates, 3), arrivalsOf(1, turns(1, quotaFull), 3)) || slices.Equal(arrivalsOf(1, rates, 3), arrivalsOf(1, rates, 4)) {
		t.Error("requests do not depend on the seed and the pod alone")
	}
}

// canned is a run in which the HPA asked for these numbers, one a second from the begin of a phase, and every request took so long.
func canned(took time.Duration, desired ...int) *scaleRun {
	r := &scaleRun{Phases: []phase{{scaleOut, 10 * time.Second, 1}, {busy, 10 * time.Second, 1}}}
	for i := range 20 {
		n := desired[min(i, len(desired)-1)]
		at := time.Duration(i+1) * time.Second
		r.Samples = append(r.Samples, scaleSample{At: at, Desired: n, Ready: n})
		r.Requests = append(r.Requests, traffic.Result{At: at - time.Millisecond, Latency: took})
	}
	return r
}

func TestRows(t *testing.T) {
	rows := canned(20*time.Millisecond, 1, 1, 3, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 6, 6, 6, 6, 6, 6, 6).rows(mbcas)
	if out := rows[0]; out.Changes != 2 || out.Most != 6 || out.Rest != 4 || out.Replicas != nil || out.Requests != 10 || *out.P99 != 20 {
		t.Errorf("%+v", out)
	}
	if b := rows[1]; b.Changes != 2 || b.Most != 6 || b.Rest != 4 || *b.Replicas != 6 {
		t.Errorf("%+v", b)
	}
}

// TestSwings: one replica too many that is taken back is no oscillation, and a load that changes makes none.
func TestSwings(t *testing.T) {
	for _, c := range []struct {
		desired []int
		want    int
	}{
		{[]int{1, 1, 3, 8, 6}, 0},
		{[]int{1, 8, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 8}, 1}, // over the end of scale-out
		{[]int{1, 8, 6, 8, 6, 8}, 2},
		{[]int{6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, 0},
	} {
		if got := canned(time.Second, c.desired...).swings(); got != c.want {
			t.Errorf("%v: %d, want %d", c.desired, got, c.want)
		}
	}
	r := canned(time.Second, 8, 8, 8, 8, 8, 8, 8, 8, 8, 3, 8)
	r.Phases[1].name = calm
	if got := r.swings(); got != 0 {
		t.Errorf("%d, want none: the load changed between", got)
	}
}

func TestVerdicts(t *testing.T) {
	good := func() facts {
		return facts{
			Guard: guard.Report{Pods: 3},
			Scale: map[string]*scaleRun{static: canned(time.Second, 1, 3, 6), mbcas: canned(400*time.Millisecond, 1, 6)},
			Quota: &quotaFacts{
				OverQuota: map[string]int{}, Resizes: 1, Newcomers: []arrival{{Free: 320}},
				Samples: []quotaSample{{Used: 2880, Hard: 3200}, {Used: 3200, Hard: 3200, Newcomer: 320}, {Used: 3000, Hard: 3200}, {Used: 2800, Hard: 3200}},
			},
		}
	}
	met := func(f facts) (missed []string) {
		for _, c := range f.checks() {
			if c.Met == nil || !*c.Met {
				missed = append(missed, c.What)
			}
		}
		return missed
	}
	if missed := met(good()); len(missed) > 0 {
		t.Errorf("missed %q", missed)
	}
	for part, spoil := range map[string]func(*facts){
		"refusals for MBCAS": func(f *facts) { f.Quota.OverQuota[guard.Controller] = 1 },
		"of these refused":   func(f *facts) { f.Quota.Newcomers[0].Refused = "exceeded quota" },
		"were tried":         func(f *facts) { f.Quota.Newcomers = nil },
		"a tenth is free":    func(f *facts) { f.Quota.Samples[3].Used = 2890 },
		"apart by":           func(f *facts) { f.Scale[mbcas] = canned(400*time.Millisecond, 1, 8) },
		"scaled out again": func(f *facts) {
			f.Scale[mbcas] = canned(400*time.Millisecond, 1, 8, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 6)
		},
		"moved": func(f *facts) { f.Quota.Resizes = 0 },
		"in use at most": func(f *facts) {
			for i := range f.Quota.Samples {
				f.Quota.Samples[i].Used = 2000
			}
		},
		"scale-out": func(f *facts) { f.Scale[mbcas] = canned(600*time.Millisecond, 1, 6) },
		"evictions": func(f *facts) { f.Guard.Faults = []string{"one"} },
	} {
		f := good()
		spoil(&f)
		if missed := met(f); !strings.Contains(strings.Join(missed, "; "), part) {
			t.Errorf("%s: missed %q", part, missed)
		}
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	s := newShow(settings{out: t.TempDir()}, &out)
	s.facts.Scale = map[string]*scaleRun{static: canned(time.Second, 1, 3, 6), mbcas: canned(time.Millisecond, 1, 6)}
	s.facts.Quota = &quotaFacts{Samples: []quotaSample{{At: time.Second, Used: 2000, Hard: 3200}, {At: 2 * time.Second, Used: 2400, Hard: 3200}}}
	s.facts.Guard.Pods = 1
	if err := s.report(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"summary.json", "quota.csv", "quota.svg", "quota.png", "hpa.csv", "hpa.svg", "hpa.png"} {
		if info, err := os.Stat(filepath.Join(s.settings.out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, want := range []string{"scale-out", "69 % of it in use on average", "targets met"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
}

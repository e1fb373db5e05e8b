//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/internal/verdict"
)

// Runs of the service under the HPA.
const (
	static = "limits as declared"
	mbcas  = "MBCAS"
)

// The targets. They do not bend with the machine.
const (
	replicasApart = 1.0
	p99Ratio      = 0.5
	// tooBusy is how much CPU, in thousandths of a core, may be in use before the first part, so that the figures can be trusted.
	// An idle cluster uses about 300.
	tooBusy = 600
)

// facts is everything that was measured; what was not is left out.
type facts struct {
	Seed    uint64
	Short   bool
	Limit   int64
	Started time.Time
	Seconds float64
	Busy    int64
	Quota   *quotaFacts
	Scale   map[string]*scaleRun
	Guard   guard.Report
}

// row is one phase of one run.
type row struct {
	Run      string   `json:"run"`
	Phase    string   `json:"phase"`
	Rate     float64  `json:"requests_per_s"`
	Requests int      `json:"requests"`
	Unserved int      `json:"unserved"`
	P50      *float64 `json:"p50_ms"`
	P99      *float64 `json:"p99_ms"`
	// Replicas is the median of those that were Ready in the steady part; nil where the phase is not to be steady.
	Replicas *float64 `json:"replicas"`
	// Changes is how often the HPA asked for another number, and Most the largest.
	Changes int `json:"changes"`
	Most    int `json:"most_replicas"`
	// Rest is the second of the last change, from the begin of the phase.
	Rest float64 `json:"last_change_s"`
	// Others is the mean CPU in use by everything else on the machine, in thousandths of a core.
	Others int64 `json:"others_m"`
}

// steadyPart is the end of a phase, in which replicas have come to rest.
const steadyPart = 60 * time.Second

// rows are the phases of a run.
func (r *scaleRun) rows(name string) (rows []row) {
	for _, p := range r.Phases {
		from, to := span(r.Phases, p.name)
		x := row{Run: name, Phase: p.name, Rate: p.rate}
		x.Requests, x.Unserved, x.P99 = tail(r.Requests, from, to)
		x.P50 = quantile(took(r.Requests, from, to), 0.5)
		if p.name != scaleOut {
			x.Replicas = r.replicas(max(from, to-min(steadyPart, (to-from)/2)), to)
		}
		x.Changes, x.Most, x.Rest = r.changes(from, to)
		x.Others = r.others(from, to)
		rows = append(rows, x)
	}
	return rows
}

func took(all []traffic.Result, from, to time.Duration) (in []time.Duration) {
	for _, r := range all {
		if r.At >= from && r.At < to {
			in = append(in, r.Latency)
		}
	}
	return in
}

// replicas is the median number of Ready ones between two times.
func (r *scaleRun) replicas(from, to time.Duration) *float64 {
	var n []int
	for _, s := range r.Samples {
		if s.At > from && s.At <= to {
			n = append(n, s.Ready)
		}
	}
	v, ok := traffic.Quantile(n, 0.5)
	if !ok {
		return nil
	}
	return new(float64(v))
}

// others is the mean CPU in use by everything but the service between two times.
func (r *scaleRun) others(from, to time.Duration) int64 {
	var sum, n int64
	for _, s := range r.Samples {
		if s.At > from && s.At <= to && s.Machine > 0 {
			sum, n = sum+max(0, s.Machine-s.Use), n+1
		}
	}
	return sum / max(1, n)
}

// changes is how often the HPA asked for another number of replicas between two times, the most that it asked for, and when it last did
// ask for another number.
func (r *scaleRun) changes(from, to time.Duration) (n, most int, last float64) {
	before := -1
	for _, s := range r.Samples {
		if s.At > from && s.At <= to {
			if most = max(most, s.Desired); before >= 0 && s.Desired != before {
				n, last = n+1, (s.At - from).Seconds()
			}
		}
		before = s.Desired
	}
	return n, most, last
}

// swings is how often the HPA scaled out again after it had scaled in, while the load stayed the same. To have asked for one replica too
// many when the load came, and to take it back once, is none.
func (r *scaleRun) swings() (n int) {
	down, before := false, -1
	for _, s := range r.Samples {
		for _, p := range r.Phases {
			// The load of busy is that of scale-out.
			if from, _ := span(r.Phases, p.name); p.name != busy && s.At > from && s.At <= from+time.Second {
				down = false
			}
		}
		switch {
		case before < 0 || s.Desired == before:
		case s.Desired < before:
			down = true
		case down:
			n, down = n+1, false
		}
		before = s.Desired
	}
	return n
}

// checks compares with the targets.
func (f facts) checks() []verdict.Check {
	return append(f.quotaChecks(), f.scaleChecks()...)
}

func (f facts) quotaChecks() []verdict.Check {
	q := f.Quota
	if q == nil {
		return nil
	}
	var ours, theirs, refused, above []string
	for _, user := range sortedKeys(q.OverQuota) {
		line := fmt.Sprintf("%s, %d times", user, q.OverQuota[user])
		if user == guard.Controller {
			ours = append(ours, line)
		} else {
			theirs = append(theirs, line)
		}
	}
	for _, a := range q.Newcomers {
		if a.Refused != "" {
			refused = append(refused, fmt.Sprintf("second %.0f: %s", a.Second, a.Refused))
		}
	}
	// A pod that goes is counted until it has gone.
	for i, s := range q.Samples {
		if alone := s.Newcomer == 0 && (i == 0 || q.Samples[i-1].Newcomer == 0); alone && s.Used > s.Hard*9/10 {
			above = append(above, fmt.Sprintf("second %.0f: %dm of %dm used", s.At.Seconds(), s.Used, s.Hard))
		}
	}
	n, resizes := float64(len(q.Newcomers)), float64(q.Resizes)
	var most *float64
	if u := use(q.Samples); u != nil {
		most = &u.Most
	}
	return []verdict.Check{
		// Who moves nothing is refused nothing.
		verdict.Above("quota: limits that were moved", &resizes, "%.0f", 0, "some"),
		verdict.Above("quota: of it in use at most, in percent", most, "%.0f", 80, "> 80"),
		verdict.Never("quota: refusals for MBCAS", len(q.Samples) > 0, ours, "none"),
		verdict.Above("quota: new pods of a tenth that were tried", &n, "%.0f", 0, "one a minute"),
		verdict.Never("quota: of these refused", n > 0, append(refused, theirs...), "none"),
		verdict.Never("quota: a tenth is free while no new pod is there", len(q.Samples) > 0, above, "always"),
	}
}

func sortedKeys(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (f facts) scaleChecks() []verdict.Check {
	without, with := f.Scale[static], f.Scale[mbcas]
	if f.Scale == nil {
		return nil
	}
	var apart, swings *float64
	var a, b *float64
	if without != nil && with != nil {
		before, after := without.rows(static), with.rows(mbcas)
		swings = new(float64(with.swings()))
		for i := range before {
			if x, y := before[i].Replicas, after[i].Replicas; x != nil && y != nil {
				apart = new(max(deref(apart), max(*x-*y, *y-*x)))
			}
			if before[i].Phase == scaleOut {
				a, b = after[i].P99, before[i].P99
			}
		}
	}
	return []verdict.Check{
		verdict.AtMost("hpa: replicas in steady state, with and without, at most apart by", apart, "%.0f", replicasApart, "<= 1"),
		verdict.AtMost("hpa: times that it scaled out again after it had scaled in, under one load, with MBCAS", swings, "%.0f", 0, "0"),
		verdict.Ratio("hpa: p99 during scale-out, with / without", a, b, p99Ratio, "<= 1/2"),
		verdict.Never("evictions, restarts, changed requests or memory, refused resizes", f.Guard.Pods > 0, f.Guard.Faults, "never"),
	}
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

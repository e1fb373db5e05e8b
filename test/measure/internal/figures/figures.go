package figures

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// query is where a figure is taken.
type query struct {
	script.Where
	run, over *recorder.Run // nil: not played, or not asked for
	phases    []string
}

// numbers are the figures with a value, by the name that scripts use. A nil value was not measured.
var numbers = map[string]func(*Facts, query) *float64{
	"p99":         ofRun(func(r *recorder.Run, q query) *float64 { return r.Latency(q.Where, 0.99) }),
	"p99_onset":   ofRun(func(r *recorder.Run, q query) *float64 { return r.Onset(q.Where, 0.99) }),
	"p99_settled": ofRun(func(r *recorder.Run, q query) *float64 { return r.Settled(q.Where, 0.99) }),
	"throttled":   ofRun(func(r *recorder.Run, q query) *float64 { return r.Throttled(q.Where) }),
	"usage":       ofRun(func(r *recorder.Run, q query) *float64 { return r.Usage(q.Where) }),
	"usage_onset": ofRun(func(r *recorder.Run, q query) *float64 { return r.OnsetUsage(q.Where) }),
	"usage_low":   ofRun(func(r *recorder.Run, q query) *float64 { return r.LowUsage(q.Where) }),
	"idle":        ofRun(func(r *recorder.Run, q query) *float64 { return r.Idle(q.Phase) }),
	"swings":      ofRun(swings),
	"replicas":    ofRun(replicas),
	"most_replicas": ofRun(func(r *recorder.Run, _ query) *float64 {
		most := 0
		for _, s := range r.Samples {
			most = max(most, s.Desired)
		}
		return measured(most, len(r.Samples) > 0)
	}),
	"replicas_apart": replicasApart,

	"reactions":      func(f *Facts, _ query) *float64 { return measured(len(f.delays("")), len(f.Reacted) > 0) },
	"reaction_p50":   ofKind("", 0.50),
	"reaction_p99":   ofKind("", 0.99),
	"steady_changes": func(f *Facts, _ query) *float64 { most, _ := f.steady(); return most },
	"min_limit":      func(f *Facts, _ query) *float64 { return f.minLimit() },
	"resizes":        func(f *Facts, _ query) *float64 { return measured(f.Resizes, len(f.Runs) > 0) },
	"new_pods":       func(f *Facts, _ query) *float64 { return measured(len(f.newPods()), len(f.Runs) > 0) },
	"quota_mean":     func(f *Facts, _ query) *float64 { mean, _ := f.quotaUse(); return mean },
	"quota_most":     func(f *Facts, _ query) *float64 { _, most := f.quotaUse(); return most },
	"quota_declared": func(f *Facts, _ query) *float64 {
		if f.Script.Quota == nil {
			return nil
		}
		declared := 0.0
		for _, w := range f.Script.Workloads {
			declared += float64(w.Limit)
		}
		return new(100 * declared / float64(f.Script.Quota.LimitsCPU))
	},
}

// ofRun is a figure of a run; nil where the run was not played.
func ofRun(figure func(*recorder.Run, query) *float64) func(*Facts, query) *float64 {
	return func(_ *Facts, q query) *float64 {
		if q.run == nil {
			return nil
		}
		return figure(q.run, q)
	}
}

// measured is nil where there is no figure.
func measured[T int | float64](v T, ok bool) *float64 {
	if !ok {
		return nil
	}
	return new(float64(v))
}

// nevers are the figures that list what must not happen; measured is whether it would have been
// seen.
var nevers = map[string]func(*Facts) (found []string, measured bool){
	"restored": func(f *Facts) ([]string, bool) { return f.NotRestored, f.Restored },
	"faults":   func(f *Facts) ([]string, bool) { return f.Guard.Faults, f.Guard.Pods > 0 && len(f.Runs) > 0 },
	"quota_refusals": func(f *Facts) (found []string, measured bool) {
		if n := f.Refusals[guard.Controller]; n > 0 {
			found = append(found, fmt.Sprintf("%d refusals", n))
		}
		return found, len(f.Runs) > 0
	},
	"new_pods_refused": func(f *Facts) (found []string, measured bool) {
		for _, p := range f.newPods() {
			if p.Refused != "" {
				found = append(found, fmt.Sprintf("second %.0f: %s", p.Second, p.Refused))
			}
		}
		for _, user := range slices.Sorted(maps.Keys(f.Refusals)) {
			if user != guard.Controller {
				found = append(found, fmt.Sprintf("%s, %d times", user, f.Refusals[user]))
			}
		}
		return found, len(f.newPods()) > 0
	},
	"quota_headroom": func(f *Facts) (found []string, measured bool) {
		for _, s := range f.aloneInQuota() {
			measured = true
			if s.Used > f.Script.Quota.Mark() {
				found = append(found, fmt.Sprintf("second %.0f: %v of %v used", s.At.Seconds(), s.Used, s.Hard))
			}
		}
		return found, measured
	},
}

// ofKind is a quantile of the reactions of one kind, in seconds.
func ofKind(kind string, q float64) func(*Facts, query) *float64 {
	return func(f *Facts, _ query) *float64 {
		return measured(traffic.Quantile(f.delays(kind), q))
	}
}

// delays are the reactions of a kind in seconds, of the steps that count; "": of every kind. One
// without a reaction is longer than any other.
func (f *Facts) delays(kind string) (seconds []float64) {
	const never = 1e9
	for _, x := range f.Reacted {
		switch {
		case x.NotLowered || kind != "" && kind != x.Kind:
		case x.Seconds == nil:
			seconds = append(seconds, never)
		default:
			seconds = append(seconds, *x.Seconds)
		}
	}
	return seconds
}

// steady is how often the limit of a workload changed in the phase of steady load: of the one that
// changed most, in five minutes, and of each.
func (f *Facts) steady() (most *float64, by map[string]int) {
	for _, r := range f.Runs {
		p, ok := r.Plan.Phase(f.Script.Headline.Steady)
		if !ok {
			continue
		}
		by = map[string]int{}
		n := 0
		for _, c := range f.Changes {
			if at := c.At.Sub(r.Start); at >= p.From && at < p.To {
				by[c.App]++
				n = max(n, by[c.App])
			}
		}
		most = new(float64(n) * float64(5*time.Minute) / float64(p.To-p.From))
	}
	return most, by
}

// minLimit is the lowest limit that MBCAS gave a pod, by the API server or in the kernel.
func (f *Facts) minLimit() (low *float64) {
	lower := func(v cpu.Milli) {
		if v > 0 && (low == nil || float64(v) < *low) {
			low = new(float64(v))
		}
	}
	for _, r := range f.Script.Runs {
		if played := f.run(r.Name); played != nil && r.Mode == "enforce" {
			for _, s := range played.Samples {
				if w, _ := f.Script.Find(s.App); w.Managed() {
					lower(s.Limit)
					lower(s.Quota)
				}
			}
		}
	}
	for _, c := range f.Changes {
		lower(c.To)
	}
	return low
}

// steadyPart is the end of a phase, in which replicas have come to rest.
const steadyPart = 60 * time.Second

// replicas is the median of the Ready ones in the steady part of a phase.
func replicas(r *recorder.Run, q query) *float64 {
	p, _ := r.Plan.Phase(q.Phase)
	length := p.To - p.From
	var all []float64
	for _, s := range r.In(q.Where, length-min(steadyPart, length/2)-time.Second) {
		all = append(all, float64(s.Ready))
	}
	return measured(traffic.Quantile(all, 0.5))
}

// replicasApart is the largest difference of the replicas of two runs in any of the phases.
func replicasApart(f *Facts, q query) (apart *float64) {
	other := q
	other.run = q.over
	for _, q.Phase = range q.phases {
		other.Phase = q.Phase
		a, b := ofRun(replicas)(f, q), ofRun(replicas)(f, other)
		if a == nil || b == nil {
			return nil
		}
		if d := max(*a-*b, *b-*a); apart == nil || d > *apart {
			apart = &d
		}
	}
	return apart
}

// swings is how often the HPA scaled out again after it had scaled in, under the same load. To ask
// for one replica too many when the load rises, and to take it back once, is none.
func swings(r *recorder.Run, q query) *float64 {
	n, down, before, rate := 0, false, -1, -1.0
	for _, s := range r.Samples {
		if s.App != q.Service {
			continue
		}
		if now := r.Plan.At(max(0, s.At-time.Second)).Rates[q.Service]; now != rate {
			rate, down = now, false
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
	return measured(n, len(r.Samples) > 0)
}

func (f *Facts) newPods() (all []recorder.NewPod) {
	for _, r := range f.Runs {
		all = append(all, r.NewPods...)
	}
	return all
}

// aloneInQuota are the seconds without a new pod. A pod that ends counts until it has ended.
func (f *Facts) aloneInQuota() (alone []recorder.NodeSample) {
	if f.Script.Quota == nil {
		return nil
	}
	for _, r := range f.Runs {
		for i, s := range r.Node {
			if s.NewPods == 0 && (i == 0 || r.Node[i-1].NewPods == 0) && s.Hard > 0 {
				alone = append(alone, s)
			}
		}
	}
	return alone
}

// quotaUse is the share of the quota in use without a new pod, in percent.
func (f *Facts) quotaUse() (mean, most *float64) {
	var sum, highest float64
	alone := f.aloneInQuota()
	for _, s := range alone {
		share := 100 * float64(s.Used) / float64(s.Hard)
		sum, highest = sum+share, max(highest, share)
	}
	if len(alone) == 0 {
		return nil, nil
	}
	return new(sum / float64(len(alone))), &highest
}

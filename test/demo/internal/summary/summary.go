// Package summary judges a show: the figures, what they were to be, and whether they are. Targets
// are the and do not bend with the machine.
//
// Promises:
//   - The first keys are those that scripts read, in their order: TestKeys.
//   - A figure that was not measured is null, and no target is met by it: TestUnmeasured.
package summary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/demo/internal/show"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/internal/verdict"
)

// Names of the runs.
const (
	Static  = "static"
	NoLimit = "no_limit"
	MBCAS   = "mbcas"
	Steady  = "steady"
)

// Facts is everything that was measured; what was not is left out.
type Facts struct {
	Kubernetes string
	Cgroup     string
	PSI        bool
	Seed       uint64
	Quick      bool
	Iterations int
	Started    time.Time
	Took       time.Duration
	Runs       map[string]record.Run
	Steps      []show.Step
	Audit      audit.Count
	// Busy is the CPU in use before the first run, in thousandths of a core: what else the machine does.
	Busy int64
	// Failures is how often MBCAS itself called a resize failed.
	Failures int
	// Changes are all changes of limits; Steady those within the steady window.
	Changes      []ledger.Change
	Steady       []ledger.Change
	SteadyWindow time.Duration // 0: not played
	Restored     *bool         // nil: not tried
	Astray       []string
	Faults       []string
}

// Summary is summary.json. A figure that was not measured is null.
type Summary struct {
	Kubernetes string `json:"kubernetes"`
	Node       struct {
		Cgroup string `json:"cgroup"`
		PSI    bool   `json:"psi"`
	} `json:"node"`
	Reaction struct {
		N   int      `json:"n"`
		P50 *float64 `json:"p50"`
		P99 *float64 `json:"p99"`
	} `json:"reaction_s"`
	Throttled struct {
		Static *float64 `json:"static"`
		MBCAS  *float64 `json:"mbcas"`
	} `json:"throttled_ms_per_s"`
	P99           Latencies `json:"p99_ms"`
	SteadyChanges *float64  `json:"steady_changes_per_5min"`
	MinLimit      *float64  `json:"min_limit_m"`
	Resizes       int       `json:"resizes"`
	Failed        int       `json:"failed"`
	Restored      *bool     `json:"restored_exactly"`

	Hog            Latencies          `json:"hog_p99_ms"`
	Told           Latencies          `json:"told_p99_ms"`
	IdleInStep     *float64           `json:"idle_in_step_m"`
	Phases         map[string][]Phase `json:"phases"`
	Checks         []verdict.Check    `json:"checks"`
	Steps          []Reaction         `json:"reactions"`
	Faults         []string           `json:"faults"`
	ChangesByPod   map[string]int     `json:"changes_by_pod"`
	FailedReasons  map[string]int     `json:"failed_reasons,omitempty"`
	GeneratorLate  map[string]float64 `json:"generator_late_p99_ms"`
	Load           Load               `json:"load"`
	SteadyByPod    map[string]int     `json:"steady_changes_by_pod,omitempty"`
	DryRuns, Stale int                `json:"-"`
	Busy           int64              `json:"busy_before_m"`
	Quick          bool               `json:"quick"`
	Started        time.Time          `json:"started"`
	Seconds        float64            `json:"took_s"`
}

// Latencies are the 99th percentile of the loaded service in each run.
type Latencies struct {
	Static  *float64 `json:"static"`
	MBCAS   *float64 `json:"mbcas"`
	NoLimit *float64 `json:"no_limit"`
}

// Load is what was asked of the services.
type Load struct {
	Seed       uint64  `json:"seed"`
	WorkMS     float64 `json:"work_ms"`
	Iterations int     `json:"iterations"`
}

// Phase is one service in one phase of a run.
type Phase struct {
	Phase     string   `json:"phase"`
	Service   string   `json:"service"`
	Requests  int      `json:"requests"`
	Unserved  int      `json:"unserved"`
	P50       *float64 `json:"p50_ms"`
	P99       *float64 `json:"p99_ms"`
	Throttled *float64 `json:"throttled_ms_per_s"`
}

// Reaction is one step.
type Reaction struct {
	Seconds *float64 `json:"s"`
	From    int64    `json:"from_m"`
	To      int64    `json:"to_m"`
	Missed  string   `json:"missed,omitempty"`
}

// Judge draws the figures and compares them with the targets.
func Judge(f Facts) Summary {
	s := Summary{Kubernetes: f.Kubernetes, Quick: f.Quick, Busy: f.Busy, Started: f.Started, Seconds: f.Took.Seconds(), Faults: f.Faults, Restored: f.Restored}
	s.Node.Cgroup, s.Node.PSI = f.Cgroup, f.PSI
	s.Load = Load{f.Seed, record.Milliseconds(script.RequestWork), f.Iterations}
	s.Resizes, s.Failed, s.FailedReasons = f.Audit.Resizes, max(f.Audit.Failed, f.Failures), f.Audit.Reasons
	s.DryRuns, s.Stale = f.Audit.DryRuns, f.Audit.Stale

	s.P99 = latencies(f.Runs, script.Checkout, script.StepUp)
	s.Hog = latencies(f.Runs, script.Checkout, script.WithHog)
	s.Told = latencies(f.Runs, script.CheckoutTold, script.WithTold)
	s.Throttled.Static = throttled(f.Runs, Static)
	s.Throttled.MBCAS = throttled(f.Runs, MBCAS)
	if r, ok := f.Runs[MBCAS]; ok {
		s.IdleInStep = measured(r.Idle(script.StepUp))
	}
	s.reactions(f.Steps)
	s.limits(f)
	s.phases(f.Runs)
	s.Checks = s.checks()
	return s
}

func latencies(runs map[string]record.Run, service, phase string) Latencies {
	p99 := func(run string) *float64 {
		r, ok := runs[run]
		if !ok {
			return nil
		}
		return measured(r.Latency(service, phase, 0.99))
	}
	return Latencies{Static: p99(Static), MBCAS: p99(MBCAS), NoLimit: p99(NoLimit)}
}

func throttled(runs map[string]record.Run, run string) *float64 {
	r, ok := runs[run]
	if !ok {
		return nil
	}
	return measured(r.Throttled(script.Checkout, script.StepUp))
}

// reactions counts every step whose limit had been lowered. One without a reaction counts as longer than
// any that had one.
func (s *Summary) reactions(steps []show.Step) {
	const never = 1e9
	var seconds []float64
	for _, x := range steps {
		r := Reaction{From: x.From, To: x.To, Missed: x.Missed}
		switch {
		case x.NoStep:
		case x.Missed != "":
			seconds = append(seconds, never)
		default:
			r.Seconds = new(x.Delay.Seconds())
			seconds = append(seconds, x.Delay.Seconds())
		}
		s.Steps = append(s.Steps, r)
	}
	s.Reaction.N = len(seconds)
	s.Reaction.P50 = measured(traffic.Quantile(seconds, 0.50))
	s.Reaction.P99 = measured(traffic.Quantile(seconds, 0.99))
}

// limits draws what happened to the limits.
func (s *Summary) limits(f Facts) {
	s.ChangesByPod, s.GeneratorLate = map[string]int{}, map[string]float64{}
	for _, c := range f.Changes {
		s.ChangesByPod[c.App]++
	}
	for name, r := range f.Runs {
		s.GeneratorLate[name] = r.Late(0.99)
		if name == Static || name == NoLimit {
			continue
		}
		for _, x := range r.Samples {
			w, _ := shop.Find(x.App)
			if low := float64(min(x.Limit, x.Quota)); w.Managed() && low > 0 && (s.MinLimit == nil || low < *s.MinLimit) {
				s.MinLimit = new(low)
			}
		}
	}
	for _, c := range f.Changes {
		if s.MinLimit != nil && c.To > 0 && float64(c.To) < *s.MinLimit {
			s.MinLimit = new(float64(c.To))
		}
	}
	if f.SteadyWindow == 0 {
		return
	}
	s.SteadyByPod = map[string]int{}
	for _, c := range f.Steady {
		s.SteadyByPod[c.App]++
	}
	most := 0
	for _, n := range s.SteadyByPod {
		most = max(most, n)
	}
	s.SteadyChanges = new(float64(most) * float64(5*time.Minute) / float64(max(f.SteadyWindow, 1)))
}

func (s *Summary) phases(runs map[string]record.Run) {
	s.Phases = map[string][]Phase{}
	for name, r := range runs {
		for _, p := range r.Script {
			for _, service := range script.Services {
				if p.Rates[service] == 0 {
					continue
				}
				x := Phase{Phase: p.Name, Service: service, Throttled: measured(r.Throttled(service, p.Name)),
					P50: measured(r.Latency(service, p.Name, 0.5)), P99: measured(r.Latency(service, p.Name, 0.99))}
				x.Unserved, x.Requests = r.Unserved(service, p.Name)
				s.Phases[name] = append(s.Phases[name], x)
			}
		}
	}
}

// measured is nil where there is no figure.
func measured(v float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &v
}

// Failed names the targets that were missed.
func (s Summary) Missed() (missed []string) {
	for _, c := range s.Checks {
		if c.Met != nil && !*c.Met {
			missed = append(missed, fmt.Sprintf("%s: %s, wanted %s", c.What, c.Got, c.Target))
		}
	}
	return missed
}

func names(counts map[string]int) string {
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

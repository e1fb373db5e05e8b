// Package figures draws figures from what was recorded, compares them with a script's targets, and
// writes the table, summary.json and the picture.
//
// Promises:
//   - summary.json begins with the keys that other programs read, in their order, for every script:
//     TestKeys.
//   - A figure that was not measured is null, and meets no target: TestUnmeasured.
//   - Each target misses by its own figure: TestTargetsMiss.
//   - A script with an unknown figure or chart is refused: TestUnknownFigures.
package figures

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/measure/internal/player"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/stages"
)

// TooBusy is how much CPU, in thousandths of a core, other programs may use before the first run,
// so that the figures count. An idle cluster uses about 300.
const TooBusy = 600

// Facts is everything that was recorded for one script; what was not is left out.
type Facts struct {
	Script  *script.Script
	Setup   Setup
	Runs    []*recorder.Run
	Reacted []player.Reaction
	// Resizes were accepted by the API server. Failed ones were refused, for these reasons.
	Resizes int
	Failed  map[string]int
	// Refusals is how often a quota refused a request, by account.
	Refusals map[string]int
	// Busy is the CPU in use before the first run, in thousandths of a core.
	Busy int64
	// Failures is how often MBCAS itself reported a failed resize.
	Failures int
	Changes  []recorder.Change
	// NotRestored are the pods that are not at their declared limits at the end; Restored: it was
	// tried.
	Restored    bool
	NotRestored []string
	Guard       guard.Report
	Started     time.Time
	Took        time.Duration
}

// Setup is what the figures were measured with.
type Setup struct {
	Full       bool       `json:"full"`
	Seed       uint64     `json:"seed"`
	RequestMS  float64    `json:"request_cpu_ms"`
	Iterations int        `json:"iterations"`
	Cores      int        `json:"cores"`
	MBCAS      string     `json:"mbcas"`
	Kubelet    string     `json:"kubelet"`
	Kernel     string     `json:"kernel"`
	Runtime    string     `json:"runtime"`
	Workloads  []Workload `json:"workloads"`
}

// Workload is the part of a workload that decides its budget.
type Workload struct {
	Name     string `json:"name"`
	Request  int64  `json:"request_m"`
	Limit    int64  `json:"declared_limit_m"`
	Class    string `json:"priority_class,omitempty"`
	Priority int32  `json:"priority"`
	// Multiplier of the request, which gives the budget.
	Multiplier float64 `json:"budget_multiplier"`
}

// Request counts one request to the API server, if it is to one of the script's namespaces.
func (f *Facts) Request(e audit.Event) {
	switch code := e.ResponseStatus.Code; {
	case e.DryRun() || !slices.Contains(f.Script.Namespaces, e.ObjectRef.Namespace):
	case e.OverQuota():
		count(&f.Refusals, e.User.Username)
	case !e.Of("resize"):
	case code < 300:
		f.Resizes++
	case code != 409: // the pod had changed meanwhile; it is tried again
		count(&f.Failed, e.ResponseStatus.Message)
	}
}

func count(m *map[string]int, key string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[key]++
}

// run is the run of that name; nil: it was not played.
func (f *Facts) run(name string) *recorder.Run {
	for _, r := range f.Runs {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Summary is summary.json, the same for every script. A figure that was not measured is null.
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
	P99 struct {
		Static  *float64 `json:"static"`
		MBCAS   *float64 `json:"mbcas"`
		NoLimit *float64 `json:"no_limit"`
	} `json:"p99_ms"`
	SteadyChanges *float64 `json:"steady_changes_per_5min"`
	MinLimit      *float64 `json:"min_limit_m"`
	Resizes       int      `json:"resizes"`
	Failed        int      `json:"failed"`
	Restored      *bool    `json:"restored_exactly"`

	Script        string             `json:"script"`
	Setup         Setup              `json:"setup"`
	Rows          []Row              `json:"rows"`
	Checks        []Result           `json:"checks"`
	Phases        map[string][]Phase `json:"phases"`
	Onsets        map[string][]Onset `json:"contention_onsets"`
	Reactions     []player.Reaction  `json:"reactions"`
	Stages        stages.Table       `json:"reaction_stages"`
	NewPods       []recorder.NewPod  `json:"new_pods"`
	Faults        []string           `json:"faults"`
	Notes         []string           `json:"notes"`
	ChangesByPod  map[string]int     `json:"changes_by_pod"`
	SteadyByPod   map[string]int     `json:"steady_changes_by_pod"`
	FailedReasons map[string]int     `json:"failed_reasons"`
	GeneratorLate map[string]float64 `json:"generator_late_p99_ms"`
	Busy          int64              `json:"busy_before_m"`
	Started       time.Time          `json:"started"`
	Seconds       float64            `json:"took_s"`
}

// Row is a line of the table: a figure in each run.
type Row struct {
	Title string              `json:"title"`
	Runs  map[string]*float64 `json:"runs"`
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

// Onset is one service in the first seconds after a hog has started, in one run.
type Onset struct {
	Phase    string   `json:"phase"`
	Service  string   `json:"service"`
	Seconds  float64  `json:"first_s"`
	Requests int      `json:"requests"`
	P50      *float64 `json:"p50_ms"`
	P99      *float64 `json:"p99_ms"`
}

// Summary draws the figures and compares them with the targets.
func (f *Facts) Summary(kubernetes, cgroup string, psi bool) Summary {
	s := Summary{
		Kubernetes: kubernetes, Script: f.Script.Name, Setup: f.Setup, Checks: f.results(), NewPods: f.newPods(),
		Reactions: f.Reacted, Notes: f.Guard.Notes, Faults: f.Guard.Faults, FailedReasons: f.Failed,
		Busy: f.Busy, Started: f.Started, Seconds: f.Took.Seconds(),
		Resizes: f.Resizes, MinLimit: f.minLimit(),
		ChangesByPod: map[string]int{}, GeneratorLate: map[string]float64{}, Phases: map[string][]Phase{},
		Onsets: map[string][]Onset{}, Stages: f.stages(),
	}
	s.Node.Cgroup, s.Node.PSI = cgroup, psi
	for _, n := range f.Failed {
		s.Failed += n
	}
	s.Failed = max(s.Failed, f.Failures)
	s.SteadyChanges, s.SteadyByPod = f.steady()
	if f.Restored {
		s.Restored = new(len(f.NotRestored) == 0)
	}
	s.headline(f)
	for _, row := range f.Script.Rows {
		s.Rows = append(s.Rows, f.row(row))
	}
	for _, c := range f.Changes {
		s.ChangesByPod[c.App]++
	}
	for _, r := range f.Runs {
		s.GeneratorLate[r.Name] = r.Late(0.99)
		s.Phases[r.Name] = phaseFigures(r)
		s.Onsets[r.Name] = onsets(r)
	}
	return s
}

// Divide divides each reaction among its stages.
func (f *Facts) Divide(log *stages.Log) {
	for i := range f.Reacted {
		if x := &f.Reacted[i]; !x.NotLowered {
			m := log.Marks(stages.Step{
				UID: x.UID, At: x.Step, Kernel: x.Kernel(), Patience: player.ReactionPatience, From: cpu.Milli(x.From),
			})
			x.Stages = new(stages.Divide(m))
		}
	}
}

// stages is the table of all steps that count.
func (f *Facts) stages() stages.Table {
	var kinds []string
	var splits []stages.Split
	for _, x := range f.Reacted {
		if x.Stages != nil {
			kinds, splits = append(kinds, x.Kind), append(splits, *x.Stages)
		}
	}
	return stages.Tabulate(kinds, splits)
}

// headline fills the first keys.
func (s *Summary) headline(f *Facts) {
	p99, throttled := f.Script.Headline.P99, f.Script.Headline.Throttled
	figure := func(name, run string, at script.Where) *float64 {
		if at.Phase == "" {
			return nil
		}
		return numbers[name](f, query{Where: at, run: f.run(run)})
	}
	s.P99.Static, s.P99.MBCAS = figure("p99", "static", p99), figure("p99", "mbcas", p99)
	s.P99.NoLimit = figure("p99", "no_limit", p99)
	s.Throttled.Static = figure("throttled", "static", throttled)
	s.Throttled.MBCAS = figure("throttled", "mbcas", throttled)
	s.Reaction.N = len(f.delays(""))
	s.Reaction.P50, s.Reaction.P99 = numbers["reaction_p50"](f, query{}), numbers["reaction_p99"](f, query{})
}

// row has a figure of every run.
func (f *Facts) row(row script.Row) Row {
	out := Row{Title: row.Title, Runs: map[string]*float64{}}
	for _, r := range f.Script.Runs {
		out.Runs[r.Name] = numbers[row.Figure](f, query{Where: row.Where, run: f.run(r.Name)})
	}
	return out
}

func phaseFigures(r *recorder.Run) (all []Phase) {
	for _, p := range r.Plan.Phases() {
		for _, service := range r.Plan.Services() {
			w := script.Where{Service: service, Phase: p.Name}
			x := Phase{
				Phase: p.Name, Service: service, Throttled: r.Throttled(w),
				P50: r.Latency(w, 0.5), P99: r.Latency(w, 0.99),
			}
			if x.Unserved, x.Requests = r.Unserved(w); x.Requests > 0 {
				all = append(all, x)
			}
		}
	}
	return all
}

// onsets are the services that the phases in which a hog starts are about.
func onsets(r *recorder.Run) (all []Onset) {
	var before []string
	for _, p := range r.Plan.Phases() {
		starts := slices.ContainsFunc(p.Spin, func(hog string) bool { return !slices.Contains(before, hog) })
		before = p.Spin
		w := script.Where{Service: p.Service, Phase: p.Name}
		if n := r.OnsetRequests(w); starts && n > 0 {
			all = append(all, Onset{
				Phase: p.Name, Service: p.Service, Seconds: recorder.Onset.Seconds(), Requests: n,
				P50: r.Onset(w, 0.5), P99: r.Onset(w, 0.99),
			})
		}
	}
	return all
}

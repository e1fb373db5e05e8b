package report

import (
	"encoding/json"
	"io"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/statistics"
)

// DocumentSchema is the version of evaluation.json. A change of a field's meaning makes a new one; so does one of
// results.Schema, which is that of the cells in it.
const DocumentSchema = 2

// Document is evaluation.json: the plan, the summaries, intervals and verdicts of the page, and all of the cells that
// these are made of.
type Document struct {
	Schema     int `json:"schema"`
	CellSchema int `json:"cell_schema"`
	// Planned cells are those of the plan, measured ones have figures, failed ones a reason.
	Planned  int       `json:"planned"`
	Measured int       `json:"measured"`
	Failed   int       `json:"failed"`
	Plan     plan.Plan `json:"plan"`
	// LeftOut are cells of other setups, by what is different.
	LeftOut    map[string]int      `json:"left_out,omitempty"`
	Packages   string              `json:"packages,omitempty"`
	Situations []DocumentSituation `json:"situations"`
	Cells      []results.Cell      `json:"cells"`
}

// DocumentSituation is the summary of a situation over its repeats.
type DocumentSituation struct {
	Name      string             `json:"name"`
	Policies  []DocumentPolicy   `json:"policies"`
	Verdicts  []DocumentVerdict  `json:"verdicts,omitempty"`
	NotPlayed map[string]string  `json:"not_played,omitempty"` // reasons, by the title of the policy
	WatchedS  float64            `json:"watched_s"`            // from the event to the end
	Loads     map[string]float64 `json:"cores_after_event"`    // of each service
}

// DocumentPolicy is a policy in a situation. Intervals are at 95 % (see statistics.Summary).
type DocumentPolicy struct {
	Name        string                        `json:"name"`
	Repeats     []int                         `json:"repeats"` // with figures
	Services    map[string]DocumentService    `json:"services"`
	Batches     map[string]statistics.Summary `json:"batch_units_per_s,omitempty"`
	BatchShare  map[string]float64            `json:"batch_share_of_best,omitempty"`
	BatchIdle   map[string]statistics.Summary `json:"batch_idle_class_percent,omitempty"`
	Convergence []Convergence                 `json:"convergence"`
	OwnWrites   statistics.Summary            `json:"own_api_writes_per_min"`
	PodWrites   statistics.Summary            `json:"pod_writes"`
	Resizes     statistics.Summary            `json:"resizes"`
	Evictions   int                           `json:"evictions"`
	Restarts    int                           `json:"restarts"`
	MBCASUsageM statistics.Summary            `json:"mbcas_usage_m"`
}

// DocumentService is a service under a policy.
type DocumentService struct {
	P50       statistics.Summary `json:"p50_ms"`
	P95       statistics.Summary `json:"p95_ms"`
	P99       statistics.Summary `json:"p99_ms"`
	Throttled statistics.Summary `json:"throttled_ms_per_s"`
	UsageM    statistics.Summary `json:"usage_m"`
	IdleClass statistics.Summary `json:"idle_class_percent"`
	Requests  int                `json:"requests"`
	Unserved  int                `json:"unserved"`
}

// DocumentVerdict is how MBCAS, with weights or without, does for a service.
type DocumentVerdict struct {
	Policy  string `json:"policy"` // the title of the one that is judged
	Service string `json:"service"`
	First   string `json:"first"`
	// Rival is the best policy without MBCAS, and Ratio its p99 over that of Policy, paired by repeat.
	Rival   string           `json:"rival,omitempty"`
	Ratio   statistics.Ratio `json:"ratio"`
	Verdict string           `json:"verdict"` // as the page has it
}

// Document is the page as data.
func (p Page) Document() Document {
	d := Document{
		Schema: DocumentSchema, CellSchema: results.Schema, Planned: p.Planned, Measured: p.Measured, Failed: p.Failed,
		Plan: p.Plan, LeftOut: p.Others, Packages: p.Packages, Cells: p.Raw,
	}
	for _, s := range p.Sections {
		x := DocumentSituation{
			Name: s.Name, NotPlayed: map[string]string{}, WatchedS: (s.Length - s.Event).Seconds(),
			Loads: map[string]float64{},
		}
		for _, w := range s.Workloads {
			if !w.Batch() {
				x.Loads[w.Name] = w.Load[len(w.Load)-1].Cores
			}
		}
		for _, reason := range s.Without {
			x.NotPlayed[reason.What] = reason.Why
		}
		for _, r := range s.Rows {
			x.Policies = append(x.Policies, r.document())
		}
		for _, v := range s.Verdicts {
			x.Verdicts = append(x.Verdicts,
				DocumentVerdict{v.Ours, v.Service, v.First, v.Rival, v.Ratio, verdict(s.Tells, v)})
		}
		d.Situations = append(d.Situations, x)
	}
	return d
}

func (r Row) document() DocumentPolicy {
	c := r.Control
	x := DocumentPolicy{
		Name: r.Policy.Name, Repeats: r.repeats(), Services: map[string]DocumentService{},
		Batches: map[string]statistics.Summary{}, BatchShare: map[string]float64{},
		BatchIdle:   map[string]statistics.Summary{},
		Convergence: c.Promise, OwnWrites: c.OwnWrites, PodWrites: c.PodWrites, Resizes: c.Resizes,
		Evictions: c.Evictions, Restarts: c.Restarts, MBCASUsageM: c.System,
	}
	for _, s := range r.Services {
		x.Services[s.Name] = DocumentService{s.P50, s.P95, s.P99, s.Throttled, s.Usage, s.IdleClass, s.Requests, s.Unserved}
	}
	for _, b := range r.Batches {
		x.Batches[b.Name], x.BatchShare[b.Name], x.BatchIdle[b.Name] = b.PerS, b.Share, b.IdleClass
	}
	return x
}

// JSON writes the document.
func (p Page) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(p.Document())
}

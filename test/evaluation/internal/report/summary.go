// Package report makes the pages of the evaluation out of its results: Markdown with pictures, and one HTML page
// with all data. It adds no figure that is not in a result.
//
// Promises:
//   - Every cell of the plan has a figure or a reason: TestEveryCellHasAFigureOrAReason.
//   - Each attempt that failed is told, whether there are figures now or not: TestFailedAttemptsAreTold.
//   - MBCAS, and MBCAS with weights, are judged against each of the other policies that leave the batch jobs their
//     throughput, by the confidence interval of the ratio of the two in each repeat, and with a single repeat not at
//     all: TestVerdicts.
//   - Every setting of the plan is on the page: TestDisclosure.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/statistics"
)

// leaves is the share of the best batch throughput that a policy must leave to be compared by latency.
const leaves = 0.9

// Section is a situation with what was measured.
type Section struct {
	plan.Situation
	Rows     []Row
	Without  []Reason // policies that it is not played under
	Verdicts []Verdict
}

// Reason says why something is not there.
type Reason struct{ What, Why string }

// Row is a policy in a situation.
type Row struct {
	Policy   plan.Policy
	Cells    []results.Cell // with figures
	Missing  []Reason       // repeats without
	Services []ServiceRow
	Batches  []BatchRow
	Control  ControlRow
}

// ServiceRow is a service over all repeats.
type ServiceRow struct {
	Name               string
	P50, P95, P99      statistics.Summary
	Throttled, Usage   statistics.Summary
	IdleClass          statistics.Summary // % of the time
	Requests, Unserved int
}

// BatchRow is a batch job over all repeats. Share is of the best policy's median in the situation.
type BatchRow struct {
	Name  string
	PerS  statistics.Summary
	Usage statistics.Summary
	Share float64
	// IdleClass is the share of the time in which a pod was in the kernel's idle class, in percent.
	IdleClass statistics.Summary
}

// ControlRow is what the policy did over all repeats.
type ControlRow struct {
	Converged                float64       // of the slowest pod
	Promise                  []Convergence // of each cell
	Resizes, PodWrites       statistics.Summary
	OwnWrites, ClusterWrites statistics.Summary // a minute: of the policy's parts, and of all else in the namespace
	Evictions, Restarts      int
	System                   statistics.Summary // CPU of MBCAS
	Busy, Steal              statistics.Summary // of the whole machine
}

// Convergence is whether the limits of a cell converged as MBCAS promises, and how long its slowest pod took.
type Convergence struct {
	Repeat  int             `json:"repeat"`
	Verdict results.Verdict `json:"verdict"`
	After   float64         `json:"slowest_pod_s"`
}

// Verdict is how MBCAS, with weights or without, does for one service.
type Verdict struct {
	Service, Ours, First string
	OurP99, FirstP99     statistics.Summary
	// Rival is the policy without MBCAS with the lowest p99; Ratio is its p99 over that of Ours, paired by repeat.
	Rival  string
	Ratio  statistics.Ratio
	Judged bool   // there are repeats enough
	OK     bool   // no policy is shown to be ahead
	Ahead  bool   // Ours is shown to be ahead of every rival
	Why    string // what is known about a case that is not
}

// Sections are the situations of a plan with the results of its cells.
func Sections(p plan.Plan, cells []results.Cell) (all []Section) {
	for _, s := range p.Situations {
		x := Section{Situation: s}
		for _, policy := range p.Policies {
			if why := p.WhyNot(s, policy.Name); why != "" {
				x.Without = append(x.Without, Reason{policy.Title, why})
				continue
			}
			x.Rows = append(x.Rows, newRow(p, s, policy, cells))
		}
		x.shares()
		x.judge()
		all = append(all, x)
	}
	return all
}

func newRow(p plan.Plan, s plan.Situation, policy plan.Policy, cells []results.Cell) Row {
	row := Row{Policy: policy}
	for repeat := 1; repeat <= p.Repeats; repeat++ {
		i := slices.IndexFunc(cells, func(c results.Cell) bool {
			return c.Situation == s.Name && c.Policy == policy.Name && c.Repeat == repeat
		})
		name := fmt.Sprintf("repeat %d", repeat)
		switch {
		case i < 0:
			row.Missing = append(row.Missing, Reason{name, "not measured yet"})
		case cells[i].Error != "":
			row.Missing = append(row.Missing, Reason{name, withAttempts(cells[i])})
		default:
			row.Cells = append(row.Cells, cells[i])
		}
	}
	for _, w := range s.Workloads {
		if w.Batch() {
			row.Batches = append(row.Batches, row.batch(w.Name))
		} else {
			row.Services = append(row.Services, row.service(w.Name))
		}
	}
	row.Control = row.control(s)
	return row
}

// withAttempts is why a cell has no figures, with the attempts before that one.
func withAttempts(c results.Cell) string {
	if len(c.Failed) == 0 {
		return c.Error
	}
	var all []string
	for _, a := range c.Failed {
		all = append(all, a.Error)
	}
	return fmt.Sprintf("%s (and before: %s)", c.Error, strings.Join(all, "; "))
}

// over summarises a figure over the repeats.
func (r Row) over(more bool, figure func(results.Cell) float64) statistics.Summary {
	var values []float64
	for _, c := range r.Cells {
		values = append(values, figure(c))
	}
	s, _ := statistics.Summarise(values, more)
	return s
}

func (r Row) service(name string) ServiceRow {
	of := func(figure func(results.Service) float64) statistics.Summary {
		return r.over(false, func(c results.Cell) float64 {
			i := slices.IndexFunc(c.Services, func(s results.Service) bool { return s.Name == name })
			return figure(c.Services[i])
		})
	}
	x := ServiceRow{
		Name:      name,
		P50:       of(func(s results.Service) float64 { return s.P50 }),
		P95:       of(func(s results.Service) float64 { return s.P95 }),
		P99:       of(func(s results.Service) float64 { return s.P99 }),
		Throttled: of(func(s results.Service) float64 { return s.ThrottledS }),
		Usage:     of(func(s results.Service) float64 { return s.UsageM }),
		IdleClass: of(func(s results.Service) float64 { return 100 * s.IdleClass }),
	}
	of(func(s results.Service) float64 {
		x.Requests, x.Unserved = x.Requests+s.Requests, x.Unserved+s.Unserved
		return 0
	})
	return x
}

func (r Row) batch(name string) BatchRow {
	of := func(figure func(results.Batch) float64) statistics.Summary {
		return r.over(true, func(c results.Cell) float64 {
			i := slices.IndexFunc(c.Batches, func(b results.Batch) bool { return b.Name == name })
			return figure(c.Batches[i])
		})
	}
	return BatchRow{
		Name:      name,
		PerS:      of(func(b results.Batch) float64 { return b.PerS }),
		Usage:     of(func(b results.Batch) float64 { return b.UsageM }),
		IdleClass: of(func(b results.Batch) float64 { return 100 * b.IdleClass }),
	}
}

func (r Row) control(s plan.Situation) ControlRow {
	of := func(figure func(results.Cell) float64) statistics.Summary { return r.over(false, figure) }
	x := ControlRow{
		Resizes:   of(func(c results.Cell) float64 { return float64(c.Control.Resizes) }),
		PodWrites: of(func(c results.Cell) float64 { return float64(c.Control.PodWrites) }),
		System:    of(func(c results.Cell) float64 { return c.Control.SystemM }),
		OwnWrites: of(func(c results.Cell) float64 {
			writes := 0.0
			for _, part := range parts(r.Policy) {
				writes += c.Control.WritesPerMinute(part)
			}
			return writes
		}),
		ClusterWrites: of(func(c results.Cell) float64 { return c.Control.WritesPerMinute(results.WritesCluster) }),
		Busy:          of(func(c results.Cell) float64 { return float64(c.Machine.BusyM) }),
		Steal:         of(func(c results.Cell) float64 { return 100 * c.Machine.StealShare }),
	}
	for _, c := range r.Cells {
		x.Evictions, x.Restarts = x.Evictions+c.Control.Evictions, x.Restarts+c.Control.Restarts
		verdict, after := c.Judge(s.Event.Seconds(), s.Length.Seconds())
		x.Promise = append(x.Promise, Convergence{c.Repeat, verdict, after})
		x.Converged = max(x.Converged, after)
	}
	return x
}

// parts are what writes for a policy.
func parts(p plan.Policy) (all []string) {
	for part, has := range map[string]bool{
		results.WritesMBCAS: p.MBCAS, results.WritesVPA: p.VPA != "", results.WritesHPA: p.HPA,
	} {
		if has {
			all = append(all, part)
		}
	}
	return all
}

// shares sets the share of each batch job's throughput.
func (s *Section) shares() {
	best := map[string]float64{}
	for _, r := range s.Rows {
		for _, b := range r.Batches {
			best[b.Name] = max(best[b.Name], b.PerS.Median)
		}
	}
	for i := range s.Rows {
		for j := range s.Rows[i].Batches {
			if b := &s.Rows[i].Batches[j]; best[b.Name] > 0 {
				b.Share = b.PerS.Median / best[b.Name]
			}
		}
	}
}

// compared are the policies that leave the batch jobs their throughput.
func (s *Section) compared() (rows []Row) {
	for _, r := range s.Rows {
		takes := slices.ContainsFunc(r.Batches, func(b BatchRow) bool { return b.Share < leaves })
		if len(r.Cells) > 0 && !takes {
			rows = append(rows, r)
		}
	}
	return rows
}

// ours are MBCAS and MBCAS with weights. They are judged, and are no rivals of each other.
func (r Row) ours() bool { return r.Policy.MBCAS && !r.Policy.HPA }

// pair compares ours with each rival repeat by repeat: both had the same arrivals, and about the same machine.
// behind: the interval of one of them shows that it is ahead.
func (v *Verdict) pair(k int, ours Row, rows []Row) (behind bool) {
	v.Ahead = true
	for _, r := range rows {
		if r.ours() || !slices.Equal(r.repeats(), ours.repeats()) {
			continue
		}
		x, ok := statistics.Paired(r.p99(k), ours.p99(k))
		if !ok {
			continue
		}
		if v.Rival == "" || x.Mean < v.Ratio.Mean {
			v.Rival, v.Ratio = r.Policy.Title, x
		}
		behind = behind || x.High < 1
		v.Ahead = v.Ahead && x.Low > 1
	}
	v.Ahead = v.Ahead && v.Rival != ""
	return behind
}

// repeats are those that have figures.
func (r Row) repeats() (all []int) {
	for _, c := range r.Cells {
		all = append(all, c.Repeat)
	}
	return all
}

// p99 is that of a service in each repeat.
func (r Row) p99(k int) (all []float64) {
	for _, c := range r.Cells {
		i := slices.IndexFunc(c.Services, func(s results.Service) bool { return s.Name == r.Services[k].Name })
		all = append(all, c.Services[i].P99)
	}
	return all
}

// judge compares MBCAS, with weights and without, with the policies that are compared, for each service.
func (s *Section) judge() {
	for _, r := range s.Rows {
		if r.ours() && len(r.Cells) > 0 {
			s.judgeRow(r)
		}
	}
}

func (s *Section) judgeRow(ours Row) {
	for k, service := range ours.Services {
		v := Verdict{Service: service.Name, Ours: ours.Policy.Title, OurP99: service.P99}
		for _, r := range s.compared() {
			if p99 := r.Services[k].P99; v.First == "" || p99.Median < v.FirstP99.Median {
				v.First, v.FirstP99 = r.Policy.Title, p99
			}
		}
		behind := v.pair(k, ours, s.compared())
		takes := slices.ContainsFunc(ours.Batches, func(b BatchRow) bool { return b.Share < leaves })
		gap := slices.ContainsFunc(s.Rows, func(r Row) bool { return len(r.Missing) > 0 })
		v.Judged = v.First != "" && !gap && v.OurP99.N > 1 && s.Tells
		v.OK = v.Judged && !takes && !behind
		v.Ahead = v.OK && v.Ahead
		switch {
		case !s.Tells:
			v.Why = "neither requests nor priorities tell that the services are important, so no policy can know it"
		case gap:
			v.Why = "not every repeat of every policy has figures"
		case !v.Judged:
			v.Why = "a single repeat has no confidence interval"
		case takes:
			v.Why = "it leaves less than 90 % of the batch throughput"
		}
		s.Verdicts = append(s.Verdicts, v)
	}
}

//go:build linux

package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/mbcas/mbcas/test/internal/chart"
	"github.com/mbcas/mbcas/test/internal/verdict"
)

// summary is summary.json.
type summary struct {
	Checks  []verdict.Check `json:"checks"`
	Quota   *quotaFacts     `json:"quota,omitempty"`
	Use     *quotaUse       `json:"quota_use,omitempty"`
	Phases  []row           `json:"hpa_phases,omitempty"`
	Limit   int64           `json:"hpa_declared_limit_m"`
	Request int64           `json:"hpa_request_m"`
	Seed    uint64          `json:"seed"`
	Short   bool            `json:"short"`
	Busy    int64           `json:"busy_before_m"`
	Pods    int             `json:"pods_watched"`
	Faults  []string        `json:"faults"`
	Notes   []string        `json:"notes,omitempty"`
	Started time.Time       `json:"started"`
	Seconds float64         `json:"took_s"`
}

// quotaUse is the share of the quota in use, in percent, while no new pod was there.
type quotaUse struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
	// Declared is the share that the pods declare.
	Declared float64 `json:"declared"`
}

func (f facts) summary() summary {
	s := summary{Checks: f.checks(), Quota: f.Quota, Limit: f.Limit, Request: webRequest, Seed: f.Seed, Short: f.Short, Busy: f.Busy,
		Pods: f.Guard.Pods, Faults: f.Guard.Faults, Notes: f.Guard.Notes, Started: f.Started, Seconds: f.Seconds}
	for _, name := range []string{static, mbcas} {
		if r := f.Scale[name]; r != nil {
			s.Phases = append(s.Phases, r.rows(name)...)
		}
	}
	if f.Quota != nil {
		s.Use = use(f.Quota.Samples)
	}
	return s
}

func use(samples []quotaSample) *quotaUse {
	u, n := quotaUse{Declared: 100 * quotaPods * quotaLimit / float64(quotaHard)}, 0
	for _, s := range samples {
		if s.Newcomer > 0 || s.Hard == 0 {
			continue
		}
		share := 100 * float64(s.Used) / float64(s.Hard)
		u.Mean, u.Most, n = u.Mean+share, max(u.Most, share), n+1
	}
	if n == 0 {
		return nil
	}
	u.Mean /= float64(n)
	return &u
}

// report writes everything that was measured.
func (s *show) report() error {
	sum := s.facts.summary()
	sum.write(s.out)
	text, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.settings.out, "summary.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if q := s.facts.Quota; q != nil {
		if err := table(filepath.Join(s.settings.out, "quota.csv"), quotaTable(q)); err != nil {
			return err
		}
		if err := drawQuota(filepath.Join(s.settings.out, "quota"), q); err != nil {
			return err
		}
	}
	if s.facts.Scale != nil {
		if err := table(filepath.Join(s.settings.out, "hpa.csv"), scaleTable(s.facts.Scale)); err != nil {
			return err
		}
		if err := drawScale(filepath.Join(s.settings.out, "hpa"), s.facts.Scale); err != nil {
			return err
		}
	}
	s.say("\nwritten: %s", s.settings.out)
	return nil
}

// write prints the summary for people.
func (s summary) write(out io.Writer) {
	if q := s.Quota; q != nil {
		fmt.Fprintf(out, "\nquota: %d resizes; ", q.Resizes)
		if s.Use != nil {
			fmt.Fprintf(out, "%.0f %% of it in use on average, %.0f %% at most, %.0f %% declared; ", s.Use.Mean, s.Use.Most, s.Use.Declared)
		}
		fmt.Fprintf(out, "%d requests, %d unserved, p99 %s ms\n", q.Requests, q.Unserved, figure(q.P99))
		for _, a := range q.Newcomers {
			fmt.Fprintf(out, "  a new pod at second %3.0f: %dm free before, Ready after %s s, a tenth free again after %s s%s\n",
				a.Second, a.Free, seconds(a.Ready), seconds(a.Again), a.Refused)
		}
	}
	if len(s.Phases) > 0 {
		fmt.Fprintf(out, "\nservice under an HPA: requests %dm, declares %dm\n", s.Request, s.Limit)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "run\tphase\trequests/s\treplicas\tchanges\tmost\tlast change s\tunserved\tp50 ms\tp99 ms\tothers' CPU\t")
		for _, r := range s.Phases {
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\t%d\t%d\t%.0f\t%d of %d\t%s\t%s\t%dm\t\n",
				r.Run, r.Phase, r.Rate, figure(r.Replicas), r.Changes, r.Most, r.Rest, r.Unserved, r.Requests, figure(r.P50), figure(r.P99), r.Others)
		}
		w.Flush()
		fmt.Fprintf(out, "(%d ms means no answer in that time: the true figure is larger)\n", patience.Milliseconds())
	}
	fmt.Fprintln(out)
	verdict.Write(out, s.Checks)
	if s.Busy > tooBusy {
		fmt.Fprintf(out, "\nBefore the first part %d.%d cores were in use by something else: these figures are not those of a quiet machine.\n", s.Busy/1000, s.Busy%1000/100)
	}
	if s.Short {
		fmt.Fprintln(out, "\n--short: the phases were too short for these figures to count.")
	}
	met, judged := verdict.Count(s.Checks)
	fmt.Fprintf(out, "\n%d of %d targets met\n", met, judged)
	for _, n := range s.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	for _, fault := range s.Faults {
		fmt.Fprintln(out, "FAULT:", fault)
	}
}

func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

func seconds(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *v)
}

func table(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return f.Close()
}

func whole(v int64) string { return strconv.FormatInt(v, 10) }

func quotaTable(q *quotaFacts) [][]string {
	rows := [][]string{{"second", "used_m", "hard_m", "new_pod_m", "busy_limits_m", "other_limits_m", "machine_m"}}
	for _, s := range q.Samples {
		rows = append(rows, []string{fmt.Sprintf("%.0f", s.At.Seconds()), whole(s.Used), whole(s.Hard), whole(s.Newcomer), whole(s.Busy), whole(s.Idle), whole(s.Machine)})
	}
	return rows
}

func scaleTable(runs map[string]*scaleRun) [][]string {
	rows := [][]string{{"run", "second", "desired", "ready", "limits_m", "use_m", "machine_m", "p99_ms"}}
	for _, name := range []string{static, mbcas} {
		if runs[name] == nil {
			continue
		}
		for _, s := range runs[name].Samples {
			rows = append(rows, []string{name, fmt.Sprintf("%.0f", s.At.Seconds()), strconv.Itoa(s.Desired), strconv.Itoa(s.Ready),
				whole(s.Limits), whole(s.Use), whole(s.Machine), fmt.Sprintf("%.1f", s.P99)})
		}
	}
	return rows
}

// points are the values of samples over time.
func points[T any](samples []T, at func(T) time.Duration, value func(T) float64) (xys plotter.XYs) {
	for _, s := range samples {
		xys = append(xys, plotter.XY{X: at(s).Seconds(), Y: value(s)})
	}
	return xys
}

func drawQuota(path string, q *quotaFacts) error {
	if len(q.Samples) == 0 {
		return nil
	}
	until := q.Samples[len(q.Samples)-1].At
	p := chart.New("CPU limits of 20 pods in a ResourceQuota, in cores; a new pod comes every minute", chart.Tall, until, time.Minute, chart.Spans{})
	p.Ticks("%v", 0, 1, 2, 3, 4)
	p.X.Label.Text = "seconds"
	line := func(of func(quotaSample) int64) plotter.XYs {
		return points(q.Samples, func(s quotaSample) time.Duration { return s.At }, func(s quotaSample) float64 { return float64(of(s)) / 1000 })
	}
	if err := p.Area("limits of all pods", chart.Pale(chart.Green), line(func(s quotaSample) int64 { return s.Idle + s.Busy + s.Newcomer })); err != nil {
		return err
	}
	if err := p.Area("of those not busy", chart.Pale(chart.Blue), line(func(s quotaSample) int64 { return s.Idle })); err != nil {
		return err
	}
	if err := p.Line("used, as counted", chart.Green, vg.Points(1.6), true, line(func(s quotaSample) int64 { return s.Used })); err != nil {
		return err
	}
	if err := p.Line("the quota", chart.Red, vg.Points(1.6), true, line(func(s quotaSample) int64 { return s.Hard })); err != nil {
		return err
	}
	if err := p.Line("nine tenths of it", chart.Orange, vg.Points(1), true, line(func(s quotaSample) int64 { return s.Hard * 9 / 10 })); err != nil {
		return err
	}
	return chart.Write(path, []chart.Panel{p})
}

func drawScale(path string, runs map[string]*scaleRun) error {
	var behind chart.Spans
	var until time.Duration
	for _, r := range runs {
		behind.Spans, until = nil, total(r.Phases)
		for _, ph := range r.Phases {
			from, to := span(r.Phases, ph.name)
			behind.Spans = append(behind.Spans, chart.Span{Name: ph.name, From: from, To: to})
		}
	}
	named := behind
	named.Named = true
	latency := chart.New("p99 latency of the service, in ms, over 5 s (30,000: no answer)", chart.Tall, until, time.Minute, named)
	latency.Decades(5, 80_000)
	count := chart.New("replicas that the HPA asks for", chart.Low, until, time.Minute, behind)
	count.Ticks("%.0f", 0, 2, 4, 6, 8, 10)
	cores := chart.New("CPU of all replicas, in cores", chart.Low, until, time.Minute, behind)
	cores.Ticks("%v", 0, 0.5, 1, 1.5, 2)
	cores.X.Label.Text = "seconds"
	at := func(s scaleSample) time.Duration { return s.At }
	for _, name := range []string{static, mbcas} {
		r, color := runs[name], chart.Grey
		if r == nil || len(r.Samples) == 0 {
			continue
		}
		if name == mbcas {
			color = chart.Green
		}
		for _, err := range []error{
			latency.Line(name, color, vg.Points(2), false, points(r.Samples, at, func(s scaleSample) float64 { return max(5, s.P99) })),
			count.Line(name, color, vg.Points(2), true, points(r.Samples, at, func(s scaleSample) float64 { return float64(s.Desired) })),
			cores.Area(name+": use", chart.Pale(color), points(r.Samples, at, func(s scaleSample) float64 { return float64(s.Use) / 1000 })),
		} {
			if err != nil {
				return err
			}
		}
	}
	return chart.Write(path, []chart.Panel{latency, count, cores})
}

package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
)

// cell is a result of a cell: p99 of every service in ms, and throughput of every batch job.
func cell(c plan.Cell, p99, perS float64) results.Cell {
	out := results.Cell{
		Schema: results.Schema, Situation: c.Situation.Name, Policy: c.Policy.Name, Repeat: c.Repeat,
		Setup: results.Setup{Kubernetes: "v1.2.3", Cores: 2, RequestMS: map[string]float64{"web": 2.5}},
	}
	for _, w := range c.Situation.Workloads {
		if w.Batch() {
			out.Batches = append(out.Batches, results.Batch{Name: w.Name, PerS: perS})
		} else {
			out.Services = append(out.Services, results.Service{Name: w.Name, P50: p99 / 4, P99: p99, Requests: 100})
		}
	}
	return out
}

// measured are results of a whole plan.
func measured(p plan.Plan, figures func(plan.Cell) (p99, perS float64)) (all []results.Cell) {
	for _, c := range p.Cells() {
		p99, perS := figures(c)
		all = append(all, cell(c, p99, perS))
	}
	return all
}

func TestVerdicts(t *testing.T) {
	type pair = [2]float64 // p99 and throughput
	p := plan.Default(false, false)
	p.Situations = p.Situations[2:3] // requests mislead
	verdict := func(p plan.Plan, declared, none, mbcas [2]float64) Verdict {
		t.Helper()
		s := Sections(p, measured(p, func(c plan.Cell) (float64, float64) {
			v := map[string][2]float64{plan.Declared: declared, plan.None: none, plan.MBCAS: mbcas}[c.Policy.Name]
			return v[0] + float64(c.Repeat), v[1]
		}))
		if len(s) != 1 || len(s[0].Verdicts) != 4 { // two services, with weights and without
			t.Fatalf("%d sections: %+v", len(s), s)
		}
		return s[0].Verdicts[0]
	}
	for name, tt := range map[string]struct {
		declared, none, mbcas [2]float64
		first                 string
		ok                    bool
	}{
		"first":                   {pair{50, 10}, pair{90, 10}, pair{20, 10}, "MBCAS", true},
		"a little worse, always":  {pair{50, 10}, pair{19, 10}, pair{20, 10}, "no CPU limits", false},
		"worse":                   {pair{50, 10}, pair{10, 10}, pair{20, 10}, "no CPU limits", false},
		"the first starves batch": {pair{5, 8}, pair{90, 10}, pair{20, 9.5}, "MBCAS", true},
		"MBCAS takes from batch":  {pair{50, 10}, pair{90, 10}, pair{20, 8}, "declared limits", false},
	} {
		got := verdict(p, tt.declared, tt.none, tt.mbcas)
		if !got.Judged || got.First != tt.first || got.OK != tt.ok {
			t.Errorf("%s: %+v; want first %s, OK %v", name, got, tt.first, tt.ok)
		}
	}
	noisy := measured(p, func(c plan.Cell) (float64, float64) {
		v := map[string]float64{plan.Declared: 50, plan.None: 19, plan.MBCAS: 20}[c.Policy.Name]
		if c.Policy.Name == plan.MBCAS && c.Repeat%2 == 0 {
			v -= 4
		}
		if v == 0 {
			return 10, 1 // takes from the batch job
		}
		return v, 10
	})
	got := Sections(p, noisy)[0].Verdicts[0]
	if !got.Judged || !got.OK || got.Ahead || got.Ratio.Low >= 1 || got.Ratio.High <= 1 {
		t.Errorf("sometimes better, sometimes worse: %+v, want no difference shown", got)
	}
	silent := p
	silent.Situations = slices.Clone(p.Situations)
	silent.Situations[0].Tells = false
	if got := verdict(silent, pair{50, 10}, pair{90, 10}, pair{20, 10}); got.Judged || got.OK || got.Why == "" {
		t.Errorf("where nothing tells importance: %+v, want it not judged, and why", got)
	}
	gap := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })[1:]
	if got := Sections(p, gap)[0].Verdicts[0]; got.Judged || got.OK {
		t.Errorf("with a gap: %+v, want it not judged", got)
	}
	p.Repeats = 1
	if got := verdict(p, pair{50, 10}, pair{90, 10}, pair{20, 10}); got.Judged || got.OK {
		t.Errorf("with one repeat: %+v, want it not judged", got)
	}
}

// TestWeightsAreJudged: beside the other policies, and not beside MBCAS without them. What leaves too little to the
// batch job is no rival.
func TestWeightsAreJudged(t *testing.T) {
	p := plan.Default(false, false)
	p.Situations = p.Situations[2:3] // requests mislead
	s := Sections(p, measured(p, func(c plan.Cell) (float64, float64) {
		v, known := map[string][2]float64{
			plan.None: {90, 10}, plan.MBCAS: {20, 7}, plan.Weights: {30, 10}, plan.Static: {5, 3},
		}[c.Policy.Name]
		if !known {
			v = [2]float64{50, 9.5}
		}
		return v[0] + float64(c.Repeat), v[1]
	}))[0]
	if len(s.Verdicts) != 4 {
		t.Fatalf("verdicts %+v, want one for each service with weights and without", s.Verdicts)
	}
	limits, weights := s.Verdicts[0], s.Verdicts[2]
	if limits.Ours != "MBCAS" || limits.OK || !strings.Contains(limits.Why, "batch") {
		t.Errorf("%+v: want MBCAS not to be first, because of the batch job", limits)
	}
	if weights.Ours != "MBCAS with weights" || weights.First != weights.Ours || !weights.Judged || !weights.Ahead {
		t.Errorf("%+v: want weights ahead", weights)
	}
	var simple []string
	for _, x := range (Page{Sections: []Section{s}}).Simpler() {
		simple = append(simple, x.Ours+": "+x.Batch)
	}
	if want := []string{
		"MBCAS: 1.43", "MBCAS: 1.43", "MBCAS with weights: 1.00", "MBCAS with weights: 1.00",
	}; !slices.Equal(simple, want) {
		t.Errorf("batch without limits over that of %q, want %q", simple, want)
	}
}

// pages are both pages.
func pages(t *testing.T, p plan.Plan, cells []results.Cell) (markdown, html string) {
	t.Helper()
	page := New(p, cells, Settings{Root: "../../", Images: "images/"})
	var m, h strings.Builder
	if err := errors.Join(page.Markdown(&m), page.HTML(&h)); err != nil {
		t.Fatal(err)
	}
	return m.String(), h.String()
}

func TestEveryCellHasAFigureOrAReason(t *testing.T) {
	p := plan.Default(false, false)
	p.Repeats = 2
	var cells []results.Cell
	for i, c := range p.Cells() {
		x := cell(c, 100+float64(i), 5)
		switch i % 3 {
		case 1:
			continue
		case 2:
			x.Error = fmt.Sprintf("broken %d", i)
		}
		cells = append(cells, x)
	}
	markdown, html := pages(t, p, cells)
	for i, c := range p.Cells() {
		for name, page := range map[string]string{"Markdown": markdown, "HTML": html} {
			section := page[strings.Index(page, c.Situation.Question):]
			if next := strings.Index(section, "\n## "); name == "Markdown" && next > 0 {
				section = section[:next]
			}
			switch i % 3 {
			case 0:
				if want := fmt.Sprintf("%.2f", 100+float64(i)); name == "HTML" && !strings.Contains(section, want) {
					t.Errorf("%s: %s lacks its figure %s", name, c.Name(), want)
				}
			case 1:
				want := fmt.Sprintf(`%s.*repeat %d(, repeat \d+)*: not measured yet`, c.Policy.Title, c.Repeat)
				if !regexp.MustCompile(want).MatchString(section) {
					t.Errorf("%s: %s lacks that it was not measured", name, c.Name())
				}
			case 2:
				if !strings.Contains(section, fmt.Sprintf("repeat %d: broken %d", c.Repeat, i)) {
					t.Errorf("%s: %s lacks its error", name, c.Name())
				}
			}
		}
	}
}

func TestDisclosure(t *testing.T) {
	p := plan.Default(false, false)
	markdown, _ := pages(t, p, nil)
	if !strings.Contains(markdown, "Nothing has been measured") || strings.Contains(markdown, "<no value>") {
		t.Error("an empty evaluation does not say so")
	}
	full, _ := pages(t, p, measured(p, func(c plan.Cell) (float64, float64) { return float64(10 + c.Repeat), 3 }))
	for _, page := range []string{markdown, full} {
		if !strings.Contains(page, "planned to take 2h40m;") {
			t.Error("it is not said how long everything takes")
		}
		for _, x := range p.Policies {
			if !strings.Contains(page, "| "+x.Title+" | "+x.Settings+" |") {
				t.Errorf("the settings of %s are not there", x.Name)
			}
		}
		for _, s := range p.Situations {
			for _, w := range s.Workloads {
				if row := fmt.Sprintf("| %v | %v |", w.Request, w.Limit); !strings.Contains(page, row) {
					t.Errorf("%s: request and limit of %s are not there", s.Name, w.Name)
				}
			}
			for _, x := range p.Policies {
				if why := p.WhyNot(s, x.Name); why != "" && !strings.Contains(page, x.Title+": not played; "+why) {
					t.Errorf("%s: it is not said why %s is not there", s.Name, x.Name)
				}
			}
		}
	}
	for _, want := range []string{"v1.2.3", "2 cores", "web 2.5 ms"} {
		if !strings.Contains(full, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// TestPlayedIsTold: cells that were played on another day than the others are seen on the page.
func TestPlayedIsTold(t *testing.T) {
	p := plan.Default(true, false)
	cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
	for i := range cells {
		cells[i].Started = time.Date(2026, 5, 4, 12, i, 0, 0, time.UTC)
	}
	cells[2].Started = time.Date(2026, 5, 6, 8, 30, 0, 0, time.UTC)
	cells[3].Started, cells[3].Error = time.Date(2026, 5, 9, 8, 30, 0, 0, time.UTC), "no pod is Ready"
	markdown, _ := pages(t, p, cells)
	if want := "played from 2026-05-04 12:00 to 2026-05-06 08:30 UTC."; !strings.Contains(markdown, want) {
		t.Errorf("it is not told: %s", want)
	}
}

// TestPictures: each is well-formed and has a line for every service under every policy.
func TestPictures(t *testing.T) {
	p := plan.Default(false, false)
	cells := measured(p, func(c plan.Cell) (float64, float64) { return float64(c.Repeat * 40), 3 })
	for _, s := range Sections(p, cells) {
		svg := Picture(s)
		lines := 0
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				lines++
			}
		}
		if want := 2 * len(s.Rows) * len(s.Rows[0].Services); lines != want {
			t.Errorf("%s: %d circles, want two for each of %d lines", s.Name, lines, want/2)
		}
	}
	if got := Picture(Sections(p, nil)[0]); got != "" {
		t.Errorf("nothing was measured: %s", got)
	}
}

// pod is the limits of a pod that has one until a second, and another from then to its end.
func pod(s plan.Situation, change float64) (p results.PodLimits) {
	p.Workload = s.Workloads[0].Name
	for at := 0.0; at <= s.Length.Seconds(); at++ {
		limit := int64(500)
		if at >= change {
			limit = 900
		}
		p.Add(at, limit)
	}
	p.Converge(s.Event.Seconds())
	return p
}

// TestConvergence: the page says for each cell whether the promise was kept, and in how many with MBCAS in all.
func TestConvergence(t *testing.T) {
	p := plan.Default(false, false)
	for name, tt := range map[string]struct {
		situation string
		change    float64 // of a pod of MBCAS in the second repeat; all others change 4 s after the event
		summary   string
		row       string
	}{
		"kept": {
			"step", 17, "kept in 40 of 40 cells with MBCAS, of which 5 were watched for at least 70 s",
			"12 s | kept in all 5",
		},
		"still changing": {
			"step", 27, "It was not shown in 1 of 5 of",
			"22 s | kept in repeat 1, 3, 4, 5; not shown in repeat 2",
		},
		"missed": {
			"no-priority", 70, "It was missed in 1 of 5 of",
			"65 s | kept in repeat 1, 3, 4, 5; missed in repeat 2",
		},
	} {
		cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
		for i, c := range p.Cells() {
			change := 9.0
			if c.Policy.Name == plan.MBCAS && c.Repeat == 2 && c.Situation.Name == tt.situation {
				change = tt.change
			}
			cells[i].Pods = []results.PodLimits{pod(c.Situation, 9), pod(c.Situation, change)}
		}
		markdown, html := pages(t, p, cells)
		if got := New(p, cells, Settings{}).Convergence(); !strings.Contains(got, tt.summary) {
			t.Errorf("%s: %q, want %q", name, got, tt.summary)
		}
		if !strings.Contains(markdown, tt.row) {
			t.Errorf("%s: no row has %q", name, tt.row)
		}
		if want := fmt.Sprintf("500 at 0, 900 at %.0f", tt.change); !strings.Contains(html, want) {
			t.Errorf("%s: the HTML page lacks %q", name, want)
		}
	}
}

// TestUnchangedLimitsAreTold: they keep the promise whether MBCAS acts or not.
func TestUnchangedLimitsAreTold(t *testing.T) {
	p := plan.Default(false, false)
	cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
	for i, c := range p.Cells() {
		change := 9.0
		if c.Policy.Name == plan.MBCAS && c.Repeat <= 2 && c.Situation.Name == "step" {
			change = 1000 // it does not end so late
		}
		cells[i].Pods = []results.PodLimits{pod(c.Situation, change)}
	}
	got := New(p, cells, Settings{}).Convergence()
	for _, want := range []string{"kept in 40 of 40", "In 2 of the cells no limit differed"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDocument: evaluation.json is read again as it was, and has the figures, intervals and verdicts of the page.
func TestDocument(t *testing.T) {
	p := plan.Default(false, false)
	cells := measured(p, func(c plan.Cell) (float64, float64) {
		if c.Policy.Name == plan.MBCAS {
			return float64(19 + c.Repeat), 3
		}
		return float64(39 + 2*c.Repeat), 3
	})
	page := New(p, cells, Settings{})
	var text strings.Builder
	var got Document
	if err := errors.Join(page.JSON(&text), json.Unmarshal([]byte(text.String()), &got)); err != nil {
		t.Fatal(err)
	}
	if len(got.Cells) != len(cells) || len(got.Situations) != len(p.Situations) || got.Measured != len(cells) {
		t.Fatalf("%d cells, %d situations, %d measured", len(got.Cells), len(got.Situations), got.Measured)
	}
	s := got.Situations[2]
	verdict := DocumentVerdict{Verdict: "?"}
	if len(s.Verdicts) > 0 {
		verdict = s.Verdicts[0]
	}
	if verdict.First != "MBCAS" || verdict.Verdict != "first" || verdict.Ratio.N != 5 || verdict.Ratio.Low <= 1.9 {
		t.Errorf("verdict %+v, want MBCAS to be first by about two", verdict)
	}
	i := slices.IndexFunc(s.Policies, func(x DocumentPolicy) bool { return x.Name == plan.MBCAS })
	if p99 := s.Policies[i].Services["web"].P99; p99.Median != 22 || p99.Low != 20 || p99.High != 24 {
		t.Errorf("p99 of MBCAS: %+v, want 22 [20, 24]", p99)
	}
	if n := len(s.Policies[i].Convergence); n != p.Repeats {
		t.Errorf("%d cells say whether they converged, want %d", n, p.Repeats)
	}
}

// TestWritesOfThePolicy: each policy has the writes of its own parts, and not those of what runs beside it.
func TestWritesOfThePolicy(t *testing.T) {
	p := plan.Default(false, true)
	cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
	for i := range cells {
		cells[i].Control.WritesS = 30
		cells[i].Control.Writes = map[string]map[string]int{
			results.WritesMBCAS: {"leases": 1, "pods/resize": 2}, results.WritesVPA: {"leases": 4},
			results.WritesHPA: {"deployments/scale": 8}, results.WritesCluster: {"pods/status": 16},
		}
	}
	want := map[string]float64{plan.MBCAS: 6, plan.VPATuned: 8, plan.HPA: 16, plan.HPAMBCAS: 22, plan.None: 0}
	for _, r := range Sections(p, cells)[2].Rows {
		own, ok := want[r.Policy.Name]
		if ok && r.Control.OwnWrites.Median != own || r.Control.ClusterWrites.Median != 32 {
			t.Errorf("%s: %+v, want %v of its own a minute and 32 of the cluster", r.Policy.Name, r.Control, own)
		}
	}
}

// TestIdleClassIsTold: how long workloads were in the idle class is in the tables, in percent of the time.
func TestIdleClassIsTold(t *testing.T) {
	p := plan.Default(true, false)
	p.Situations = p.Situations[2:3] // requests mislead
	cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 5 })
	for i := range cells {
		if cells[i].Policy == plan.Weights {
			cells[i].Batches[0].IdleClass, cells[i].Services[0].IdleClass = 0.87, 0.035
		}
	}
	markdown, _ := pages(t, p, cells)
	name := cells[0].Services[0].Name
	for what, want := range map[string]string{
		"the job":             `\| MBCAS with weights \|[^\n]*\| 87 % \|`,
		"the service":         `\| MBCAS with weights \| ` + name + ` \|[^\n]*\| 3\.5 % \|\n`,
		"the job without":     `\| MBCAS \|[^\n]*\| 0 % \|`,
		"the service without": `\| MBCAS \| ` + name + ` \|[^\n]*\| 0\.0 % \|\n`,
	} {
		if !regexp.MustCompile(want).MatchString(markdown) {
			t.Errorf("%s: no row like %s in\n%s", what, want, markdown)
		}
	}
}

// TestBusyMachineIsTold: figures from beside other work are never shown without saying so.
func TestBusyMachineIsTold(t *testing.T) {
	p := plan.Default(true, false)
	for busy, want := range map[int64]bool{tooBusy: false, tooBusy + 1: true} {
		cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
		cells[3].Machine.BusyBeforeM = busy
		markdown, html := pages(t, p, cells)
		told := fmt.Sprintf("1 of %d cells began", len(cells))
		if strings.Contains(markdown, told) != want || strings.Contains(html, told) != want {
			t.Errorf("busy with %dm: told %v, want %v", busy, strings.Contains(markdown, told), want)
		}
	}
}

// TestFailedAttemptsAreTold: with their number and reasons, also where there are figures now.
func TestFailedAttemptsAreTold(t *testing.T) {
	p := plan.Default(true, false)
	cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
	if markdown, _ := pages(t, p, cells); strings.Contains(markdown, "attempts failed") {
		t.Error("no attempt failed, and one is told")
	}
	cells[0].Failed = []results.Attempt{{Error: "no pod is Ready"}, {Error: "evicted"}}
	markdown, _ := pages(t, p, cells)
	want := "2 attempts failed and were played again; repeat 1: no pod is Ready; repeat 1: evicted"
	if !strings.Contains(markdown, want) {
		t.Errorf("it is not told: %s", want)
	}
	cells[0].Error = "it did not end in 4m"
	markdown, _ = pages(t, p, cells)
	want = "repeat 1: it did not end in 4m (and before: no pod is Ready; evicted)"
	if !strings.Contains(markdown, want) {
		t.Errorf("without figures it is not told: %s", want)
	}
}

// TestUncommittedVersionsAreTold: no commit has what such figures are of.
func TestUncommittedVersionsAreTold(t *testing.T) {
	p := plan.Default(true, false)
	for version, want := range map[string]bool{"v1-3-gabc": false, "v1-3-gabc-dirty": true, "dev": true} {
		cells := measured(p, func(plan.Cell) (float64, float64) { return 10, 3 })
		for i := range cells {
			cells[i].Setup.MBCAS = version
		}
		markdown, html := pages(t, p, cells)
		const told = "changes that are in no commit"
		if strings.Contains(markdown, told) != want || strings.Contains(html, told) != want {
			t.Errorf("version %s: told %v, want %v", version, strings.Contains(markdown, told), want)
		}
	}
}

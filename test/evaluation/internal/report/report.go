package report

import (
	"embed"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/statistics"
)

//go:embed page.md.tmpl page.html.tmpl
var files embed.FS

// Page is everything that the pages show.
type Page struct {
	plan.Plan
	Sections                  []Section
	Measured, Planned, Failed int
	Setup                     string // versions and machine, as the results say
	RequestMS, Machine        string
	Busy                      string // how many cells began on a busy machine; "": none
	Uncommitted               bool   // the version of MBCAS is of no commit
	Timeout, MinAge, Learning time.Duration
	Warm                      time.Duration
	Planning                  string         // about how long everything takes
	Others                    map[string]int // cells that are left out, by their setup
	ClassValue                int
	Late                      string
	Played                    string // from the start of the first cell to that of the last
	Packages                  string // versions of the workloads' Debian packages; "": not known
	Root, Images              string // paths from the page to the repository and to the pictures
	Gaps                      []Reason
	Raw                       []results.Cell
}

// tooBusy is how much CPU cluster and other programs may use before a cell, in thousandths of a core: latencies of
// cells above it say little.
const tooBusy = 400

// Data is where the page says that its data are.
func (p Page) Data() string {
	if p.Measured == 0 {
		return ""
	}
	return "evaluation.json"
}

// Settings are what the report takes from the programs that measured.
type Settings struct {
	Timeout time.Duration
	// Root and Images are the paths from the page to the repository's root and to the pictures.
	Root, Images string
}

// New is the page of a plan with the results of its cells.
func New(p plan.Plan, cells []results.Cell, s Settings) Page {
	cells, others := results.OfOneSetup(cells)
	page := Page{
		Plan: p, Sections: Sections(p, cells), Planned: len(p.Cells()),
		Timeout: s.Timeout, MinAge: plan.MinAge, Warm: plan.Warm, Others: others,
		ClassValue: plan.ImportantValue, Root: s.Root, Images: s.Images, Gaps: gaps, Raw: cells,
	}
	page.Planning = strings.TrimSuffix(p.Takes().Round(time.Minute).String(), "0s")
	for _, x := range p.Policies {
		page.Learning = max(page.Learning, x.Learning)
	}
	busy := 0
	setups, machine, late := map[string]bool{}, []float64(nil), 0.0
	for _, c := range cells {
		if c.Error != "" {
			page.Failed++
			continue
		}
		page.Measured++
		setups[c.Setup.Identity()+"."] = true
		page.Uncommitted = page.Uncommitted || c.Setup.MBCAS == "dev" || strings.HasSuffix(c.Setup.MBCAS, "-dirty")
		page.RequestMS, page.Packages = requestMS(c.Setup.RequestMS), c.Setup.Packages
		machine = append(machine, c.Machine.CalibrationMS)
		if c.Machine.BusyBeforeM > tooBusy {
			busy++
		}
		for _, service := range c.Services {
			late = max(late, service.LateP99)
		}
	}
	page.Setup = strings.Join(slices.Sorted(maps.Keys(setups)), " And: ")
	page.Late = short(late)
	page.Played = played(cells)
	if busy > 0 {
		page.Busy = fmt.Sprintf("%d of %d cells began while the machine without pods used more than %dm of CPU",
			busy, page.Measured, tooBusy)
	}
	if len(machine) > 0 {
		page.Machine = fmt.Sprintf("%s to %s ms", short(slices.Min(machine)), short(slices.Max(machine)))
	}
	return page
}

// played is from when to when cells with figures were started, in UTC; "": there are none.
func played(cells []results.Cell) string {
	var all []time.Time
	for _, c := range cells {
		if c.Error == "" {
			all = append(all, c.Started)
		}
	}
	if len(all) == 0 {
		return ""
	}
	const form = "2006-01-02 15:04"
	first, last := slices.MinFunc(all, time.Time.Compare), slices.MaxFunc(all, time.Time.Compare)
	return first.UTC().Format(form) + " to " + last.UTC().Format(form) + " UTC"
}

func requestMS(costs map[string]float64) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(costs)) {
		all = append(all, fmt.Sprintf("%s %s ms", kind, short(costs[kind])))
	}
	return strings.Join(all, ", ")
}

// Markdown writes the page.
func (p Page) Markdown(w io.Writer) error {
	t, err := template.New("page.md.tmpl").Funcs(functions).ParseFS(files, "page.md.tmpl")
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// HTML writes the page with the raw data.
func (p Page) HTML(w io.Writer) error {
	t, err := htmltemplate.ParseFS(files, "page.html.tmpl")
	if err != nil {
		return err
	}
	return t.Execute(w, htmlPage{p})
}

// htmlPage has pictures as HTML.
type htmlPage struct{ Page }

// Picture hides that of Page, whose text would be escaped. It has no text that is not escaped in it.
func (p htmlPage) Picture(s Section) htmltemplate.HTML { return htmltemplate.HTML(Picture(s)) }

// Picture is that of a section as SVG; "" where nothing was measured.
func (p Page) Picture(s Section) string { return Picture(s) }

// Simple is one row of the comparison of MBCAS, with weights or without, with the simple alternatives.
type Simple struct{ Situation, Service, Ours, None, Declared, Static, VPA, Batch string }

// Simpler compares MBCAS with what needs no MBCAS.
func (p Page) Simpler() (all []Simple) {
	for _, s := range p.Sections {
		for _, ours := range s.Rows {
			if ours.ours() && len(ours.Cells) > 0 {
				all = append(all, s.simpler(ours)...)
			}
		}
	}
	return all
}

func (s Section) simpler(ours Row) (all []Simple) {
	for k, service := range ours.Services {
		x := Simple{s.Title, service.Name, ours.Policy.Title, "-", "-", "-", "-", "-"}
		for name, to := range map[string]*string{
			plan.None: &x.None, plan.Declared: &x.Declared, plan.Static: &x.Static, plan.VPATuned: &x.VPA,
		} {
			if r, ok := s.row(name); ok {
				*to = ratio(r.Services[k].P99.Median, service.P99.Median)
			}
		}
		if r, ok := s.row(plan.None); ok && len(r.Batches) > 0 {
			x.Batch = ratio(r.Batches[0].PerS.Median, ours.Batches[0].PerS.Median)
		}
		all = append(all, x)
	}
	return all
}

// row is the one of a policy that has figures.
func (s Section) row(name string) (Row, bool) {
	i := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Policy.Name == name && len(r.Cells) > 0 })
	if i < 0 {
		return Row{}, false
	}
	return s.Rows[i], true
}

func ratio(a, b float64) string {
	if b <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// functions of the Markdown template.
var functions = template.FuncMap{
	"median": func(s statistics.Summary) string { return figure(s, s.Median) },
	"worst":  func(s statistics.Summary) string { return figure(s, s.Worst) },
	"milli": func(s statistics.Summary) string {
		if s.N == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0fm", s.Median)
	},
	"percent": func(s statistics.Summary) string {
		if s.N == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", s.Median)
	},
	"interval": interval,
	"verdict":  verdict,
	"paired":   paired,
	"attempts": attempts,
	"load":     load,
	"batch":    func(r Row) string { return batches(r, func(b BatchRow) string { return interval(b.PerS) }) },
	"batchUsage": func(r Row) string {
		return batches(r, func(b BatchRow) string { return fmt.Sprintf("%.0fm", b.Usage.Median) })
	},
	"batchIdle": func(r Row) string {
		return batches(r, func(b BatchRow) string { return fmt.Sprintf("%.0f %%", b.IdleClass.Median) })
	},
	"share": func(r Row) string {
		return batches(r, func(b BatchRow) string { return fmt.Sprintf("%.0f %%", 100*b.Share) })
	},
	"converged": converged,
	"promise":   promised,
	"missing":   missing,
}

// missing says which repeats of a row have no figures, by reason; "": none.
func missing(r Row) string {
	var reasons []string
	repeats := map[string][]string{}
	for _, m := range r.Missing {
		why := strings.Join(strings.Fields(m.Why), " ")
		if repeats[why] == nil {
			reasons = append(reasons, why)
		}
		repeats[why] = append(repeats[why], m.What)
	}
	var all []string
	for _, why := range reasons {
		all = append(all, strings.Join(repeats[why], ", ")+": "+why)
	}
	if len(all) == 0 {
		return ""
	}
	return r.Policy.Title + ": " + strings.Join(all, "; ")
}

func figure(s statistics.Summary, v float64) string {
	if s.N == 0 {
		return "-"
	}
	return short(v)
}

func interval(s statistics.Summary) string {
	switch s.N {
	case 0:
		return "-"
	case 1:
		return short(s.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", short(s.Median), short(s.Low), short(s.High))
}

// paired is the ratio of the best rival over ours.
func paired(v Verdict) string {
	if v.Rival == "" {
		return "-"
	}
	return fmt.Sprintf("%s: %s [%s, %s]", v.Rival, short(v.Ratio.Mean), short(v.Ratio.Low), short(v.Ratio.High))
}

// attempts are the attempts of a row that failed before there were figures, with their reasons; "": none.
func attempts(r Row) string {
	var all []string
	for _, c := range r.Cells {
		for _, a := range c.Failed {
			all = append(all, fmt.Sprintf("repeat %d: %s", c.Repeat, strings.Join(strings.Fields(a.Error), " ")))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d attempts failed and were played again; %s", r.Policy.Title, len(all),
		strings.Join(all, "; "))
}

func verdict(tells bool, v Verdict) string {
	switch {
	case !v.Judged:
		return "not judged: " + v.Why
	case v.Ahead:
		return "first"
	case v.OK:
		return "no difference to the first shown"
	case v.Why != "":
		return "no: " + v.Why
	case tells:
		return "behind; not explained yet"
	}
	return "behind"
}

// batches is a figure of each batch job of a row that was measured.
func batches(r Row, figure func(BatchRow) string) string {
	var all []string
	for _, b := range r.Batches {
		if b.PerS.N > 0 {
			all = append(all, figure(b))
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ", ")
}

// load says what a workload does.
func load(w plan.Workload) string {
	if w.Batch() {
		return fmt.Sprintf("%d threads from the event on", w.Threads)
	}
	first, last := w.Load[0].Cores, w.Load[len(w.Load)-1].Cores
	if first == last {
		return fmt.Sprintf("%.2f cores", first)
	}
	return fmt.Sprintf("%.2f cores, from the event on %.2f", first, last)
}

// short is a number with three digits.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

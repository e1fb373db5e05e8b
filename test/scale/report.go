package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what was measured.
type report struct {
	options options
	began   time.Time
	rows    []*row
}

func newReport(o options) *report { return &report{options: o, began: time.Now()} }

// row is one phase.
type row struct {
	name    string
	note    string
	length  time.Duration
	writes  map[string]float64 // per second, by kind
	ours    float64            // writes per second of MBCAS, without heartbeats
	beats   float64            // writes of Leases per second
	watched map[string]float64 // watch events that the API server delivered per second, by kind
	queue   distribution       // seconds in the controller's queue of nodes
	work    distribution       // seconds to deal with a node
	latency map[string]distribution

	maxDepth   float64
	controller process
	apiserver  process
	etcd       process
	etcdSize   float64 // bytes at the end
	etcdGrowth float64 // bytes per second
	heap       float64 // of the controller, bytes
	load       float64 // of the machine, at the end

	seen                 seen
	waitFor              map[string]int // of pods that have waited for 5 s at the end, by reason
	pause                time.Duration
	restore              time.Duration
	toRestore            int
	unrestored, replaced int
	refused, failed      int64
	kubeletErrors        int64
}

// process is what a program takes.
type process struct{ cores, resident float64 }

// fill works the figures of a phase out.
func (r *row) fill(w *world, before, after snapshot) {
	r.length = after.at.Sub(before.at)
	s := r.length.Seconds()
	r.writes = difference(writesOf(after), writesOf(before))
	for kind := range r.writes {
		r.writes[kind] /= s
		switch {
		case strings.HasSuffix(kind, " leases"):
			r.beats += r.writes[kind]
		case !notOurs[kind]:
			r.ours += r.writes[kind]
		}
	}
	r.watched = difference(watchedOf(after), watchedOf(before))
	for kind := range r.watched {
		r.watched[kind] /= s
	}
	nodes := labels{"name": "nodes"}
	r.queue = since(after, before, "workqueue_queue_duration_seconds", nodes)
	r.work = since(after, before, "workqueue_work_duration_seconds", nodes)
	r.latency = map[string]distribution{}
	for name := range after.controller {
		if d := since(after, before, name, nil); strings.HasPrefix(name, "mbcas_controller_") && d.count() > 0 {
			r.latency[name] = d
		}
	}
	used := func(of func(snapshot) families) process {
		const cpu, memory = "process_cpu_seconds_total", "process_resident_memory_bytes"
		return process{(of(after).sum(cpu, nil) - of(before).sum(cpu, nil)) / s, of(after).sum(memory, nil)}
	}
	r.controller = used(func(s snapshot) families { return s.controller })
	r.apiserver = used(func(s snapshot) families { return s.api })
	r.etcd = used(func(s snapshot) families { return s.etcd })
	r.heap = after.controller.sum("go_memstats_heap_inuse_bytes", nil)
	const size = "etcd_mvcc_db_total_size_in_bytes"
	r.etcdSize = after.etcd.sum(size, nil)
	r.etcdGrowth = (r.etcdSize - before.etcd.sum(size, nil)) / s
	r.load = machineLoad()
	r.refused, r.failed, r.kubeletErrors = w.agents.refused.Load(), w.agents.failed.Load(), w.kubelets.Errors()
}

// writesOf are all writes so far, by kind.
func writesOf(s snapshot) map[string]float64 { return s.api.by("apiserver_request_total", writeKind) }

// watchedOf are all watch events so far, by kind.
func watchedOf(s snapshot) map[string]float64 {
	return s.api.by("apiserver_watch_events_total", watchKind)
}

func since(after, before snapshot, name string, want labels) distribution {
	return after.controller.histogram(name, want).since(before.controller.histogram(name, want))
}

// watchKind names the resource of a watch event.
func watchKind(l labels) string {
	if l["resource"] != "" {
		return l["resource"]
	}
	return l["kind"]
}

// machineLoad is the machine's load average of the last minute.
func machineLoad() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return math.NaN()
	}
	_, _ = fmt.Sscan(string(text), &load)
	return load
}

// of is a quantile of sorted durations in seconds; NaN without any.
func of(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Seconds()
}

// text is the quantiles of waits with their number.
func (w waits) text() string {
	if len(w.times) == 0 {
		return "-"
	}
	return pair(of(w.times, 0.5), of(w.times, 0.99)) + fmt.Sprintf(" (%d, %d open)", len(w.times), w.open)
}

// number is a figure for a table: "-" for none.
func number(v float64, decimals int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

func pair(a, b float64) string { return number(a, 2) + " / " + number(b, 2) }

func total(m map[string]float64) (sum float64) {
	for v := range maps.Values(m) {
		sum += v
	}
	return sum
}

const mebibyte = 1 << 20

// line is the row in one line.
func (r *row) line() string {
	return fmt.Sprintf("%-9s %3.0f s: %.1f writes/s and %.1f Leases/s, %.0f watch events/s, +%d -%d limits, "+
		"waits of throttled pods %s, of others %s, queue %s s, depth %.0f, "+
		"controller %.2f cores %.0f MiB, API server %.2f cores, "+
		"etcd %.0f MiB, load %.1f %s",
		r.name, r.length.Seconds(), r.ours, r.beats, total(r.watched), r.seen.increases, r.seen.decreases,
		r.seen.before.text(), r.seen.probes.text(),
		pair(r.queue.quantile(0.5), r.queue.quantile(0.99)), r.maxDepth,
		r.controller.cores, r.controller.resident/mebibyte, r.apiserver.cores, r.etcdSize/mebibyte, r.load, r.note)
}

// column is a figure of a row.
type column struct {
	name  string
	value func(*report, *row) string
}

var columns = []column{
	{"phase", func(_ *report, r *row) string { return r.name }},
	{"s", func(_ *report, r *row) string { return number(r.length.Seconds(), 0) }},
	{"writes/s", func(_ *report, r *row) string { return number(r.ours, 1) }},
	{"per pod and min", func(p *report, r *row) string { return number(60*r.ours/float64(p.options.pods), 4) }},
	{"Leases/s", func(_ *report, r *row) string { return number(r.beats, 1) }},
	{"watch events/s", func(_ *report, r *row) string { return number(total(r.watched), 0) }},
	{"limits raised, lowered", func(_ *report, r *row) string {
		return fmt.Sprintf("%d, %d", r.seen.increases, r.seen.decreases)
	}},
	{"wait of pods throttled before, p50 / p99 s", func(_ *report, r *row) string { return r.seen.before.text() }},
	{"wait of pods throttled since, p50 / p99 s", func(_ *report, r *row) string { return r.seen.probes.text() }},
	{"queue p50 / p99 s", func(_ *report, r *row) string {
		return pair(r.queue.quantile(0.5), r.queue.quantile(0.99))
	}},
	{"deepest", func(_ *report, r *row) string { return number(r.maxDepth, 0) }},
	{"node p50 / p99 s", func(_ *report, r *row) string { return pair(r.work.quantile(0.5), r.work.quantile(0.99)) }},
	{"controller cores", func(_ *report, r *row) string { return number(r.controller.cores, 3) }},
	{"per 1,000 pods", func(p *report, r *row) string {
		return number(1000*r.controller.cores/float64(p.options.pods), 4)
	}},
	{"RSS MiB", func(_ *report, r *row) string { return number(r.controller.resident/mebibyte, 0) }},
	{"heap MiB", func(_ *report, r *row) string { return number(r.heap/mebibyte, 0) }},
	{"API server cores", func(_ *report, r *row) string { return number(r.apiserver.cores, 2) }},
	{"API server MiB", func(_ *report, r *row) string { return number(r.apiserver.resident/mebibyte, 0) }},
	{"etcd MiB", func(_ *report, r *row) string { return number(r.etcdSize/mebibyte, 0) }},
	{"etcd KiB/s", func(_ *report, r *row) string { return number(r.etcdGrowth/1024, 0) }},
	{"load", func(_ *report, r *row) string { return number(r.load, 1) }},
}

// target is a figure with its bound.
type target struct {
	what, want string
	got        func(*report) (text string, met, known bool)
}

var targets = []target{
	{"pause acknowledged", "2 s", below("pause", 2, "s", func(_ *report, r *row) float64 { return r.pause.Seconds() })},
	{"increase of a pod throttled while all namespaces switch to enforce, p99", "2 s",
		below("switch", 2, "s", func(_ *report, r *row) float64 { return of(r.seen.probes.times, 0.99) })},
	{"increase of the pods throttled before, since the switch, p99", "2 s",
		below("switch", 2, "s", func(_ *report, r *row) float64 { return of(r.seen.before.times, 0.99) })},
	{"controller's queue of nodes, p99, in any phase", "1 s", func(p *report) (string, bool, bool) {
		worst := math.Inf(-1)
		for _, r := range p.rows {
			if q := r.queue.quantile(0.99); q > worst {
				worst = q
			}
		}
		return number(worst, 2) + " s", worst < 1, !math.IsInf(worst, -1)
	}},
	{"controller's memory at its highest", "300 MiB", func(p *report) (string, bool, bool) {
		most := 0.0
		for _, r := range p.rows {
			most = max(most, r.controller.resident/mebibyte)
		}
		return number(most, 0) + " MiB", most <= 300, most > 0
	}},
	{"restore of all", "10 min, 100 pods/s", restored},
	{"writes of MBCAS without heartbeats per pod and minute, recommend", "0.05",
		below("recommend", 0.05, "", func(p *report, r *row) float64 { return 60 * r.ours / float64(p.options.pods) })},
	{"etcd", "2048 MiB", func(p *report) (string, bool, bool) {
		most := 0.0
		for _, r := range p.rows {
			most = max(most, r.etcdSize/mebibyte)
		}
		return number(most, 0) + " MiB", most < 2048, most > 0
	}},
}

// below is a figure of one phase that must not be above most.
func below(phase string, most float64, unit string, f func(*report, *row) float64) func(*report) (string, bool, bool) {
	return func(p *report) (string, bool, bool) {
		for _, r := range p.rows {
			if v := f(p, r); r.name == phase && !math.IsNaN(v) {
				return strings.TrimSpace(number(v, 3) + " " + unit), v <= most, true
			}
		}
		return "-", false, false
	}
}

func restored(p *report) (text string, met, known bool) {
	for _, r := range p.rows {
		if r.name == "restore" && r.restore > 0 {
			n := r.toRestore - r.unrestored
			rate := float64(n) / r.restore.Seconds()
			text = fmt.Sprintf("%d of %d pods in %.1f s, %.0f pods/s", n, r.toRestore, r.restore.Seconds(), rate)
			return text, r.unrestored == 0 && r.restore < 10*time.Minute && rate >= 100, true
		}
	}
	return "-", false, false
}

// markdown writes the report as a page.
func (p *report) markdown(out io.Writer) {
	o := p.options
	fmt.Fprintf(out, "# %d simulated nodes and %d pods\n\n", o.nodes, o.pods)
	fmt.Fprintf(out, "%s, commit %s, %s, %d CPUs, load of the machine %.1f at the end. ",
		p.began.UTC().Format(time.RFC3339), commit(), runtime.Version(), runtime.NumCPU(), machineLoad())
	fmt.Fprintf(out, "Throttled pods %.0f %%, contended nodes %.0f %%, churn %.0f %% per minute. ",
		100*o.throttled, 100*o.contended, 100*o.churn)
	fmt.Fprintf(out, "Flags of the controller: `%s`. Control plane: `%s`. ",
		strings.Join(o.args, " "), strings.Join(disclosed(), "`, `"))
	fmt.Fprint(out, "API server, etcd, agents, kubelets and controller share the CPUs.\n\n")
	fmt.Fprint(out, "| figure | target | measured | |\n| --- | --- | --- | --- |\n")
	for _, t := range targets {
		text, met, known := t.got(p)
		verdict := "missed"
		switch {
		case !known:
			verdict = "not measured"
		case met:
			verdict = "met"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", t.what, t.want, text, verdict)
	}
	fmt.Fprintln(out)
	p.table(out)
	for _, r := range p.rows {
		fmt.Fprintf(out, "\n## %s\n\n", r.name)
		if r.note != "" {
			fmt.Fprintf(out, "%s.\n\n", r.note)
		}
		lists := []struct {
			head string
			of   map[string]float64
		}{{"writes/s", r.writes}, {"watch events/s", r.watched}}
		for _, l := range lists {
			fmt.Fprintf(out, "%s: %s.\n\n", l.head, rates(l.of))
		}
		for _, name := range slices.Sorted(maps.Keys(r.latency)) {
			d := r.latency[name]
			fmt.Fprintf(out, "%s: %.0f, p50 / p99 %s.\n\n", name, d.count(), pair(d.quantile(0.5), d.quantile(0.99)))
		}
		for _, reason := range slices.Sorted(maps.Keys(r.waitFor)) {
			fmt.Fprintf(out, "Have waited for 5 s at the end: %d, %s.\n\n", r.waitFor[reason], reason)
		}
		fmt.Fprintf(out, "Requests of agents since the start: %d refused (429), %d failed; "+
			"writes of kubelets that failed: %d.\n", r.refused, r.failed, r.kubeletErrors)
	}
}

// rates are the highest of them in words.
func rates(of map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] == of[b] {
			return strings.Compare(a, b)
		}
		return map[bool]int{true: -1, false: 1}[of[a] > of[b]]
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

// table writes the figures of all phases, a phase in each column.
func (p *report) table(out io.Writer) {
	for i, c := range columns {
		fmt.Fprintf(out, "| %s |", c.name)
		for _, r := range p.rows {
			fmt.Fprintf(out, " %s |", c.value(p, r))
		}
		fmt.Fprintln(out)
		if i == 0 {
			fmt.Fprint(out, "| --- |"+strings.Repeat(" ---: |", len(p.rows))+"\n")
		}
	}
}

// print writes the report's tables for a reader of a terminal.
func (p *report) print(out io.Writer) { p.markdown(out) }

// write writes report.md and results.csv.
func (p *report) write(folder string) error {
	page, err := os.Create(filepath.Join(folder, "report.md"))
	if err != nil {
		return err
	}
	p.markdown(page)
	file, err := os.Create(filepath.Join(folder, "results.csv"))
	if err != nil {
		return errors.Join(err, page.Close())
	}
	table := csv.NewWriter(file)
	table.Write([]string{"phase", "figure", "value"})
	for _, r := range p.rows {
		for _, c := range columns[1:] {
			table.Write([]string{r.name, c.name, c.value(p, r)})
		}
		for _, kind := range slices.Sorted(maps.Keys(r.writes)) {
			table.Write([]string{r.name, "writes/s " + kind, number(r.writes[kind], 3)})
		}
		for _, kind := range slices.Sorted(maps.Keys(r.watched)) {
			table.Write([]string{r.name, "watch events/s " + kind, number(r.watched[kind], 3)})
		}
	}
	table.Flush()
	return errors.Join(table.Error(), page.Close(), file.Close())
}

// commit is the commit that is measured, "unknown" where git does not tell.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

package past

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
)

// Report is what MBCAS has brought and cost in the time that agents have recorded.
type Report struct {
	// Nodes counts the nodes whose recordings were read, of all with an agent.
	Nodes int       `json:"nodes"`
	Of    int       `json:"of"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	// Covered is the time with counters, of all nodes.
	Covered time.Duration   `json:"covered"`
	Sum     benefit.Figures `json:"sum"`
	Rows    []ReportRow     `json:"rows"`
	// Failed says what could not be read, by node.
	Failed []string `json:"failed,omitempty"`
}

// ReportRow is a group of pods.
type ReportRow struct {
	Group string `json:"group"`
	// Mode is that of the namespace; empty: not known.
	Mode string `json:"mode,omitempty"`
	benefit.Figures
}

const (
	// reportReaders is how many agents are read at a time, and MaxReportNodes how many at most: each is a request of up to 8 MiB
	// through the API server.
	reportReaders  = 4
	MaxReportNodes = 32
)

// Groups are what rows may stand for.
var Groups = []string{"workload", "namespace", "node", "pod"}

// ReportOf reads the recordings of agents, all or that of a node, and adds them up by group.
func ReportOf(ctx context.Context, a *cluster.Access, s format.Streams, node, by string) (Report, error) {
	var agents corev1.PodList
	if err := a.Client.List(ctx, &agents, client.InNamespace(a.System)); err != nil {
		return Report{}, fmt.Errorf("list the agents in namespace %s: %w", a.System, err)
	}
	agents.Items = slices.DeleteFunc(agents.Items, func(p corev1.Pod) bool {
		return !cluster.OfWorkload(&p, cluster.AgentName) || p.DeletionTimestamp != nil || node != "" && p.Spec.NodeName != node
	})
	if len(agents.Items) == 0 {
		return Report{}, fmt.Errorf("no agent runs%s; see \"kubectl mbcas doctor\"", map[bool]string{true: " on node " + node}[node != ""])
	}
	slices.SortFunc(agents.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	r := reporter{report: Report{Of: len(agents.Items)}, rows: map[string]*ReportRow{}, workloads: map[record.Name]string{}, by: by}
	r.about = func(n record.Name) bool { return a.Namespace == "" || n.Namespace == a.Namespace }
	r.prepare(ctx, a)
	read := agents.Items[:min(len(agents.Items), MaxReportNodes)]
	r.readAll(ctx, a, s, read)
	if r.report.Nodes == 0 {
		return Report{}, fmt.Errorf("no recording could be read: %s", strings.Join(r.report.Failed, "; "))
	}
	return r.result(), nil
}

// reporter adds recordings up.
type reporter struct {
	about func(record.Name) bool
	group func(node string, n record.Name) string
	modes map[string]string // by namespace
	by    string

	mu     sync.Mutex
	report Report
	rows   map[string]*ReportRow
	// workloads of the pods that are on the nodes now
	workloads map[record.Name]string
}

// prepare reads the modes of namespaces, and says what rows are about.
func (r *reporter) prepare(ctx context.Context, a *cluster.Access) {
	r.modes = map[string]string{}
	settings, _ := cluster.ReadSettings(ctx, a) // without them the default mode is not known
	if namespaces, err := cluster.ReadNamespaces(ctx, a.Client, a.Namespace); err == nil {
		for _, ns := range namespaces {
			mode, _ := kube.ModeOf(ns.Labels, settings.Mode())
			r.modes[ns.Name] = string(mode)
		}
	}
	r.group = func(node string, n record.Name) string {
		switch r.by {
		case "namespace":
			return n.Namespace
		case "node":
			return node
		case "workload":
			return cmp.Or(r.workloads[n], n.Namespace+"/(gone)")
		}
		return n.String()
	}
}

// readAll reads a few agents at a time. One that fails costs only itself.
func (r *reporter) readAll(ctx context.Context, a *cluster.Access, s format.Streams, agents []corev1.Pod) {
	next := make(chan *corev1.Pod)
	var running sync.WaitGroup
	for range reportReaders {
		running.Go(func() {
			for agent := range next {
				err := r.read(ctx, a, agent)
				r.mu.Lock()
				if err != nil {
					r.report.Failed = append(r.report.Failed, fmt.Sprintf("node %s: %v", agent.Spec.NodeName, err))
				}
				if len(agents) > 1 {
					fmt.Fprintf(s.Err, "%d of %d nodes\n", r.report.Nodes+len(r.report.Failed), len(agents))
				}
				r.mu.Unlock()
			}
		})
	}
	for i := range agents {
		next <- &agents[i]
	}
	close(next)
	running.Wait()
	slices.Sort(r.report.Failed)
}

func (r *reporter) read(ctx context.Context, a *cluster.Access, agent *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	file, err := a.Rounds(ctx, agent, 0)
	if err != nil {
		return err
	}
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		return err
	}
	totals, err := benefit.Of(rec, r.about)
	if err != nil {
		return err
	}
	workloads, err := r.workloadsOf(ctx, a, agent.Spec.NodeName)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.workloads, workloads)
	r.add(agent.Spec.NodeName, rec, totals)
	return nil
}

// workloadsOf are the workloads of a node's pods, where rows are by workload.
func (r *reporter) workloadsOf(ctx context.Context, a *cluster.Access, node string) (map[record.Name]string, error) {
	of := map[record.Name]string{}
	if r.by != "workload" {
		return of, nil
	}
	var pods corev1.PodList
	on := client.MatchingFields{"spec.nodeName": node}
	if err := a.Client.List(ctx, &pods, client.InNamespace(a.Namespace), on); err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		of[record.Name{Namespace: p.Namespace, Name: p.Name}] = p.Namespace + "/" + kube.Workload(p)
	}
	return of, nil
}

func (r *reporter) add(node string, rec *record.Recording, t benefit.Totals) {
	out := &r.report
	out.Nodes++
	out.Covered += t.Covered
	if n := len(rec.Minutes); n > 0 {
		if from := rec.Minutes[0].From; out.From.IsZero() || from.Before(out.From) {
			out.From = from
		}
		if to := rec.Minutes[n-1].To; to.After(out.To) {
			out.To = to
		}
	}
	out.Sum.Add(t.Sum)
	for _, p := range t.Pods {
		group := r.group(node, p.Name)
		row := r.rows[group]
		if row == nil {
			row = &ReportRow{Group: group, Mode: r.modes[p.Namespace]}
			r.rows[group] = row
		}
		if row.Mode != r.modes[p.Namespace] {
			row.Mode = "several"
		}
		row.Figures.Add(p.Figures)
	}
}

func (r *reporter) result() Report {
	for _, row := range r.rows {
		r.report.Rows = append(r.report.Rows, *row)
	}
	slices.SortFunc(r.report.Rows, func(a, b ReportRow) int {
		return cmp.Or(cmp.Compare(b.ThrottledIdle+b.ThrottledScarce, a.ThrottledIdle+a.ThrottledScarce), cmp.Compare(a.Group, b.Group))
	})
	return r.report
}

// columns are those of the table and of CSV: what is measured first, then estimates.
var columns = []struct {
	name string
	of   func(ReportRow) time.Duration
}{
	{"THROTTLED", func(r ReportRow) time.Duration { return r.ThrottledIdle + r.ThrottledScarce }},
	{"WHILE-IDLE", func(r ReportRow) time.Duration { return r.ThrottledIdle }},
	{"BEYOND-DECLARED", func(r ReportRow) time.Duration { return r.BeyondDeclared }},
	{"WITHHELD", func(r ReportRow) time.Duration { return r.Withheld }},
	{"RECOVERABLE", func(r ReportRow) time.Duration { return r.Recoverable }},
	{"CAPPED", func(r ReportRow) time.Duration { return r.Capped }},
	{"MOVED", func(r ReportRow) time.Duration { return r.Moved }},
}

// CSV is the report with durations in seconds.
func (r Report) CSV() (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	head := []string{"group", "mode"}
	for _, c := range columns {
		head = append(head, strings.ToLower(strings.ReplaceAll(c.name, "-", "_"))+"_seconds")
	}
	rows := [][]string{append(head, "raises", "lowers", "changes")}
	for _, row := range r.Rows {
		line := []string{row.Group, row.Mode}
		for _, c := range columns {
			line = append(line, fmt.Sprintf("%.3f", c.of(row).Seconds()))
		}
		rows = append(rows, append(line, fmt.Sprint(row.Raises), fmt.Sprint(row.Lowers), fmt.Sprint(row.Changes)))
	}
	err := w.WriteAll(rows)
	return b.String(), err
}

// Text is the report as a table, with what the columns mean.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s, from %s to %s; %v with counters.\n\n", r.Nodes, format.Plural(r.Of, "node"), r.From.UTC().Format("2006-01-02 15:04:05"),
		r.To.UTC().Format("15:04:05 UTC"), r.Covered.Round(time.Second))
	t := &format.Table{Header: []string{"WHAT", "MODE"}}
	for _, c := range columns {
		t.Header = append(t.Header, c.name)
	}
	t.Header = append(t.Header, "RAISES", "LOWERS", "CHANGES")
	add := func(row ReportRow) {
		cells := []string{row.Group, row.Mode}
		for _, c := range columns {
			cells = append(cells, c.of(row).Round(100*time.Millisecond).String())
		}
		t.Add(append(cells, fmt.Sprint(row.Raises), fmt.Sprint(row.Lowers), fmt.Sprint(row.Changes))...)
	}
	for _, row := range r.Rows {
		add(row)
	}
	add(ReportRow{Group: "all", Figures: r.Sum})
	b.WriteString(t.String())
	io.WriteString(&b, `
Measured: pods were THROTTLED, a part of it WHILE CPU was IDLE; they used CPU time BEYOND their DECLARED limits.
Estimated: demand above the limits in force was WITHHELD. Where limits are only recommended: up to RECOVERABLE more could
have been used, for CAPPED the decided limit was below the declared one, and enforcing it would have MOVED CPU time to others.
`)
	for _, f := range r.Failed {
		fmt.Fprintf(&b, "Not read: %s.\n", f)
	}
	if left := r.Of - r.Nodes - len(r.Failed); left > 0 {
		fmt.Fprintf(&b, "%s not read: at most %d are. Name one with --node.\n", format.Are(left, "node"), MaxReportNodes)
	}
	return b.String()
}

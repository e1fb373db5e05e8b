package past

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
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
	// Changes say which workloads are not managed, and what would have to change; for rows by workload alone.
	Changes []string `json:"changes,omitempty"`
	// Failed says what could not be read, by node.
	Failed []string `json:"failed,omitempty"`
}

// ReportRow is a group of pods.
type ReportRow struct {
	Group string `json:"group"`
	// Mode is that of the namespace, or "before" with the time until which the row counts, where it was set in the time
	// covered; empty: not known.
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
	found := agentsOf(agents.Items, node)
	if len(found) == 0 {
		return Report{}, fmt.Errorf("no agent runs%s; see \"kubectl mbcas doctor\"", map[bool]string{true: " on node " + node}[node != ""])
	}
	r := reporter{report: Report{Of: len(found)}, rows: map[string]*ReportRow{}, workloads: map[record.Name]string{}, by: by}
	r.about = func(n record.Name) bool { return a.Namespace == "" || n.Namespace == a.Namespace }
	r.prepare(ctx, a)
	r.readAll(ctx, a, s, found[:min(len(found), MaxReportNodes)])
	if r.report.Nodes == 0 {
		return Report{}, fmt.Errorf("no recording could be read: %s", strings.Join(r.report.Failed, "; "))
	}
	return r.result(), nil
}

// agentsOf are the agents of all nodes, or of one, by node: one for each, as two have recorded the same pods.
func agentsOf(pods []corev1.Pod, node string) (agents []*corev1.Pod) {
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	for len(pods) > 0 {
		on, end := pods[0].Spec.NodeName, 1
		for end < len(pods) && pods[end].Spec.NodeName == on {
			end++
		}
		if agent := cluster.AgentOn(pods[:end], on); agent != nil && on != "" && (node == "" || on == node) {
			agents = append(agents, agent)
		}
		pods = pods[end:]
	}
	return agents
}

// reporter adds recordings up.
type reporter struct {
	about func(record.Name) bool
	group func(node string, n record.Name) string
	modes map[string]string    // by namespace
	setAt map[string]time.Time // when that mode was set, where that is known
	by    string

	mu     sync.Mutex
	report Report
	rows   map[string]*ReportRow
	// workloads of the pods that are on the nodes now
	workloads map[record.Name]string
	unmanaged Unmanaged
}

// prepare reads the modes of namespaces, and says what rows are about.
func (r *reporter) prepare(ctx context.Context, a *cluster.Access) {
	r.modes, r.setAt = map[string]string{}, map[string]time.Time{}
	settings, _ := cluster.ReadSettings(ctx, a) // without them the default mode is not known
	if namespaces, err := cluster.ReadNamespaces(ctx, a.Client, a.Namespace); err == nil {
		for _, ns := range namespaces {
			mode, _ := kube.ModeOf(ns.Labels, settings.Mode())
			r.modes[ns.Name] = string(mode)
			if at := modeSetAt(&ns); !at.IsZero() {
				r.setAt[ns.Name] = at
			}
		}
	}
	r.group = func(node string, n record.Name) string {
		switch r.by {
		case "namespace":
			return n.Namespace
		case "node":
			return node
		case "workload":
			return cmp.Or(r.workloads[n], n.Namespace+"/"+goneName(n.Name))
		}
		return n.String()
	}
}

// readAll reads a few agents at a time. One that fails costs only itself.
func (r *reporter) readAll(ctx context.Context, a *cluster.Access, s format.Streams, agents []*corev1.Pod) {
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
				if done := r.report.Nodes + len(r.report.Failed); len(agents) > 1 {
					fmt.Fprintf(s.Err, "%d of %d nodes\n", done, len(agents))
				}
				r.mu.Unlock()
			}
		})
	}
	for _, agent := range agents {
		next <- agent
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
	totals, err := benefit.OfMarked(rec, r.about, r.setAt)
	if err != nil {
		return err
	}
	pods, err := r.podsOf(ctx, a, agent.Spec.NodeName)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range pods {
		p := &pods[i]
		r.workloads[record.Name{Namespace: p.Namespace, Name: p.Name}] = p.Namespace + "/" + kube.Workload(p)
		r.unmanaged.Add(p)
	}
	r.add(agent.Spec.NodeName, rec, totals)
	return nil
}

// podsOf are a node's pods, where rows are by workload.
func (r *reporter) podsOf(ctx context.Context, a *cluster.Access, node string) ([]corev1.Pod, error) {
	if r.by != "workload" {
		return nil, nil
	}
	var pods corev1.PodList
	on := client.MatchingFields{"spec.nodeName": node}
	if err := a.Client.List(ctx, &pods, client.InNamespace(a.Namespace), on); err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	return pods.Items, nil
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
		group, mode := r.group(node, p.Name), r.modes[p.Namespace]
		switch two := p.Before != (benefit.Figures{}); {
		case two && r.by == "node": // its pods are of several namespaces
			mode = several
		case two:
			r.addTo(group, beforeText(r.setAt[p.Namespace]), p.Before)
			p.Sub(p.Before)
		}
		if p.Figures != (benefit.Figures{}) || p.Before == (benefit.Figures{}) {
			r.addTo(group, mode, p.Figures)
		}
	}
}

// several is the mode of a row of pods that had different ones.
const several = "several"

// addTo adds figures to a row. The time before a mode was set has a row of its own.
func (r *reporter) addTo(group, mode string, f benefit.Figures) {
	key := group
	if strings.HasPrefix(mode, before) {
		key += " " + mode
	}
	row := r.rows[key]
	if row == nil {
		row = &ReportRow{Group: group, Mode: mode}
		r.rows[key] = row
	}
	if row.Mode != mode {
		row.Mode = several
	}
	row.Figures.Add(f)
}

func (r *reporter) result() Report {
	for _, row := range r.rows {
		r.report.Rows = append(r.report.Rows, *row)
	}
	r.report.Changes = r.unmanaged.Changes()
	slices.SortFunc(r.report.Rows, func(a, b ReportRow) int {
		return cmp.Or(cmp.Compare(b.ThrottledIdle+b.ThrottledScarce, a.ThrottledIdle+a.ThrottledScarce),
			cmp.Compare(a.Group, b.Group), cmp.Compare(a.Mode, b.Mode))
	})
	return r.report
}

// column is one of the report: a time, or else a count.
type column struct {
	name  string
	wide  bool // in the wide table alone
	mean  string
	time  func(ReportRow) time.Duration
	count func(ReportRow) int
}

// columns are those of the table, of CSV and of HTML, each with its meaning.
var columns = []column{
	{name: "THROTTLED", mean: "measured: time in which pods were throttled",
		time: func(r ReportRow) time.Duration { return r.ThrottledIdle + r.ThrottledScarce }},
	{name: "WHILE-IDLE", mean: "measured: the part of it in which the node had idle CPU",
		time: func(r ReportRow) time.Duration { return r.ThrottledIdle }},
	{name: "BEYOND-DECLARED", wide: true, mean: "measured: CPU time used beyond the declared limits",
		time: func(r ReportRow) time.Duration { return r.BeyondDeclared }},
	{name: "DELAYED", mean: "measured: CPU time used while a limit was exhausted and work waited for it",
		time: func(r ReportRow) time.Duration { return r.Delayed }},
	{name: "AVOIDED", mean: "delays by declared limits that higher limits in force have avoided, by the usage",
		time: func(r ReportRow) time.Duration { return r.Avoided }},
	{name: "AVOIDABLE", mean: "estimate: the part of DELAYED that the limits decided would have avoided",
		time: func(r ReportRow) time.Duration { return r.Avoidable }},
	{name: "WITHHELD", mean: "estimate: demand above the limits in force",
		time: func(r ReportRow) time.Duration { return r.Withheld }},
	{name: "BELOW-DECLARED", mean: "time in which the limit decided was below the declared one",
		time: func(r ReportRow) time.Duration { return r.BelowDeclared }},
	{name: "FREED", wide: true, mean: "CPU time that capped pods used above the limits decided, which enforcing leaves to others",
		time: func(r ReportRow) time.Duration { return r.Freed }},
	{name: "RAISES", wide: true, mean: "decisions published that are above the one before, which may be of an earlier installation",
		count: func(r ReportRow) int { return r.Raises }},
	{name: "LOWERS", wide: true, mean: "decisions published that are below the one before",
		count: func(r ReportRow) int { return r.Lowers }},
	{name: "CHANGES", mean: "changes of the limits of the pods: one for each step of a decrease, and each restore",
		count: func(r ReportRow) int { return r.Changes }},
}

// shown are the columns of a table.
func shown(wide bool) (list []column) {
	for _, c := range columns {
		if wide || !c.wide {
			list = append(list, c)
		}
	}
	return list
}

// text is the cell of a row in a table.
func (c column) text(r ReportRow) string {
	if c.count != nil {
		return fmt.Sprint(c.count(r))
	}
	return c.time(r).Round(100 * time.Millisecond).String()
}

// csv are the name of the column and the cell of a row for programs: times in seconds.
func (c column) csv(r ReportRow) (name, cell string) {
	name = strings.ToLower(strings.ReplaceAll(c.name, "-", "_"))
	if c.count != nil {
		return name, fmt.Sprint(c.count(r))
	}
	return name + "_seconds", fmt.Sprintf("%.3f", c.time(r).Seconds())
}

// CSV is the report with all columns.
func (r Report) CSV() (string, error) {
	rows := [][]string{{"group", "mode"}}
	for _, c := range columns {
		name, _ := c.csv(ReportRow{})
		rows[0] = append(rows[0], name)
	}
	for _, row := range r.Rows {
		line := []string{row.Group, row.Mode}
		for _, c := range columns {
			_, cell := c.csv(row)
			line = append(line, cell)
		}
		rows = append(rows, line)
	}
	var b strings.Builder
	err := csv.NewWriter(&b).WriteAll(rows)
	return b.String(), err
}

// Text is the report as a table, with what the columns mean. Wide has all columns.
func (r Report) Text(wide bool) string {
	t, means := &format.Table{Header: []string{"WHAT", "MODE"}}, &format.Table{}
	for _, c := range shown(wide) {
		t.Header = append(t.Header, c.name)
		means.Add(c.name, c.mean)
	}
	for _, row := range append(slices.Clone(r.Rows), r.all()) {
		cells := []string{row.Group, row.Mode}
		for _, c := range shown(wide) {
			cells = append(cells, c.text(row))
		}
		t.Add(cells...)
	}
	var b strings.Builder
	b.WriteString(r.about() + "\n\n" + t.String() + "\n" + means.String())
	if notes := r.notes(); len(notes) > 0 {
		b.WriteByte('\n')
		for _, note := range notes {
			b.WriteString(format.Wrap(note, 100))
		}
	}
	return b.String()
}

// all is the row of the sums.
func (r Report) all() ReportRow { return ReportRow{Group: "all", Figures: r.Sum} }

// about says what the report covers.
func (r Report) about() string {
	return fmt.Sprintf("%d of %s, from %s to %s; %v with counters.", r.Nodes, format.Plural(r.Of, "node"),
		r.From.UTC().Format("2006-01-02 15:04:05"), r.To.UTC().Format("15:04:05 UTC"), r.Covered.Round(time.Second))
}

// notes say what the table does not: of rows before a mode was set, of workloads that are not managed, and of nodes that
// were not read.
func (r Report) notes() (notes []string) {
	if slices.ContainsFunc(r.Rows, func(row ReportRow) bool { return strings.HasPrefix(row.Mode, before) }) {
		notes = append(notes, "Rows \"before\" a time count what was until the label of the mode was last set; another mode may have held then.")
	}
	notes = append(notes, r.Changes...)
	for _, f := range r.Failed {
		notes = append(notes, "Not read: "+f+".")
	}
	if left := r.Of - r.Nodes - len(r.Failed); left > 0 {
		notes = append(notes, fmt.Sprintf("%s not read: at most %d are. Name one with --node.", format.Are(left, "node"), MaxReportNodes))
	}
	return notes
}

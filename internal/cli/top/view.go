package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/market"
)

const (
	keysLine = "Enter open  Esc back  space freeze  [ ] step  / filter  s sort  ? keys  q quit"
	keysText = `Up, Down, k, j   choose a row
Enter            open the node or the pod
Esc              back; the filter goes first
space            freeze the picture, and go on
[ and ]          the picture before, and the one after
/                show rows with this text only; Enter ends, Esc removes it
s                sort by price or throttling, usage, demand, name
q, Ctrl-C        quit

Any key goes on.`
)

// View is the frame, no larger than the terminal.
func (m Model) View() string {
	if m.size.Width <= 0 || m.size.Height <= 0 {
		return ""
	}
	lines := []string{m.title()}
	body := keysText
	if !m.help {
		body = map[pane]func() string{ofCluster: m.clusterText, ofNode: m.nodeText, ofPod: m.podText}[m.pane]()
	}
	lines = append(lines, strings.Split(strings.TrimSuffix(body, "\n"), "\n")...)
	foot := []string{keysLine}
	switch {
	case m.typing:
		foot = []string{"/" + m.filter + "_"}
	case m.failure() != "":
		foot = []string{m.failure(), keysLine}
	}
	room := max(0, m.size.Height-len(foot))
	if len(lines) > room {
		lines = lines[:room]
	}
	for len(lines) < room {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)[:m.size.Height]
	for i := range lines {
		lines[i] = fit(lines[i], m.size.Width)
	}
	return strings.Join(lines, "\n")
}

// fit keeps what a line has room for.
func fit(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}

func (m *Model) failure() string {
	f := m.cluster.failure
	if m.pane != ofCluster {
		f = m.read.failure
	}
	if f == "" {
		return ""
	}
	return "Not read: " + f
}

// title says what is shown, and of when.
func (m *Model) title() string {
	what := map[pane]string{ofCluster: "Cluster", ofNode: "Node " + m.node, ofPod: "Pod " + m.pod + ", node " + m.node}[m.pane]
	i := m.at()
	if i < 0 {
		return what + ": reading"
	}
	at := m.times()[i]
	text := fmt.Sprintf("%s at %s", what, at.UTC().Format("15:04:05 UTC"))
	age := m.now.Sub(at).Round(time.Second)
	switch {
	case m.frozen:
		text += fmt.Sprintf(", frozen, %v old", age)
	case !m.shown.IsZero():
		text += fmt.Sprintf(", %v old, %d of %d pictures", age, i+1, len(m.times()))
	}
	if m.filter != "" {
		text += ", filter " + m.filter
	}
	return text
}

// rows is a table with the rows around the chosen one that there is room for, and a mark at it. The first cell of a row
// is its name.
func (m *Model) rows(t *format.Table, names []string, above int, cells func(i int) []string) string {
	chosen := max(0, slices.Index(names, m.chosenOf(names)))
	t.Header[0] = " " + t.Header[0]
	room := max(1, m.size.Height-above-3) // title, header and keys
	from := max(0, min(chosen-room/2, len(names)-room))
	for i := from; i < min(len(names), from+room); i++ {
		mark := " "
		if i == chosen {
			mark = ">"
		}
		t.Add(append([]string{mark + names[i]}, cells(i)...)...)
	}
	return t.Text(format.Style{Width: m.size.Width})
}

func (m *Model) clusterText() string {
	nodes := m.nodes()
	if len(nodes) == 0 {
		return "No node."
	}
	t := &format.Table{Header: []string{"NODE", "STATE", "PRICE", "USAGE", "SUPPLY", "DEMAND", "MANAGED", "CAPPED", "USED"},
		Drop: []string{"MANAGED", "CAPPED", "SUPPLY", "USED", "DEMAND"}}
	return m.rows(t, nodeNames(nodes), 0, func(i int) []string {
		n := &nodes[i]
		return []string{n.State, n.Price.String(), n.Usage.String(), n.Supply.String(), n.Demand.String(), fmt.Sprint(n.Managed),
			fmt.Sprint(n.Capped), bar(n.Usage.Cores(), n.Supply.Cores(), 10)}
	})
}

func (m *Model) nodeText() string {
	i := m.at()
	if i < 0 {
		return "The recording of the node is being read."
	}
	r := &m.rounds[i]
	text := fmt.Sprintf("price %v   usage %v of %v   demand %v\n", r.Price, r.Usage, r.Supply, r.Demand)
	label := "price, last minutes  "
	text += label + m.line(len(label), func(r *Round) (float64, bool) { return float64(r.Price), true }) + "\n"
	pods := m.pods()
	if len(pods) == 0 {
		return text + "No pod."
	}
	t := &format.Table{Header: []string{"POD", "LIMIT", "USAGE", "THROTTLED", "DEMAND", "DECIDED", "BOUND-BY", "DECLARED"},
		Drop: []string{"DECLARED", "DECIDED", "DEMAND", "BOUND-BY"}}
	return text + m.rows(t, podNames(pods), 2, func(i int) []string {
		p := &pods[i]
		return []string{p.Limit.String(), p.Usage.String(), fmt.Sprintf("%.0f%%", 100*p.Throttled), p.Demand.String(), p.Decided.String(),
			p.Bound.String(), p.Declared.String()}
	})
}

func (m *Model) podText() string {
	i := m.at()
	if i < 0 {
		return "The recording of the node is being read."
	}
	var p *Pod
	if p = find(&m.rounds[i], m.pod); p == nil {
		return "It is not in this round."
	}
	const width = 12
	var b strings.Builder
	row := func(label, value string) { fmt.Fprintf(&b, "%-*s%s\n", width, label, value) }
	row("limit", fmt.Sprintf("%v, declared %v, between %v and %v", p.Limit, p.Declared, p.Floor, p.Ceiling))
	row("decided", fmt.Sprintf("%v, bound by %s, at a price of %v", p.Decided, strings.ToLower(p.Bound.String()), m.rounds[i].Price))
	row("usage", fmt.Sprintf("%v, throttled in %.0f%% of the periods", p.Usage, 100*p.Throttled))
	row("demand", p.Demand.String()+", as estimated")
	if p.Bound == market.ByPrice {
		row("", "The price caps it: its budget buys this limit.")
	}
	b.WriteString("\nThe last minutes, from left to right:\n")
	figure := func(of func(*Pod) float64) func(*Round) (float64, bool) {
		return func(r *Round) (float64, bool) {
			if p := find(r, m.pod); p != nil {
				return of(p), true
			}
			return 0, false
		}
	}
	row("limit", m.line(width, figure(func(p *Pod) float64 { return p.Limit.Cores() })))
	row("usage", m.line(width, figure(func(p *Pod) float64 { return p.Usage.Cores() })))
	row("throttled", m.line(width, figure(func(p *Pod) float64 { return p.Throttled })))
	return b.String()
}

func find(r *Round, name string) *Pod {
	for i := range r.Pods {
		if r.Pods[i].name() == name {
			return &r.Pods[i]
		}
	}
	return nil
}

// levels are the heights of a line of characters that every terminal has.
const levels = " .:-=+*#"

// line draws the last values up to the picture that is shown, and names the highest. Rounds without a value are blank.
func (m *Model) line(before int, value func(*Round) (float64, bool)) string {
	end := m.at() + 1
	const label = 16
	width := max(0, min(m.size.Width-before-label, 120))
	var high float64
	rounds := m.rounds[max(0, end-width):end]
	for i := range rounds {
		if v, ok := value(&rounds[i]); ok {
			high = math.Max(high, v)
		}
	}
	var b strings.Builder
	for i := range rounds {
		v, ok := value(&rounds[i])
		level := 0
		if ok && high > 0 && v > 0 {
			level = 1 + int(v/high*float64(len(levels)-2))
		}
		b.WriteByte(levels[max(0, min(level, len(levels)-1))])
	}
	return fmt.Sprintf("|%s| most %.3g", b.String(), high)
}

// bar is a share as a bar of that many characters.
func bar(part, whole float64, width int) string {
	n := 0
	if whole > 0 && part > 0 {
		n = min(width, int(math.Round(part/whole*float64(width))))
	}
	return strings.Repeat("#", n) + strings.Repeat(".", width-n)
}

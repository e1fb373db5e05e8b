package top

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The messages that a Model takes.
type (
	// Key is a key, as bubbletea names it: enter, esc, space, up, a.
	Key string
	// Size is the size of the terminal.
	Size struct{ Width, Height int }
	// Tick is a time, which passes.
	Tick time.Time
	// ClusterRead answers ReadCluster.
	ClusterRead struct {
		At      time.Time
		Cluster Cluster
		Err     error
	}
	// NodeRead answers ReadNode: rounds of a node that replace those from the first of them on.
	NodeRead struct {
		At     time.Time
		Node   string
		Rounds []Round
		Err    error
	}
)

// The requests of a Model.
type (
	// ReadCluster asks for a picture of all nodes.
	ReadCluster struct{}
	// ReadNode asks for the rounds of a node, those from a time on; zero: all.
	ReadNode struct {
		Node string
		From time.Time
	}
	// Quit asks to end.
	Quit struct{}
)

// Request is one of the above.
type Request any

// Bounds of what is asked for and kept.
const (
	interval     = 5 * time.Second
	mostBackOff  = time.Minute
	keepClusters = 360              // half an hour of pictures
	keepRounds   = 35 * 60          // of one node
	overlap      = 90 * time.Second // how far back rounds are asked for again: a minute that was not over has gone on
)

// pane is what is shown.
type pane int

const (
	ofCluster pane = iota
	ofNode
	ofPod
)

// feed is when data is asked for.
type feed struct {
	asked   bool
	due     time.Time
	backOff time.Duration
	failure string
}

// Model is the state of the view. The zero value shows an empty cluster.
type Model struct {
	size Size
	now  time.Time
	help bool

	pane      pane
	node, pod string
	chosen    [3]string // names, by pane
	sort      [3]int
	filter    string
	typing    bool

	clusters      []Cluster
	rounds        []Round
	cluster, read feed

	// shown is the time of the picture; zero: the last one.
	shown  time.Time
	frozen bool
}

// Update is the model after a message, and what it asks for.
func (m Model) Update(msg any) (Model, []Request) {
	switch msg := msg.(type) {
	case Size:
		m.size = msg
	case Tick:
		m.now = time.Time(msg)
	case ClusterRead:
		m.now = msg.At
		m.cluster = m.cluster.answered(msg.At, msg.Err)
		if msg.Err == nil {
			m.clusters = last(append(slices.Clip(m.clusters), msg.Cluster), keepClusters)
		}
	case NodeRead:
		if msg.Node == m.node {
			m.now = msg.At
			m.read = m.read.answered(msg.At, msg.Err)
			m.rounds = last(merge(m.rounds, msg.Rounds), keepRounds)
		}
	case Key:
		if m = m.key(string(msg)); m.pane < 0 {
			m.pane = ofCluster
			return m, []Request{Quit{}}
		}
	}
	return m.ask()
}

// ask asks for what is due.
func (m Model) ask() (Model, []Request) {
	var requests []Request
	if m.cluster.isDue(m.now) {
		m.cluster.asked = true
		requests = append(requests, ReadCluster{})
	}
	if m.pane != ofCluster && m.read.isDue(m.now) {
		m.read.asked = true
		from := time.Time{}
		if n := len(m.rounds); n > 0 {
			from = m.rounds[n-1].At.Add(-overlap)
		}
		requests = append(requests, ReadNode{m.node, from})
	}
	return m, requests
}

func (f feed) isDue(now time.Time) bool { return !f.asked && !now.IsZero() && !now.Before(f.due) }

// answered waits for longer after each failure.
func (f feed) answered(at time.Time, err error) feed {
	if err == nil {
		return feed{due: at.Add(interval)}
	}
	f.backOff = min(mostBackOff, max(2*interval, 2*f.backOff))
	return feed{due: at.Add(f.backOff), backOff: f.backOff, failure: strings.Join(strings.Fields(err.Error()), " ")}
}

// merge replaces the rounds from the first of the later ones on.
func merge(rounds, later []Round) []Round {
	if len(later) == 0 {
		return rounds
	}
	i, _ := slices.BinarySearchFunc(rounds, later[0].At, func(r Round, at time.Time) int { return r.At.Compare(at) })
	return append(slices.Clone(rounds[:i]), later...)
}

func last[T any](of []T, most int) []T { return of[max(0, len(of)-most):] }

// key is the model after a key; a pane below 0 asks to end.
func (m Model) key(key string) Model {
	switch {
	case key == "ctrl+c":
		m.pane = -1
	case m.typing:
		return m.typed(key)
	case m.help:
		m.help = false
	default:
		return m.command(key)
	}
	return m
}

// typed changes the filter.
func (m Model) typed(key string) Model {
	switch {
	case key == "enter":
		m.typing = false
	case key == "esc":
		m.typing, m.filter = false, ""
	case key == "backspace" && m.filter != "":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	case utf8.RuneCountInString(key) == 1:
		m.filter += key
	}
	return m
}

func (m Model) command(key string) Model {
	switch key {
	case "q":
		m.pane = -1
	case "?":
		m.help = true
	case "up", "k":
		m = m.move(-1)
	case "down", "j":
		m = m.move(1)
	case "enter":
		m = m.open()
	case "esc":
		m = m.back()
	case "space":
		m = m.freeze()
	case "[":
		m = m.step(-1)
	case "]":
		m = m.step(1)
	case "/":
		m.typing = true
	case "s":
		m.sort[m.pane] = (m.sort[m.pane] + 1) % len(orders)
	}
	return m
}

// open goes to the chosen node or pod.
func (m Model) open() Model {
	name := m.chosenOf(m.names())
	switch {
	case name == "":
	case m.pane == ofCluster:
		m.pane, m.node, m.filter = ofNode, name, ""
		m.rounds, m.read, m.shown, m.frozen = nil, feed{}, time.Time{}, false
	case m.pane == ofNode:
		m.pane, m.pod = ofPod, name
	}
	return m
}

// back goes to the pane before. The filter goes first.
func (m Model) back() Model {
	switch {
	case m.filter != "":
		m.filter = ""
	case m.pane == ofPod:
		m.pane = ofNode
	case m.pane == ofNode:
		m.pane, m.node, m.rounds, m.read = ofCluster, "", nil, feed{}
		m.shown, m.frozen = time.Time{}, false
	}
	return m
}

// times are those of the pictures of the pane.
func (m *Model) times() (times []time.Time) {
	if m.pane == ofCluster {
		for i := range m.clusters {
			times = append(times, m.clusters[i].At)
		}
		return times
	}
	for i := range m.rounds {
		times = append(times, m.rounds[i].At)
	}
	return times
}

// at is the index of the picture that is shown; -1: there is none. A time that is no longer kept gives the oldest.
func (m *Model) at() int {
	times := m.times()
	if m.shown.IsZero() || len(times) == 0 {
		return len(times) - 1
	}
	i, found := slices.BinarySearchFunc(times, m.shown, time.Time.Compare)
	if !found {
		i = max(0, i-1)
	}
	return i
}

// freeze keeps the picture, or goes on.
func (m Model) freeze() Model {
	if m.frozen || !m.shown.IsZero() {
		m.frozen, m.shown = false, time.Time{}
	} else if i := m.at(); i >= 0 {
		m.frozen, m.shown = true, m.times()[i]
	}
	return m
}

// step shows the picture before or after. After the last one it goes on with new ones, unless it is frozen.
func (m Model) step(by int) Model {
	times := m.times()
	i := m.at() + by
	switch {
	case i < 0 || len(times) == 0:
	case i >= len(times)-1 && !m.frozen:
		m.shown = time.Time{}
	case i < len(times):
		m.shown = times[i]
	}
	return m
}

// move chooses the row before or after.
func (m Model) move(by int) Model {
	names := m.names()
	if len(names) == 0 || m.pane == ofPod {
		return m
	}
	i := slices.Index(names, m.chosenOf(names))
	m.chosen[m.pane] = names[max(0, min(len(names)-1, i+by))]
	return m
}

// chosenOf is the chosen row: the first where the chosen one is not there.
func (m *Model) chosenOf(names []string) string {
	switch {
	case slices.Contains(names, m.chosen[m.pane]):
		return m.chosen[m.pane]
	case len(names) > 0:
		return names[0]
	}
	return ""
}

// names are those of the rows in their order.
func (m *Model) names() []string {
	switch m.pane {
	case ofCluster:
		return nodeNames(m.nodes())
	case ofNode:
		return podNames(m.pods())
	}
	return nil
}

func nodeNames(nodes []Node) (names []string) {
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names
}

func podNames(pods []Pod) (names []string) {
	for i := range pods {
		names = append(names, pods[i].name())
	}
	return names
}

// orders are the ways to sort, which s goes through. Amounts are sorted from the largest down.
// Equal ones are sorted by name.
var orders = []struct {
	nodes func(*Node) float64
	pods  func(*Pod) float64
}{
	{func(n *Node) float64 { return float64(n.Price) }, func(p *Pod) float64 { return p.Throttled }},
	{func(n *Node) float64 { return float64(n.Usage) }, func(p *Pod) float64 { return float64(p.Usage) }},
	{func(n *Node) float64 { return float64(n.Demand) }, func(p *Pod) float64 { return float64(p.Demand) }},
	{func(*Node) float64 { return 0 }, func(*Pod) float64 { return 0 }}, // by name
}

// nodes are the nodes of the picture that pass the filter, sorted.
func (m *Model) nodes() (nodes []Node) {
	i := m.at()
	if i < 0 {
		return nil
	}
	for _, n := range m.clusters[i].Nodes {
		if strings.Contains(n.Name, m.filter) {
			nodes = append(nodes, n)
		}
	}
	by := orders[m.sort[ofCluster]].nodes
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(by(&b), by(&a)), cmp.Compare(a.Name, b.Name)) })
	return nodes
}

// pods are the pods of the picture that pass the filter, sorted.
func (m *Model) pods() (pods []Pod) {
	i := m.at()
	if i < 0 {
		return nil
	}
	for _, p := range m.rounds[i].Pods {
		if strings.Contains(p.name(), m.filter) {
			pods = append(pods, p)
		}
	}
	by := orders[m.sort[ofNode]].pods
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(by(&b), by(&a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// Package story tells a recording in sentences with times: when CPU became scarce, which limits changed and why, and what
// the time has brought and cost. All of it comes from the replayed rounds.
//
// Promises:
//   - A sentence is told of each change of a limit in force, each decision about one, each begin and end of a price, each pod
//     that comes or goes, and each time without rounds, and of nothing else: TestStory.
//   - Changes that are told are those that are counted, and one towards a decision names it: TestChanges.
//   - A decision that the price alone does not explain has its reason: TestReasons.
//   - A recording that goes on is told as if at once, and minutes that are over are replayed once: TestTellerGoesOn.
//   - What is told of a recording that goes on for days does not grow: TestTellerForgets.
//   - A pod's answer at a time is that of the last round or look before it, and has the changes of the limit in force before
//     and after: TestAt, TestAtInForce.
package story

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Entry is one sentence.
type Entry struct {
	At time.Time `json:"at"`
	// Pod is what it is about; empty: the node.
	Pod  string `json:"pod,omitempty"`
	Text string `json:"text"`
}

// Story is a recording in sentences.
type Story struct {
	Node     string         `json:"node"`
	Version  string         `json:"version"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Replayed replay.Summary `json:"-"`
	Entries  []Entry        `json:"entries"`
	Totals   benefit.Totals `json:"totals"`
}

// About selects pods.
type About func(record.Name) bool

// Pod selects a pod, by its namespace and name.
func Pod(namespace, name string) About {
	return func(n record.Name) bool { return n.Namespace == namespace && n.Name == name }
}

// Everything selects all pods.
func Everything(record.Name) bool { return true }

// Tell replays a recording, and tells what it is about. The totals are of these pods.
func Tell(rec *record.Recording, about About) (Story, error) { return NewTeller(about).Tell(rec) }

// Teller tells a recording that goes on. It replays each minute that is over once. It also tells minutes that the recording
// no longer has, until there are as many of them as the recording has.
type Teller struct {
	about About
	over  teller // what was told of the minutes that are over
	sum   replay.Summary
	run   string // of the agent
	seq   uint64 // of the last minute that is over
}

// NewTeller has told nothing yet.
func NewTeller(about About) *Teller {
	return &Teller{about: about, over: teller{about: about, pods: map[string]*pod{}, totals: benefit.NewCounter(about)}}
}

// Tell tells a recording that has gone on since the last call, or another one. All of its minutes but the last are over.
func (t *Teller) Tell(rec *record.Recording) (Story, error) {
	next := slices.IndexFunc(rec.Minutes, func(m *record.Minute) bool { return m.Seq > t.seq })
	if rec.About.Run != t.run || next < 0 || t.sum.Minutes > len(rec.Minutes)+next {
		*t = *NewTeller(t.about)
		next, t.run = 0, rec.About.Run
	}
	told, sum := t.over, t.sum
	for i := next; i < len(rec.Minutes); i++ {
		m := rec.Minutes[i]
		told, sum = t.over.clone(), t.sum
		err := sum.Add(m, func(f *replay.Frame) error {
			told.frame(f)
			return nil
		})
		if err != nil {
			return t.story(rec, told, sum), err
		}
		if i < len(rec.Minutes)-1 {
			t.over, t.sum, t.seq = told, sum, m.Seq
		}
	}
	return t.story(rec, told, sum), nil
}

func (t *Teller) story(rec *record.Recording, told teller, sum replay.Summary) Story {
	return Story{
		Node: rec.About.Node, Version: rec.About.Version, From: sum.From, To: sum.To, Replayed: sum, Entries: told.entries, Totals: told.totals.Totals(),
	}
}

// teller tells frame by frame.
type teller struct {
	about   About
	totals  *benefit.Counter
	entries []Entry

	begun  bool
	pods   map[string]*pod // of the last round, by UID
	price  market.Price    // as last told
	since  time.Time       // when CPU got its price
	full   bool
	paused bool // no rounds are run
}

// pod is what was last told of a pod.
type pod struct {
	name    record.Name
	managed bool
	inForce cpu.Milli // the limit in its spec
	limit   cpu.Milli // as decided
	since   time.Time // when it was decided
	moved   bool      // a change since then went towards it
	before  struct {  // what was decided before that, and may still be on its way
		limit cpu.Milli
		since time.Time
	}
	seen bool // in this round
}

// newPod is a pod of which nothing is told yet. A limit that is not the declared one has moved before.
func newPod(in *replay.Pod) *pod {
	limit := benefit.LimitOf(in.PodInput)
	return &pod{
		name: in.Name, managed: !in.Unmanaged, inForce: limit, limit: publishedOf(in), since: in.Published.At, moved: limit != declaredOf(in),
	}
}

// clone goes on from here by itself.
func (t *teller) clone() teller {
	out := *t
	out.totals = t.totals.Clone()
	out.entries = slices.Clip(t.entries) // what is appended is its own
	out.pods = make(map[string]*pod, len(t.pods))
	for uid, p := range t.pods {
		copied := *p
		out.pods[uid] = &copied
	}
	return out
}

// told is how much a price must have changed to be told again.
const told = 1.5

func (t *teller) frame(f *replay.Frame) {
	at := f.At()
	t.totals.Add(f)
	if f.Gap != nil {
		if !t.paused {
			t.say(at, nil, "No round is run: "+f.Gap.Why+".")
		}
		t.paused = true
		return
	}
	n := f.Output.Node
	if f.Round != nil {
		if t.paused {
			t.say(at, nil, "Rounds go on.")
		}
		t.paused = false
		if t.begun {
			t.market(at, n)
		} else {
			t.begin(at, n)
		}
		t.comeAndGo(at, f.Pods)
		t.begun = true
	}
	for i := range f.Output.Decisions {
		t.decision(at, f, &f.Output.Decisions[i])
	}
}

func (t *teller) begin(at time.Time, n round.NodeDecision) {
	text := "The recording begins"
	if n.UsageKnown {
		text += fmt.Sprintf(". The pods use %v and demand %v of a supply of %v", n.Usage, n.Demand, n.Supply)
	}
	if t.price = n.Price; n.Price > 0 {
		t.since = at
		text += fmt.Sprintf(", and the price is %v", n.Price)
	} else {
		text += ", and CPU has no price"
	}
	t.say(at, nil, text+".")
}

// market tells how the price and the floors have changed.
func (t *teller) market(at time.Time, n round.NodeDecision) {
	switch was := t.price; {
	case n.Price > 0 && was == 0:
		t.say(at, nil, fmt.Sprintf("CPU becomes scarce: the pods demand %v of a supply of %v, and the price is %v.", n.Demand, n.Supply, n.Price))
		t.price, t.since = n.Price, at
	case n.Price == 0 && was > 0:
		t.say(at, nil, fmt.Sprintf("CPU has no price any more, after %v: the pods demand %v of a supply of %v.",
			at.Sub(t.since).Round(time.Second), n.Demand, n.Supply))
		t.price = 0
	case n.Price > told*was || n.Price*told < was:
		t.say(at, nil, fmt.Sprintf("The price goes from %v to %v: the pods demand %v of a supply of %v.", was, n.Price, n.Demand, n.Supply))
		t.price = n.Price
	}
	if n.FloorsExceedSupply != t.full {
		text := "The floors of the pods add up to more than the supply, so nothing can be divided."
		if t.full = n.FloorsExceedSupply; !t.full {
			text = "The floors of the pods fit the supply again."
		}
		t.say(at, nil, text)
	}
}

// comeAndGo tells which managed pods are new, and which have gone.
func (t *teller) comeAndGo(at time.Time, pods []replay.Pod) {
	for _, p := range t.pods {
		p.seen = false
	}
	for i := range pods {
		in := &pods[i]
		p := t.pods[in.UID]
		if p == nil {
			p = newPod(in)
			p.managed = false
			t.pods[in.UID] = p
		}
		switch {
		case in.Unmanaged && p.managed:
			t.say(at, &p.name, "It takes part no more: it is being deleted, or is not managed.")
		case !in.Unmanaged && !p.managed && t.begun:
			t.comes(at, in)
		}
		if p.managed && !in.Unmanaged {
			t.change(at, p, in)
		}
		p.seen, p.managed, p.inForce = true, !in.Unmanaged, benefit.LimitOf(in.PodInput)
	}
	for _, uid := range sortedKeys(t.pods) {
		p := t.pods[uid]
		if p.seen {
			continue
		}
		if delete(t.pods, uid); p.managed {
			t.say(at, &p.name, "It has gone.")
		}
	}
}

func (t *teller) comes(at time.Time, in *replay.Pod) {
	t.say(at, &in.Name, fmt.Sprintf("It takes part, with a limit of %v.", benefit.LimitOf(in.PodInput)))
}

// change tells of a change of the limit in force: what it makes of the decisions. One whose decision is not among the last two
// is a restore, a rollback, a start-up boost, or not by MBCAS: a recording does not have it.
func (t *teller) change(at time.Time, p *pod, in *replay.Pod) {
	to := benefit.LimitOf(in.PodInput)
	if to == p.inForce {
		return
	}
	verb := "lowered"
	if to > p.inForce {
		verb = "raised"
	}
	text := fmt.Sprintf("Its limit is %s from %v to %v", verb, p.inForce, to)
	switch {
	case p.limit == 0:
		text += "; no decision was published"
	case to == p.limit:
		text += ", as decided" + p.moves(at)
	case to == p.before.limit:
		text += ", as decided at " + clock(p.before.since)
	case between(p.inForce, to, p.limit):
		text += fmt.Sprintf(", a step towards the %v decided%s", p.limit, p.moves(at))
	case to == declaredOf(in):
		text += fmt.Sprintf(", its declared limit; the decision is %v, and the recording does not have why", p.limit)
	default:
		text += fmt.Sprintf("; the decision is %v, and the recording does not have why", p.limit)
	}
	t.say(at, &p.name, text+".")
}

// late is the time after which a decision is told to have waited.
const late = 10 * time.Second

// moves says when the decision was that a change goes towards, and for how long it had waited before its first change, as where
// the mode has become enforce.
func (p *pod) moves(at time.Time) string {
	text := " at " + clock(p.since)
	if waited := at.Sub(p.since); !p.moved && waited > late {
		text += fmt.Sprintf(", %v before", waited.Round(time.Second))
	}
	p.moved = true
	return text
}

func declaredOf(p *replay.Pod) (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Declared
		}
	}
	return sum
}

// between says whether a change from a limit goes towards another.
func between(from, to, end cpu.Milli) bool { return from < to && to < end || from > to && to > end }

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// decision tells of a limit that is decided and published, unless that is what was published before. It says nothing about the
// limit in force: in mode recommend that stays.
func (t *teller) decision(at time.Time, f *replay.Frame, d *round.Decision) {
	in := &f.Pods[d.Pod]
	p := t.pods[in.UID]
	if p == nil { // it has joined since the round
		p = newPod(in)
		t.pods[in.UID] = p
		t.comes(at, in)
	}
	if !d.Publish || d.Limit == p.limit {
		return
	}
	text := fmt.Sprintf("The decision goes from %v to %v", p.limit, d.Limit)
	if p.limit == 0 {
		text = fmt.Sprintf("The first decision is a limit of %v", d.Limit)
	}
	if p.limit != p.inForce {
		text += fmt.Sprintf(" (in force: %v)", p.inForce)
	}
	if p.limit > 0 || d.Limit != p.inForce {
		t.say(at, &p.name, text+": "+why(d, f)+".")
	}
	p.before.limit, p.before.since = p.limit, p.since
	p.limit, p.since, p.moved = d.Limit, at, false
}

func (t *teller) say(at time.Time, about *record.Name, text string) {
	e := Entry{At: at, Text: text}
	if about != nil {
		if !t.about(*about) {
			return
		}
		e.Pod = about.String()
	}
	t.entries = append(t.entries, e)
}

// Text is the story with a time before each sentence.
func (s Story) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s from %s to %s.\n\n", s.Node, s.From.UTC().Format("2006-01-02 15:04:05"), s.To.UTC().Format("15:04:05 UTC"))
	for _, e := range s.Entries {
		text := e.Text
		if e.Pod != "" {
			text = e.Pod + ": " + text
		}
		fmt.Fprintf(&b, "%s  %s\n", e.At.UTC().Format("15:04:05.0"), text)
	}
	b.WriteString("\n" + s.Totals.Text())
	if s.Replayed.Missing > 0 {
		fmt.Fprintf(&b, "The recording no longer has %v of this time.\n", s.Replayed.Missing.Round(time.Second))
	}
	if d := s.Replayed.First; d != nil {
		fmt.Fprintf(&b, "Caution: from %s on the replay gives other results than MBCAS %s has recorded: the sentences are of the replay.\n",
			d.At.UTC().Format("15:04:05.0"), s.Version)
	}
	return b.String()
}

func publishedOf(p *replay.Pod) (sum cpu.Milli) {
	for _, l := range p.Published.Limits {
		sum += l
	}
	return sum
}

func sortedKeys(m map[string]*pod) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return strings.Compare(m[a].name.String()+a, m[b].name.String()+b)
	})
	return keys
}

// Package story tells a recording in sentences with times: when CPU became scarce, which limits changed and why, and what
// the time has brought and cost. All of it comes from the replayed rounds.
//
// Promises:
//   - A sentence is told of each change of a limit, each begin and end of a price, each pod that comes or goes, and each
//     time without rounds, and of nothing else: TestStory.
//   - A pod's answer at a time is that of the last round or look before it: TestAt.
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
func Tell(rec *record.Recording, about About) (Story, error) {
	t := teller{about: about, pods: map[string]*pod{}, totals: benefit.NewCounter(about)}
	sum, err := replay.Play(rec, func(f *replay.Frame) error {
		t.frame(f)
		return nil
	})
	s := Story{
		Node: rec.About.Node, Version: rec.About.Version, From: sum.From, To: sum.To, Replayed: sum, Entries: t.entries, Totals: t.totals.Totals(),
	}
	return s, err
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
	limit   cpu.Milli // as published
	seen    bool      // in this round
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
			p = &pod{name: in.Name, limit: publishedOf(in)}
			t.pods[in.UID] = p
		}
		switch {
		case in.Unmanaged && p.managed:
			t.say(at, &p.name, "It takes part no more: it is being deleted, or is not managed.")
		case !in.Unmanaged && !p.managed && t.begun:
			t.comes(at, in)
		}
		p.seen, p.managed = true, !in.Unmanaged
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
	t.say(at, &in.Name, fmt.Sprintf("It takes part, with a limit of %v.", in.Pod.Limit()))
}

// decision tells of a limit that is to be published, unless that is what was published before.
func (t *teller) decision(at time.Time, f *replay.Frame, d *round.Decision) {
	in := &f.Pods[d.Pod]
	p := t.pods[in.UID]
	if p == nil { // it has joined since the round
		p = &pod{name: in.Name, managed: true, limit: publishedOf(in)}
		t.pods[in.UID] = p
		t.comes(at, in)
	}
	was := p.limit
	if was == 0 {
		was = in.Pod.Limit()
	}
	if !d.Publish || d.Limit == p.limit || d.Limit == was {
		return
	}
	verb := "is to be lowered"
	if d.Limit > was {
		verb = "is to be raised"
	}
	p.limit = d.Limit
	because := why(d, f.Look != nil, d.Limit < was)
	t.say(at, &p.name, fmt.Sprintf("Its limit %s from %v to %v: %s.", verb, was, d.Limit, because))
}

// why says what led to a limit.
func why(d *round.Decision, look, lowered bool) string {
	var uses string
	switch {
	case look && lowered:
		return "two looks in a row found the node full, so its raise above the declared limit is revoked"
	case look:
		uses = "a look between two rounds saw it throttled"
	case d.ThrottleRatio > 0:
		uses = fmt.Sprintf("it used %v, was throttled in %.0f%% of its periods, and demands %v", d.Usage, 100*d.ThrottleRatio, d.Demand)
	default:
		uses = fmt.Sprintf("it used %v, and demands %v", d.Usage, d.Demand)
	}
	switch d.Bound {
	case market.ByPrice:
		return fmt.Sprintf("%s; its budget of %v buys %v at a price of %v", uses, d.Budget, d.Limit, d.Price)
	case market.ByFloor:
		return fmt.Sprintf("%s; its budget of %v buys less than its floor at a price of %v", uses, d.Budget, d.Price)
	case market.ByCeiling:
		if d.RevokedFor > 0 {
			return fmt.Sprintf("%s; its raise was revoked, and its next one waits for %v", uses, d.RevokedFor.Round(time.Second))
		}
		return uses + "; this is its ceiling"
	}
	if d.Price > 0 {
		return fmt.Sprintf("%s; the price of %v does not cap it", uses, d.Price)
	}
	return uses + "; CPU has no price"
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

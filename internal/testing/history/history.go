// Package history holds what happened to pods in a test, and checks the invariants of MBCAS over it.
// A history is a list of events; Check is a pure function of it, so that each invariant can be shown
// a history that breaks it.
package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Limits are CPU limits by container.
type Limits map[string]cpu.Milli

func (l Limits) String() string {
	parts := make([]string, 0, len(l))
	for _, name := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, name+"="+l[name].String())
	}
	return strings.Join(parts, ",")
}

// Kind is what an event is.
type Kind string

const (
	Created   Kind = "created"   // a pod, with the limits that its owner declared
	Gone      Kind = "gone"      // a pod
	External  Kind = "external"  // another writer set limits
	Sent      Kind = "sent"      // a process handed a resize to its connection
	Resized   Kind = "resized"   // the API server stored a resize of a process
	Audited   Kind = "audited"   // a process wrote an audit record
	Ledgered  Kind = "ledgered"  // a process recorded declared limits in the ledger
	Recorded  Kind = "recorded"  // a process recorded declared limits in the PodAllocation
	Wrote     Kind = "wrote"     // a process stored anything else
	Actuated  Kind = "actuated"  // the kubelet reports that it has carried a resize out, or never will
	Looked    Kind = "looked"    // a process began to reconcile a node
	Renewed   Kind = "renewed"   // an agent renewed its Lease
	Published Kind = "published" // an agent published, or confirmed, a decision
	Shown     Kind = "shown"     // the cache of a process shows a renewal or a decision (of Pod)
	Started   Kind = "started"   // a process
	Crashed   Kind = "crashed"   // a process
	Woken     Kind = "woken"     // a process that was stopped: its caches show what was
	Forgotten Kind = "forgotten" // a user deleted the PodAllocation of a pod, or, where Pod is "", the ledger of a node
	Admission Kind = "admission" // from here on admission answers otherwise in a namespace
	Told      Kind = "told"      // a user chose another mode for the namespace of a pod
	Quiet     Kind = "quiet"     // from here on no input changes
	Endless   Kind = "endless"   // a process reconciles a node again and again, at the same moment
	Stirred   Kind = "stirred"   // inputs change again
	Restored  Kind = "restored"  // everything was told to return to declared limits, and had the time to
)

// Event is one thing that happened. Which fields are set depends on its kind.
type Event struct {
	At   time.Time
	Kind Kind
	By   string // the process, with the number of its life
	Pod  string // its UID
	Node string

	Namespace string // with Created and Admission

	Before, Limits Limits
	// Of resizes: Guarded says that the request named the UID and the version of the pod, Other what it
	// changed beside CPU limits, and Mutated that admission did that.
	Guarded, Mutated bool
	Other            string
	Saw              View // with Sent

	// Of audit records; Reason also of what a process wrote about a pod.
	Purpose, Reason string
	Outcome         string
	// Stamp names a renewal or a decision; it is the time that the agent wrote into it. First says that
	// the process has seen none before.
	Stamp time.Time
	First bool
	Text  string // of Wrote
}

// View is what a process saw when it decided.
type View struct {
	Enforced bool // the mode of the namespace
	Paused   bool
	Keep     bool      // an autoscaler or a disruption budget wants no decrease
	Most     cpu.Milli // what the owner allows a container; 0: no bound
	Quota    bool      // the namespace has one, which may leave room for a part of a restore
	Requests Limits
	Node     cpu.Milli // what the node can allocate
	InForce  Limits    // what the kubelet reported
}

// Rules are the settings that the invariants depend on.
type Rules struct {
	FreezeAfter, RestoreAfter, HoldOff, ActuationTimeout time.Duration
	Rate                                                 float64
	Burst                                                int
	// Skew is by how much the clocks of processes and agents differ at most, Slack how long a decision
	// may take from its look at the node to its requests, and Lag how late caches are at most.
	Skew, Slack, Lag time.Duration
}

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant int
	Event     int // its place in the history
	Text      string
}

func (v Violation) String() string {
	return fmt.Sprintf("invariant %d, event %d: %s", v.Invariant, v.Event, v.Text)
}

// Invariants are the seven, in words.
var Invariants = [...]string{
	1: "A managed container's limit stays within its floor and ceiling; nothing else of a pod changes.",
	2: "No resize before the declared limit is recorded; restore returns exactly to it.",
	3: "No write to a pod whose UID, node, or externally changed limit differs from what the decision saw.",
	4: "At most one decrease in flight per pod; rate limits hold.",
	5: "No decision on stale data.",
	6: "When inputs stop changing, writes stop.",
	7: "Every resize leaves an audit record; no record without an attempt.",
}

// Check returns everything that breaks an invariant.
func Check(rules Rules, events []Event) []Violation {
	c := checker{rules: rules, events: events, pods: map[string]*pod{}, lives: map[string]*life{}, agents: map[string][]time.Time{}, stood: map[standing]time.Time{}}
	for i := range events {
		c.at = i
		c.take(&events[i])
	}
	return c.found
}

type checker struct {
	rules  Rules
	events []Event
	at     int
	pods   map[string]*pod
	lives  map[string]*life
	agents map[string][]time.Time // when the agent of a node renewed its Lease
	stood  map[standing]time.Time // when an agent last stood by a decision
	quiet  bool
	found  []Violation
}

// pod is what is known of one pod at some point of the history.
type pod struct {
	namespace          string
	limits, owners     Limits // in the spec, and those that the owner or another writer set last
	applied            Limits // by MBCAS; nil: none
	ledgered, recorded Limits
	external           time.Time // when another writer last changed a limit of a pod with a record
	decrease           time.Time // when the decrease in flight was sent; zero: none is
	records
}

// standing is a decision about a pod, by its date.
type standing struct {
	pod   string
	stamp int64
}

// life is one life of a process.
type life struct {
	crashed   bool
	woken     time.Time
	mutated   map[string]bool // namespaces in which it has learned that admission changes resizes
	tokens    float64
	filled    time.Time
	renewals  map[string]seen // by node
	decisions map[string]seen // by pod
	sent      map[string]request
	stored    []int // resizes that wait for their audit record
	unknown   map[string]attempt
}

// attempt is an audited resize of which the process does not know whether it was stored. It may be,
// later.
type attempt struct {
	audit Event
	sent  request
}

// request is a resize that a process sent, with what it had seen by then.
type request struct {
	Event
	lease, decision seen
	number          int // its place in the history
}

// seen is a renewal or a decision as a process saw it.
type seen struct {
	node                 string
	stamp, shown, looked time.Time
	first                bool
}

func (c *checker) fail(invariant int, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, c.at, fmt.Sprintf(format, args...)})
}

func (c *checker) life(by string) *life {
	l := c.lives[by]
	if l == nil {
		l = &life{
			tokens: float64(c.rules.Burst), renewals: map[string]seen{}, decisions: map[string]seen{}, sent: map[string]request{},
			unknown: map[string]attempt{}, mutated: map[string]bool{},
		}
		c.lives[by] = l
	}
	return l
}

func (c *checker) pod(uid string) *pod {
	p := c.pods[uid]
	if p == nil {
		p = &pod{}
		c.pods[uid] = p
	}
	return p
}

func (c *checker) take(e *Event) {
	switch e.Kind {
	case Created:
		p := c.pod(e.Pod)
		p.namespace, p.node = e.Namespace, e.Node
		p.limits, p.owners = maps.Clone(e.Limits), maps.Clone(e.Limits)
	case External:
		c.external(e)
	case Ledgered, Recorded:
		c.recorded(e)
	case Forgotten, Told:
		c.forgotten(e)
	case Sent:
		c.sent(e)
	case Resized:
		c.resized(e)
	case Audited:
		c.audited(e)
	case Actuated:
		c.pod(e.Pod).decrease = time.Time{}
	case Gone:
		c.pod(e.Pod).decrease, c.pod(e.Pod).limits = time.Time{}, nil
	case Renewed:
		c.agents[e.Node] = append(c.agents[e.Node], e.At)
	case Published:
		c.stood[standing{e.Pod, e.Stamp.UnixMicro()}] = e.At
	case Admission:
		for _, l := range c.lives {
			delete(l.mutated, e.Namespace)
		}
	case Woken:
		c.life(e.By).woken = e.At
	case Shown:
		l := c.life(e.By)
		s := seen{node: e.Node, stamp: e.Stamp, shown: e.At, first: e.First}
		if e.Pod != "" {
			l.decisions[e.Pod] = s
		} else {
			l.renewals[e.Node] = s
		}
	case Looked:
		c.looked(e)
	case Crashed:
		c.life(e.By).crashed = true
		c.lose()
	case Wrote:
		c.wrote(e)
	case Quiet:
		c.quiet = true
	case Stirred:
		c.quiet = false
	case Endless:
		c.fail(6, "%s reconciles node %s again and again", e.By, e.Node)
	case Restored:
		c.restored()
	}
	if c.quiet && (e.Kind == Resized || e.Kind == Wrote || e.Kind == Ledgered || e.Kind == Recorded) {
		c.fail(6, "%s still writes: %s %s %v %s", e.By, e.Kind, e.Pod, e.Limits, e.Text)
	}
	c.unaudited(e)
}

// external takes in limits that another writer set.
func (c *checker) external(e *Event) {
	p := c.pod(e.Pod)
	if maps.Equal(e.Before, e.Limits) {
		return
	}
	for name, l := range e.Limits {
		if e.Before[name] != l {
			p.limits[name], p.owners[name] = l, l
		}
	}
	p.decrease = time.Time{} // what was in flight is replaced
	expected := p.applied
	if expected == nil {
		expected = p.recorded
	}
	p.external = time.Time{}
	if expected != nil && !p.lost && !maps.Equal(expected, p.limits) { // one that was changed and changed back is as it was
		p.external = e.At
	}
}

func (c *checker) recorded(e *Event) {
	p := c.pod(e.Pod)
	if e.Kind == Ledgered {
		p.ledgered, p.inLedger = e.Limits, true
	} else {
		p.recorded, p.inAllocation, p.reason = e.Limits, true, e.Reason
	}
	p.isKnown(e.By)
}

// forgotten: a hold-off is part of the record, as are the limits that were applied, and it ends where
// a user chooses another mode.
func (c *checker) forgotten(e *Event) {
	if e.Pod == "" {
		c.forgottenLedger(e.Node)
		return
	}
	p := c.pod(e.Pod)
	p.external = time.Time{}
	if e.Kind == Forgotten {
		p.applied, p.inAllocation, p.reason = nil, false, ""
		c.lose()
	}
}

// looked: a process counts the age of what it sees from its first look.
func (c *checker) looked(e *Event) {
	l := c.life(e.By)
	for _, p := range c.pods {
		if p.node == e.Node && (p.inLedger || p.inAllocation) {
			p.isKnown(e.By)
		}
	}
	for _, of := range []map[string]seen{l.renewals, l.decisions} {
		for name, s := range of {
			if s.looked.IsZero() && s.node == e.Node {
				s.looked = e.At
				of[name] = s
			}
		}
	}
}

// sent: rates count where a request leaves the process.
func (c *checker) sent(e *Event) {
	l := c.life(e.By)
	if !l.filled.IsZero() {
		l.tokens = min(float64(c.rules.Burst), l.tokens+c.rules.Rate*e.At.Sub(l.filled).Seconds())
	}
	l.filled = e.At
	l.sent[e.Pod] = request{*e, l.renewals[e.Node], l.decisions[e.Pod], c.at}
}

func (c *checker) resized(e *Event) {
	p, l := c.pod(e.Pod), c.life(e.By)
	if e.Other != "" && (!e.Mutated || l.mutated[p.namespace]) {
		c.fail(1, "the resize of %s changes %s", e.Pod, e.Other)
	}
	if !e.Guarded {
		c.fail(3, "the resize of %s names no UID or no version", e.Pod)
	}
	if p.limits != nil && !maps.Equal(p.limits, e.Before) {
		c.fail(3, "the resize of %s starts from %v, the pod had %v", e.Pod, e.Before, p.limits)
	}
	for _, r := range []struct {
		where  string
		limits Limits
		there  bool // what was deleted since says nothing wrong
	}{{"ledger", p.ledgered, p.inLedger}, {"PodAllocation", p.recorded, p.inAllocation}} {
		if r.limits == nil {
			c.fail(2, "%s is resized, and its declared limits are not in the %s", e.Pod, r.where)
		} else if (r.there || !p.inLedger && !p.inAllocation) && !maps.Equal(r.limits, p.owners) {
			c.fail(2, "%s is resized with declared limits %v in the %s; its owner set %v", e.Pod, r.limits, r.where, p.owners)
		}
	}
	if p.lost && !l.crashed { // a request of one that ended may come late
		c.fail(2, "%s is resized, and its declared limits are known nowhere", e.Pod)
	}
	if l.tokens--; l.tokens < -0.001 {
		c.fail(4, "%s resizes more often than %v per second after a burst of %d", e.By, c.rules.Rate, c.rules.Burst)
	}
	p.limits, p.applied = maps.Clone(e.Limits), e.Limits
	if a, ok := l.unknown[e.Pod]; ok && sameChange(e, &a.audit) && a.sent.number == l.sent[e.Pod].number {
		delete(l.unknown, e.Pod)
		c.judge(e, &a.audit, a.sent)
		return
	}
	l.stored = append(l.stored, c.at)
}

// sameChange says whether an audit record is of a resize.
func sameChange(resize, audit *Event) bool {
	for name, to := range audit.Limits {
		if resize.Limits[name] != to || resize.Before[name] != audit.Before[name] {
			return false
		}
	}
	return true
}

// lowers says whether a container is lowered.
func lowers(before, after Limits) bool {
	for name, l := range after {
		if l < before[name] {
			return true
		}
	}
	return false
}

// audited matches an audit record with the resize that it is of. What is checked here depends on what
// the resize was for.
func (c *checker) audited(e *Event) {
	l := c.life(e.By)
	if e.Outcome == "WouldMutate" {
		l.mutated[c.pod(e.Pod).namespace] = true
	}
	if _, ok := l.sent[e.Pod]; !ok && e.Outcome == "Accepted" {
		c.fail(7, "the audit record of %s is of a resize that was never sent", e.Pod)
	}
	i := slices.IndexFunc(l.stored, func(i int) bool { return c.events[i].Pod == e.Pod })
	if i < 0 {
		if e.Outcome == "Accepted" {
			c.fail(7, "the audit record of %s is of a resize that was never stored", e.Pod)
		} else if e.Outcome == "Unknown" {
			l.unknown[e.Pod] = attempt{*e, l.sent[e.Pod]}
		}
		return
	}
	resize := c.events[l.stored[i]]
	l.stored = slices.Delete(l.stored, i, i+1)
	if !sameChange(&resize, e) {
		c.fail(7, "the audit record of %s says %v to %v, the resize was %v to %v", e.Pod, e.Before, e.Limits, resize.Before, resize.Limits)
	}
	if e.Node != resize.Node {
		c.fail(3, "%s is on node %s, and the decision was about node %s", e.Pod, resize.Node, e.Node)
	}
	c.judge(&resize, e, l.sent[e.Pod])
}

// judge looks at a resize with its purpose, by what the process saw when it was sent.
func (c *checker) judge(resize, audit *Event, sent request) {
	p, at := c.pod(resize.Pod), sent.At
	switch audit.Purpose {
	case "allocate", "rollback":
		c.judgeBounds(resize, audit, sent.Saw)
		c.judgeAge(resize, audit, sent)
		if ends := p.external.Add(c.rules.HoldOff - c.rules.Skew); !p.external.IsZero() && at.Before(ends) {
			c.fail(3, "%s is resized %v after another writer changed it", resize.Pod, at.Sub(p.external))
		}
	case "restore":
		for name, l := range resize.Limits {
			before, owners := resize.Before[name], p.owners[name]
			part := sent.Saw.Quota && l > before && l < owners
			step := audit.Reason == "AgentUnresponsive" && l < before && l > owners
			if l != before && l != owners && !part && !step {
				c.fail(2, "a restore of %s sets %s to %v, its owner declared %v", resize.Pod, name, l, p.owners[name])
			}
		}
		if audit.Reason == "AgentUnresponsive" {
			c.judgeSilence(resize, audit.Node, at)
		}
	case "revert":
		for name, l := range resize.Limits {
			in := sent.Saw.InForce[name]
			if l != resize.Before[name] && l != p.owners[name] && l-in != 0 {
				c.fail(1, "a revert of %s sets %s to %v, the kubelet reports %v", resize.Pod, name, l, in)
			}
		}
	}
	if !lowers(resize.Before, resize.Limits) || audit.Purpose == "revert" {
		return
	}
	if !p.decrease.IsZero() && audit.Purpose == "allocate" && at.Sub(p.decrease) < c.rules.ActuationTimeout-c.rules.Skew {
		c.fail(4, "%s is lowered %v after a decrease that the kubelet has not carried out", resize.Pod, at.Sub(p.decrease))
	}
	p.decrease = at
}

// judgeBounds: the obvious bounds, each of which production code refines.
func (c *checker) judgeBounds(resize, audit *Event, saw View) {
	p := c.pod(resize.Pod)
	if !saw.Enforced || saw.Paused {
		c.fail(1, "%s is resized: enforced %v, paused %v", resize.Pod, saw.Enforced, saw.Paused)
	}
	for name, to := range resize.Limits {
		from := resize.Before[name]
		floor := saw.Requests[name]
		if saw.Keep && audit.Purpose == "allocate" {
			floor = max(floor, min(from, p.owners[name]))
		}
		if saw.Most > 0 {
			floor = min(floor, saw.Most)
		}
		switch {
		case to == from:
		case to > saw.Node && to >= from:
			c.fail(1, "%s, %s: %v is above the node's %v", resize.Pod, name, to, saw.Node)
		case to < floor && to < from:
			c.fail(1, "%s, %s: %v is below its floor of %v", resize.Pod, name, to, floor)
		}
	}
}

// judgeSilence: a node is restored because its agent was silent, but for what the caches may not show.
func (c *checker) judgeSilence(resize *Event, node string, at time.Time) {
	if at.Sub(c.life(resize.By).woken) < c.rules.Lag {
		return
	}
	for _, renewed := range slices.Backward(c.agents[node]) {
		age := at.Sub(renewed)
		if age >= c.rules.RestoreAfter-c.rules.Slack {
			return
		}
		if age > c.rules.Lag {
			c.fail(5, "%s is restored for an unresponsive agent, which renewed its Lease %v before", resize.Pod, age)
			return
		}
	}
}

// judgeAge: what the process decided by was fresh when it looked.
func (c *checker) judgeAge(resize, audit *Event, sent request) {
	at, lease := sent.At, sent.lease
	since := lease.looked
	switch {
	case lease.first: // it has to speak for itself
		since = lease.stamp.Add(c.rules.Skew)
	case since.IsZero():
		since = lease.shown
	}
	if lease.shown.IsZero() || at.Sub(since) >= c.rules.FreezeAfter+c.rules.Slack {
		c.fail(5, "%s is resized by a Lease that %s first saw %v before", resize.Pod, resize.By, at.Sub(since))
	}
	if audit.Purpose != "allocate" || at.Sub(c.life(resize.By).woken) < c.rules.FreezeAfter+c.rules.Lag {
		return
	}
	stood := c.stood[standing{resize.Pod, sent.decision.stamp.UnixMicro()}]
	if d := sent.decision; !d.first && d.looked.After(stood) { // its age counts from the first look
		stood = d.looked
	}
	if late := max(c.rules.Skew, c.rules.Lag); at.Sub(stood) >= c.rules.FreezeAfter+c.rules.Slack+late {
		c.fail(5, "%s is resized by a decision that its agent last stood by %v before", resize.Pod, at.Sub(stood))
	}
}

// unaudited: a resize that was stored is in the audit log before the process does anything else about
// the pod, unless it crashed.
func (c *checker) unaudited(e *Event) {
	last := c.at == len(c.events)-1
	if e.Kind != Looked && !last {
		return
	}
	for by, l := range c.lives {
		if !last && by != e.By {
			continue
		}
		for _, i := range l.stored {
			if !l.crashed && i != c.at {
				c.fail(7, "the resize of %s (event %d) by %s has no audit record", c.events[i].Pod, i, by)
			}
		}
		l.stored = nil
	}
}

// restored: every pod with a record is back at what its owner set. Of one whose declared limits are known
// nowhere, the status says so, until its PodAllocation is deleted.
func (c *checker) restored() {
	for uid, p := range c.pods {
		if p.lost && p.said && (p.reason == "" || p.reason == unknown) {
			continue
		}
		if p.recorded != nil && p.limits != nil && !maps.Equal(p.limits, p.owners) {
			c.fail(2, "%s ends at %v, its owner declared %v", uid, p.limits, p.owners)
		}
	}
}

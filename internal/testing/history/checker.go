package history

import (
	"maps"
	"time"
)

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
	flight             flight
	ended              []string // containers, for good
	records
}

// flight is a resize in flight: when it was sent (zero: none is), and what it does.
type flight struct {
	sent           time.Time
	raises, lowers bool
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
		p = &pod{records: records{ours: map[string]bool{}}}
		c.pods[uid] = p
	}
	return p
}

func (c *checker) take(e *Event) {
	switch e.Kind {
	case Created:
		c.pod(e.Pod).created(e)
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
	case Uninstalled:
		c.raised(e)
		c.pod(e.Pod).limits, c.pod(e.Pod).flight = maps.Clone(e.Limits), flight{}
	case Completed:
		c.pod(e.Pod).ended = e.NotRunning
	case Actuated:
		c.pod(e.Pod).flight = flight{}
	case Gone:
		c.pod(e.Pod).flight, c.pod(e.Pod).limits = flight{}, nil
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
		c.shown(e)
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
	case AtRest:
		c.atRest(e)
	case Restored:
		c.restored()
	}
	if c.quiet && (e.Kind == Resized || e.Kind == Wrote || e.Kind == Ledgered || e.Kind == Recorded) {
		c.fail(6, "%s still writes: %s %s %v %s", e.By, e.Kind, e.Pod, e.Limits, e.Text)
	}
	c.unaudited(e)
}

// shown notes what the cache of a process shows.
func (c *checker) shown(e *Event) {
	l, s := c.life(e.By), seen{node: e.Node, stamp: e.Stamp, shown: e.At, first: e.First}
	if e.Pod != "" {
		l.decisions[e.Pod] = s
	} else {
		l.renewals[e.Node] = s
	}
}

// created takes in a pod as its owner declares it.
func (p *pod) created(e *Event) {
	p.namespace, p.node = e.Namespace, e.Node
	p.limits, p.owners = maps.Clone(e.Limits), maps.Clone(e.Limits)
	if e.Template {
		p.template = e.Limits
	}
}

// external takes in limits that another writer set.
func (c *checker) external(e *Event) {
	p := c.pod(e.Pod)
	if maps.Equal(e.Before, e.Limits) {
		return
	}
	for name, l := range e.Limits {
		if e.Before[name] != l {
			p.limits[name], p.owners[name], p.ours[name] = l, l, false
		}
	}
	p.flight = flight{} // what was in flight is replaced
	expected := p.applied
	if expected == nil {
		expected = p.recorded
	}
	p.external = time.Time{}
	if expected != nil && !p.lost && (p.inAllocation || !maps.Equal(expected, p.limits)) {
		p.external = e.At // where no PodAllocation is, one that was changed and changed back is as it was
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

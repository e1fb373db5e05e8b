package history

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Invariants are those that a history shows, by their numbers in the design.
var Invariants = [...]string{
	1:  "A managed container's limit stays within its floor and ceiling; nothing else of a pod changes.",
	2:  "No resize before the declared limit is recorded; restore returns exactly to it.",
	3:  "No write to a pod whose UID, node, or externally changed limit differs from what the decision saw.",
	4:  "At most one decrease in flight per pod; an increase may supersede it. Rate limits hold.",
	5:  "No decision on stale data.",
	6:  "When inputs stop changing, writes stop.",
	7:  "Every resize leaves an audit record; no record without an attempt.",
	10: "A limit is raised only while its container runs; at rest the quota of a pod's cgroup is that of its limits.",
}

func (c *checker) fail(invariant int, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, c.at, fmt.Sprintf(format, args...)})
}

// raised: what a resize raises runs.
func (c *checker) raised(e *Event) {
	for name, l := range e.Limits {
		if l > e.Before[name] && slices.Contains(e.NotRunning, name) {
			c.fail(10, "%s, %s: raised from %v to %v", e.Pod, name, e.Before[name], l)
		}
	}
}

func (c *checker) resized(e *Event) {
	p, l := c.pod(e.Pod), c.life(e.By)
	if e.Other != "" && (!e.Mutated || l.mutated[p.namespace]) {
		c.fail(1, "the resize of %s changes %s", e.Pod, e.Other)
	}
	c.raised(e)
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
	p.own(e)
	p.limits, p.applied = maps.Clone(e.Limits), e.Limits
	if a, ok := l.unknown[e.Pod]; ok && sameChange(e, &a.audit) && a.sent.number == l.sent[e.Pod].number {
		delete(l.unknown, e.Pod)
		c.judge(e, &a.audit, a.sent)
		return
	}
	l.stored = append(l.stored, c.at)
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

// judge looks at a resize with its purpose, by what the process saw when it was sent.
func (c *checker) judge(resize, audit *Event, sent request) {
	p, at := c.pod(resize.Pod), sent.At
	switch audit.Purpose {
	case "allocate", "rollback", "startup":
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
			c.judgeUnresponsive(resize, audit.Node, at)
		}
	case "repair":
		for name, l := range resize.Limits {
			if before := resize.Before[name]; l != before && max(l-before, before-l) != cpu.Quantum {
				c.fail(1, "a repair of %s sets %s from %v to %v", resize.Pod, name, before, l)
			}
		}
	case "stepback":
		for name, l := range resize.Limits {
			if before := resize.Before[name]; l != before && (l > before || !slices.Contains(resize.NotRunning, name)) {
				c.fail(1, "a step back of %s sets %s from %v to %v", resize.Pod, name, before, l)
			}
		}
	case "revert":
		for name, l := range resize.Limits {
			in := sent.Saw.InForce[name]
			if l != resize.Before[name] && l != p.owners[name] && l-in != 0 {
				c.fail(1, "a revert of %s sets %s to %v, the kubelet reports %v", resize.Pod, name, l, in)
			}
		}
	}
	if audit.Purpose == "revert" {
		return
	}
	now := flight{at, lowers(resize.Limits, resize.Before), lowers(resize.Before, resize.Limits)}
	since := at.Sub(p.flight.sent)
	if !p.flight.sent.IsZero() && audit.Purpose == "allocate" && since < c.rules.ActuationTimeout-c.rules.Skew {
		switch {
		case now.lowers:
			c.fail(4, "%s is lowered %v after a resize that the kubelet has not carried out", resize.Pod, since)
		case p.flight.raises:
			c.fail(4, "%s is raised %v after an increase that the kubelet has not carried out", resize.Pod, since)
		}
	}
	p.flight = now
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

// judgeUnresponsive: a node is restored because its agent was unresponsive, but for what the caches may not show.
func (c *checker) judgeUnresponsive(resize *Event, node string, at time.Time) {
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

// atRest: a pod with a limit of MBCAS has the right quota, and runs.
func (c *checker) atRest(e *Event) {
	p := c.pod(e.Pod)
	if !slices.Contains(slices.Collect(maps.Values(p.ours)), true) || p.lost {
		return
	}
	if !maps.Equal(e.Before, e.Limits) {
		c.fail(10, "the cgroup of %s has a quota of %v, its limits call for %v", e.Pod, e.Limits["pod"], e.Before["pod"])
	}
	if len(e.NotRunning) > 0 {
		c.fail(10, "%s: %v cannot start", e.Pod, e.NotRunning)
	}
}

// restored: every pod with a record is back at what its owner set, or has ended for good with less. Of one whose
// declared limits are known nowhere, the status says so, until its PodAllocation is deleted.
func (c *checker) restored() {
	for uid, p := range c.pods {
		if p.lost && p.said && (p.reason == "" || p.reason == unknown) {
			continue
		}
		if p.reason == waits && len(p.ended) > 0 {
			c.fail(2, "%s waits for containers that have ended for good: %v", uid, p.ended)
		}
		limits := maps.Clone(p.limits)
		for name, l := range limits {
			if slices.Contains(p.ended, name) {
				limits[name] = max(l, p.owners[name])
			}
		}
		if (p.recorded != nil || p.declared) && limits != nil && !maps.Equal(limits, p.owners) {
			c.fail(2, "%s ends at %v, its owner declared %v", uid, p.limits, p.owners)
		}
	}
}

package history

import (
	"strings"
	"time"
)

// records is where the declared limits of a pod are recorded now, and which processes have seen that.
type records struct {
	node                   string
	inLedger, inAllocation bool
	reason                 string // in its PodAllocation; "": none is
	known                  map[string]bool
	// lost: users have deleted both records while no process ran that had seen one. Where the limits are not
	// its owner's, the pod is not resized any more: what its owner declared is known nowhere.
	lost bool
	// template are the limits in the template of the pod's owner; nil: it has none. They stand in for both
	// records of the limits that MBCAS wrote last, which are in ours.
	template Limits
	ours     map[string]bool
	declared bool // by the template
	// said: since then, a process has written that the declared limits are unknown.
	said bool
}

// unknown is the reason that a PodAllocation has where its pod's declared limits are known nowhere.
const unknown = "DeclaredLimitUnknown"

// waits is the reason that a PodAllocation has whose restore waits for a container to run.
const waits = "ContainerNotRunning"

// isKnown: a process has seen or written a record. It rewrites one that is deleted.
func (r *records) isKnown(by string) {
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[by], r.lost = true, false
}

// lose finds the pods whose declared limits are known nowhere any more. A hold-off ends with the records.
func (c *checker) lose() {
	for _, p := range c.pods {
		if p.inLedger || p.inAllocation || p.known == nil {
			continue
		}
		lost := true
		for by := range p.known {
			lost = lost && c.life(by).crashed
		}
		if lost && p.template != nil {
			p.fromTemplate()
		} else if lost {
			p.said = p.said && p.lost
			p.lost, p.external = true, time.Time{}
		}
	}
}

// own notes the limits that a resize of MBCAS wrote.
func (p *pod) own(e *Event) {
	for name, l := range e.Limits {
		if e.Before[name] != l {
			p.ours[name] = true
		}
	}
}

// fromTemplate: of the limits of a pod without records, those that MBCAS wrote last are declared in the
// template, the others are declared as they are.
func (p *pod) fromTemplate() {
	for name, l := range p.limits {
		if p.owners[name] = l; p.ours[name] {
			p.owners[name] = p.template[name]
		}
	}
	p.declared = true
	p.known, p.ledgered, p.recorded, p.applied, p.external = nil, nil, nil, nil, time.Time{}
}

// forgottenLedger: a user deleted the ledger of a node.
func (c *checker) forgottenLedger(node string) {
	for _, p := range c.pods {
		if p.node == node {
			p.inLedger = false
		}
	}
	c.lose()
}

// wrote takes in what a process wrote about a pod.
func (c *checker) wrote(e *Event) {
	if e.Pod == "" {
		return
	}
	p := c.pod(e.Pod)
	p.reason = e.Reason
	p.said = p.said || e.Reason == unknown
	if strings.HasPrefix(e.Text, "delete ") {
		p.inAllocation = false
	}
}

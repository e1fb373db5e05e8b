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
	Created     Kind = "created"     // a pod, with the limits that its owner declared
	Gone        Kind = "gone"        // a pod
	External    Kind = "external"    // another writer set limits
	Sent        Kind = "sent"        // a process handed a resize to its connection
	Resized     Kind = "resized"     // the API server stored a resize of a process
	Audited     Kind = "audited"     // a process wrote an audit record
	Ledgered    Kind = "ledgered"    // a process recorded declared limits in the ledger
	Recorded    Kind = "recorded"    // a process recorded declared limits in the PodAllocation
	Wrote       Kind = "wrote"       // a process stored anything else
	Uninstalled Kind = "uninstalled" // an uninstall, or a user with the plugin, restored declared limits
	Completed   Kind = "completed"   // containers of a pod, for good: these are in NotRunning
	Actuated    Kind = "actuated"    // the kubelet reports that it has carried a resize out, or never will
	Looked      Kind = "looked"      // a process began to reconcile a node
	Renewed     Kind = "renewed"     // an agent renewed its Lease
	Published   Kind = "published"   // an agent published, or confirmed, a decision
	Shown       Kind = "shown"       // the cache of a process shows a renewal or a decision (of Pod)
	Started     Kind = "started"     // a process
	Crashed     Kind = "crashed"     // a process
	Woken       Kind = "woken"       // a process that was stopped: its caches show what was
	Forgotten   Kind = "forgotten"   // a user deleted the PodAllocation of a pod, or, where Pod is "", the ledger of a node
	Admission   Kind = "admission"   // from here on admission answers otherwise in a namespace
	Told        Kind = "told"        // a user chose another mode for the namespace of a pod
	Quiet       Kind = "quiet"       // from here on no input changes
	Endless     Kind = "endless"     // a process reconciles a node again and again, at the same moment
	Stirred     Kind = "stirred"     // inputs change again
	AtRest      Kind = "at rest"     // a pod: its cgroup has the CPU quota Limits, and Before is that of its limits
	Restored    Kind = "restored"    // everything was told to return to declared limits, and had the time to
)

// Event is one thing that happened. Which fields are set depends on its kind.
type Event struct {
	At   time.Time
	Kind Kind
	By   string // the process, with the number of its life
	Pod  string // its UID
	Node string

	Namespace string // with Created and Admission
	Template  bool   // with Created: the template of the pod's owner has these limits

	Before, Limits Limits
	NotRunning     []string // with Resized: containers that do not run, so that the kubelet would not carry it out
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

// Check returns everything that breaks an invariant.
func Check(rules Rules, events []Event) []Violation {
	c := checker{rules: rules, events: events, pods: map[string]*pod{}, lives: map[string]*life{}, agents: map[string][]time.Time{}, stood: map[standing]time.Time{}}
	for i := range events {
		c.at = i
		c.take(&events[i])
	}
	return c.found
}

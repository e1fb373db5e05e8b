package history_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/history"
)

var rules = history.Rules{
	FreezeAfter: time.Minute, RestoreAfter: 5 * time.Minute, HoldOff: 10 * time.Minute, ActuationTimeout: 90 * time.Second,
	Rate: 1, Burst: 2, Slack: 10 * time.Second, Lag: 20 * time.Second,
}

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// build builds histories of one pod, web on n1, that process A1 resizes, or the one named by.
type build struct {
	now    time.Time
	by     string
	events []history.Event
}

func (b *build) wait(d time.Duration) *build { b.now = b.now.Add(d); return b }

func (b *build) add(e history.Event) *build {
	e.At, e.By, e.Node = b.now, cmp.Or(b.by, "A1"), "n1"
	if e.Kind == history.Renewed {
		e.By = ""
	}
	b.events = append(b.events, e)
	return b
}

func app(m int) history.Limits {
	if m == 0 {
		return nil
	}
	return history.Limits{"app": cpu.Milli(m)}
}

// seen: the agent renewed its Lease and decided, and A1 has seen it.
func (b *build) seen() *build {
	return b.add(history.Event{Kind: history.Renewed}).
		add(history.Event{Kind: history.Shown, Stamp: b.now}).
		add(history.Event{Kind: history.Published, Pod: "web", Stamp: b.now}).
		add(history.Event{Kind: history.Shown, Pod: "web", Stamp: b.now}).
		add(history.Event{Kind: history.Looked})
}

func (b *build) pod(kind history.Kind, before, after int) *build {
	return b.add(history.Event{Kind: kind, Namespace: "shop", Pod: "web", Before: app(before), Limits: app(after)})
}

// created is a pod that declared 500m, which is recorded.
func created() *build {
	b := &build{now: noon}
	return b.pod(history.Created, 0, 500).pod(history.Ledgered, 0, 500).pod(history.Recorded, 0, 500).seen()
}

var view = history.View{Enforced: true, Requests: app(100), Node: 4000, InForce: app(500)}

// raised is a pod that A1 has raised to 2000m.
func raised() *build { return created().resize("allocate", 500, 2000).actuated() }

// lost: users delete both of its records while no process runs. A2 starts.
func (b *build) lost() *build {
	b.add(history.Event{Kind: history.Crashed}).add(history.Event{Kind: history.Forgotten, Pod: "web"}).add(history.Event{Kind: history.Forgotten})
	b.by = "A2"
	return b.seen()
}

// ends: the process says of the pod why it is as it is, and all pods are restored.
func (b *build) ends(reason string) *build {
	return b.says(reason).add(history.Event{Kind: history.Restored})
}

func (b *build) says(reason string) *build {
	return b.add(history.Event{Kind: history.Wrote, Pod: "web", Reason: reason})
}

// deleted: the process deletes the PodAllocation.
func (b *build) deleted() *build {
	return b.add(history.Event{Kind: history.Wrote, Pod: "web", Text: "delete PodAllocation web"})
}

// sends, stores and records a resize.
func (b *build) resize(purpose string, before, after int, change ...func(*history.Event)) *build {
	sent := history.Event{Kind: history.Sent, Pod: "web", Saw: view}
	stored := history.Event{Kind: history.Resized, Pod: "web", Before: app(before), Limits: app(after), Guarded: true}
	audit := history.Event{Kind: history.Audited, Pod: "web", Before: app(before), Limits: app(after), Purpose: purpose, Outcome: "Accepted"}
	for _, e := range []*history.Event{&sent, &stored, &audit} {
		for _, f := range change {
			f(e)
		}
		if e.Kind != "" {
			b.add(*e)
		}
	}
	return b
}

func (b *build) actuated() *build { return b.add(history.Event{Kind: history.Actuated, Pod: "web"}) }

// on changes events of one kind.
func on(kind history.Kind, f func(*history.Event)) func(*history.Event) {
	return func(e *history.Event) {
		if e.Kind == kind {
			f(e)
		}
	}
}

// mutated has admission change more of a pod than its resize asks for.
func mutated(e *history.Event) {
	switch e.Kind {
	case history.Resized:
		e.Other, e.Mutated = "the memory limit", true
	case history.Audited:
		e.Outcome = "WouldMutate"
	}
}

// TestInvariants gives the checker histories that keep the invariants and histories that break one.
func TestInvariants(t *testing.T) {
	for name, c := range map[string]struct {
		b         *build
		invariant int // 0: none is broken
		says      string
	}{
		"raised, lowered and restored": {created().resize("allocate", 500, 2000).actuated().wait(6*time.Second).seen().
			resize("allocate", 2000, 1400).actuated().wait(6*time.Second).seen().resize("restore", 1400, 500).add(history.Event{Kind: history.Quiet}).
			add(history.Event{Kind: history.Restored}), 0, ""},
		"a rollback":              {created().resize("rollback", 500, 700), 0, ""},
		"an answer that was lost": {created().resize("allocate", 500, 700, on(history.Audited, func(e *history.Event) { e.Outcome = "Unknown" })), 0, ""},

		"a renewal that no cache shows yet": {created().resize("allocate", 500, 700).actuated().wait(6*time.Minute).seen().wait(10*time.Second).
			resize("restore", 700, 500, on(history.Audited, func(e *history.Event) { e.Reason = "AgentUnresponsive" })), 0, ""},
		"admission begins to change pods":        {created().resize("allocate", 500, 700, mutated), 0, ""},
		"admission that is known to change pods": {created().resize("allocate", 500, 700, mutated).actuated().resize("allocate", 700, 800, mutated), 1, "the memory limit"},
		"admission begins anew": {created().resize("allocate", 500, 700, mutated).actuated().
			add(history.Event{Kind: history.Admission, Namespace: "shop"}).wait(time.Minute).seen().resize("allocate", 700, 800, mutated), 0, ""},
		"admission begins anew elsewhere": {created().resize("allocate", 500, 700, mutated).actuated().
			add(history.Event{Kind: history.Admission, Namespace: "lab"}).wait(time.Minute).seen().resize("allocate", 700, 800, mutated), 1, "the memory limit"},

		"both records lost":                       {raised().lost().ends("DeclaredLimitUnknown"), 0, ""},
		"both records lost, changed externally":   {raised().lost().pod(history.External, 2000, 300).pod(history.Ledgered, 0, 300).pod(history.Recorded, 0, 300).resize("allocate", 300, 700), 0, ""},
		"both records lost, and not told":         {raised().lost().ends("Settled"), 2, "ends at app=2000m"},
		"both records lost, and nothing said":     {raised().lost().ends(""), 2, "ends at app=2000m"},
		"both records lost, told and deleted":     {raised().lost().says("DeclaredLimitUnknown").deleted().ends(""), 0, ""},
		"both records lost, told before":          {raised().says("DeclaredLimitUnknown").lost().ends(""), 2, "ends at app=2000m"},
		"both records lost, and resized":          {raised().lost().resize("allocate", 2000, 700), 2, "known nowhere"},
		"both records lost, and a wrong one made": {raised().lost().pod(history.Ledgered, 0, 2000).ends("DeclaredLimitUnknown"), 2, "ends at app=2000m"},
		"both records deleted beside a process": {raised().add(history.Event{Kind: history.Forgotten, Pod: "web"}).add(history.Event{Kind: history.Forgotten}).
			ends("DeclaredLimitUnknown"), 2, "ends at app=2000m"},
		"one record deleted": {raised().add(history.Event{Kind: history.Crashed}).add(history.Event{Kind: history.Forgotten, Pod: "web"}).
			ends("DeclaredLimitUnknown"), 2, "ends at app=2000m"},
		"changed externally with one record": {created().add(history.Event{Kind: history.Crashed}).add(history.Event{Kind: history.Forgotten, Pod: "web"}).
			pod(history.External, 500, 300).pod(history.Ledgered, 0, 300).pod(history.Recorded, 0, 300).resize("allocate", 300, 700), 3, "another writer changed it"},

		"restored by the record that is left": {raised().pod(history.External, 2000, 300).add(history.Event{Kind: history.Forgotten, Pod: "web"}).
			pod(history.Ledgered, 0, 300).resize("restore", 300, 300), 0, ""},
		"restored by a wrong record that is left": {raised().pod(history.External, 2000, 300).add(history.Event{Kind: history.Forgotten, Pod: "web"}).
			resize("restore", 300, 500), 2, "declared limits app=500m in the ledger"},

		"above the node":                            {created().resize("allocate", 500, 4010), 1, "above the node's"},
		"below the request":                         {created().resize("allocate", 500, 90), 1, "below its floor"},
		"lowered under an HPA":                      {created().resize("allocate", 500, 400, on(history.Sent, func(e *history.Event) { e.Saw.Keep = true })), 1, "below its floor"},
		"more than CPU limits":                      {created().resize("allocate", 500, 700, on(history.Resized, func(e *history.Event) { e.Other = "the memory limit" })), 1, "the memory limit"},
		"in mode recommend":                         {created().resize("allocate", 500, 700, on(history.Sent, func(e *history.Event) { e.Saw.Enforced = false })), 1, "enforced false"},
		"while paused":                              {created().resize("allocate", 500, 700, on(history.Sent, func(e *history.Event) { e.Saw.Paused = true })), 1, "paused true"},
		"a revert to anything":                      {created().resize("revert", 500, 700), 1, "the kubelet reports"},
		"not recorded":                              {(&build{now: noon}).pod(history.Created, 0, 500).seen().resize("allocate", 500, 700), 2, "not in the ledger"},
		"recorded in the ledger only":               {(&build{now: noon}).pod(history.Created, 0, 500).pod(history.Ledgered, 0, 500).seen().resize("allocate", 500, 700), 2, "not in the PodAllocation"},
		"recorded wrongly":                          {created().pod(history.Recorded, 0, 600).resize("allocate", 500, 700), 2, "declared limits app=600m"},
		"restored to something else":                {created().resize("allocate", 500, 700).actuated().seen().resize("restore", 700, 600), 2, "its owner declared 500m"},
		"not restored in the end":                   {created().resize("allocate", 500, 700).add(history.Event{Kind: history.Restored}), 2, "ends at app=700m"},
		"raised while it is down":                   {created().resize("allocate", 500, 700, on(history.Resized, func(e *history.Event) { e.NotRunning = []string{"app"} })), 10, "raised from 500m"},
		"restored by an uninstall while it is down": {raised().add(history.Event{Kind: history.Uninstalled, Pod: "web", Before: app(400), Limits: app(500), NotRunning: []string{"app"}}), 10, "raised from 400m"},
		"restored by an uninstall": {raised().add(history.Event{Kind: history.Uninstalled, Pod: "web", Before: app(2000), Limits: app(500)}).
			wait(time.Minute).seen().resize("allocate", 500, 700), 0, ""},
		"lowered while it is down": {created().resize("allocate", 500, 400, on(history.Resized, func(e *history.Event) { e.NotRunning = []string{"app"} })), 0, ""},
		"ended with less": {created().resize("allocate", 500, 400).add(history.Event{Kind: history.Completed, Pod: "web", NotRunning: []string{"app"}}).
			add(history.Event{Kind: history.Restored}), 0, ""},
		"ended, and waited for": {created().add(history.Event{Kind: history.Completed, Pod: "web", NotRunning: []string{"app"}}).
			ends("ContainerNotRunning"), 2, "waits for containers"},
		"a repair":                              {created().resize("repair", 500, 510).actuated().resize("repair", 510, 500), 0, ""},
		"a repair by more":                      {created().resize("repair", 500, 520), 1, "a repair of web"},
		"a step back":                           {raised().resize("stepback", 2000, 500, on(history.Resized, func(e *history.Event) { e.NotRunning = []string{"app"} })), 0, ""},
		"a step back of what runs":              {raised().resize("stepback", 2000, 500), 1, "a step back of web"},
		"at rest":                               {raised().add(history.Event{Kind: history.AtRest, Pod: "web", Before: app(2000), Limits: app(2000)}), 0, ""},
		"a wrong quota at rest":                 {raised().add(history.Event{Kind: history.AtRest, Pod: "web", Before: history.Limits{"pod": 2000}, Limits: history.Limits{"pod": 500}}), 10, "a quota of 500m"},
		"of a pod that is as its owner made it": {created().add(history.Event{Kind: history.AtRest, Pod: "web", Before: app(500), Limits: app(300)}), 0, ""},
		"a container that cannot start":         {raised().add(history.Event{Kind: history.AtRest, Pod: "web", NotRunning: []string{"app"}}), 10, "cannot start"},
		"ended with more": {created().resize("allocate", 500, 700).add(history.Event{Kind: history.Completed, Pod: "web", NotRunning: []string{"app"}}).
			add(history.Event{Kind: history.Restored}), 2, "ends at app=700m"},
		"without preconditions":         {created().resize("allocate", 500, 700, on(history.Resized, func(e *history.Event) { e.Guarded = false })), 3, "no UID"},
		"from a limit that is not so":   {created().resize("allocate", 600, 700), 3, "starts from app=600m"},
		"over an external change":       {created().pod(history.External, 500, 300).pod(history.Ledgered, 0, 300).pod(history.Recorded, 0, 300).resize("allocate", 300, 700), 3, "another writer changed it"},
		"an increase over the decrease": {created().resize("allocate", 500, 400).wait(2*time.Second).seen().resize("allocate", 400, 700), 0, ""},
		"an increase over the increase": {created().resize("allocate", 500, 700).wait(6*time.Second).seen().resize("allocate", 700, 900), 4, "after an increase"},
		"a decrease over the increase":  {created().resize("allocate", 500, 700).wait(6*time.Second).seen().resize("allocate", 700, 600), 4, "has not carried out"},
		"a second decrease":             {created().resize("allocate", 500, 400).wait(6*time.Second).seen().resize("allocate", 400, 300), 4, "has not carried out"},
		"too many":                      {created().resize("allocate", 500, 700).actuated().resize("allocate", 700, 800).actuated().resize("allocate", 800, 900), 4, "more often"},
		"an old Lease":                  {created().wait(71*time.Second).add(history.Event{Kind: history.Shown, Pod: "web", Stamp: noon.Add(time.Minute)}).add(history.Event{Kind: history.Looked}).resize("allocate", 500, 700), 5, "by a Lease"},
		"an old decision":               {created().wait(91*time.Second).add(history.Event{Kind: history.Shown, Stamp: noon.Add(time.Minute)}).add(history.Event{Kind: history.Looked}).resize("allocate", 500, 700), 5, "by a decision"},
		"a living agent taken for dead": {created().resize("allocate", 500, 700).actuated().seen().wait(30*time.Second).resize("restore", 700, 500, on(history.Audited, func(e *history.Event) { e.Reason = "AgentUnresponsive" })), 5, "renewed its Lease"},
		"never quiet":                   {created().add(history.Event{Kind: history.Quiet}).add(history.Event{Kind: history.Wrote}), 6, "still writes"},
		"a crash before the audit record": {created().resize("allocate", 500, 700, on(history.Audited, func(e *history.Event) { e.Kind = "" })).
			add(history.Event{Kind: history.Crashed}).seen(), 0, ""},
		"no audit record":            {created().resize("allocate", 500, 700, on(history.Audited, func(e *history.Event) { e.Kind = "" })).seen(), 7, "no audit record"},
		"an audit record of nothing": {created().resize("allocate", 500, 700, on(history.Resized, func(e *history.Event) { e.Kind = "" })), 7, "never stored"},
		"an audit record of another": {created().resize("allocate", 500, 700, on(history.Audited, func(e *history.Event) { e.Limits = app(800) })), 7, "the resize was"},
	} {
		t.Run(name, func(t *testing.T) {
			found := history.Check(rules, c.b.events)
			switch {
			case c.invariant == 0 && len(found) > 0:
				t.Errorf("found %v", found)
			case c.invariant > 0 && (len(found) == 0 || found[0].Invariant != c.invariant || !strings.Contains(found[0].Text, c.says)):
				t.Errorf("found %v, want invariant %d and %q", found, c.invariant, c.says)
			}
		})
	}
}

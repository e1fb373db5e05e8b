package liveness

import (
	"fmt"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lifecycle"
)

const grace = time.Minute

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestRenewalsCount(t *testing.T) {
	for name, c := range map[string]struct {
		first time.Time
		want  time.Duration
	}{
		"no lease":                    {time.Time{}, grace},
		"renewed 10 s ago":            {now.Add(-10 * time.Second), 10 * time.Second},
		"renewed an hour ago":         {now.Add(-time.Hour), grace},
		"a clock that is ahead":       {now.Add(30 * time.Second), 0},
		"a clock that is far ahead":   {now.Add(time.Hour), grace},
		"renewed just a minute ago":   {now.Add(-grace), grace},
		"renewed almost a minute ago": {now.Add(-59 * time.Second), 59 * time.Second},
	} {
		var l tracker
		check := func(when string, after, want time.Duration) {
			if got := l.age("n1", now.Add(after)); got != want {
				t.Errorf("%s: age %v %s, want %v", name, got, when, want)
			}
		}
		l.observe("n1", c.first, now, grace)
		check("at first sight", 0, c.want)
		l.confirm("n1", c.first, now) // the watch shows what there is
		l.observe("n1", now.Add(-48*time.Hour), now.Add(time.Second), grace)
		check("a second after a renewal", 2*time.Second, time.Second)
		l.observe("n1", now.Add(-48*time.Hour), now.Add(time.Minute), grace)
		check("a minute after the last renewal", 61*time.Second, time.Minute)
	}
}

// TestCountsAgents: of ten agents that stop, those count whose nodes are Ready, or not known yet; a
// node without a Lease has no agent. An outage is told when it begins and when it ends.
func TestCountsAgents(t *testing.T) {
	var l tracker
	ready := lifecycle.Node{Ready: true, ReadySince: now.Add(-time.Hour)}
	for i := range 10 {
		name := fmt.Sprint("n", i)
		l.observe(name, now, now, grace)
		if i > 0 { // of n0 only the Lease was seen
			l.see(name, ready)
		}
	}
	l.see("n8", lifecycle.Node{ReadySince: now})
	l.see("n9", lifecycle.Node{Ready: true, ReadySince: now.Add(11 * time.Minute)}) // it comes back
	l.observe("virtual", time.Time{}, now, grace)
	l.see("virtual", ready)
	l.observe("gone", now, now, grace)
	l.drop("gone")
	check := func(when string, at time.Duration, want Counts, outage, changed bool) {
		t.Helper()
		got, isChanged := l.observeOutage(now.Add(at), 2*time.Minute)
		if got.Counts != want || got.Begun != outage || isChanged != changed {
			t.Errorf("%s: %+v, changed %v; want %+v, outage %v, changed %v", when, got, isChanged, want, outage, changed)
		}
	}
	check("while all renew", time.Minute, Counts{Total: 9}, false, false)
	check("after ten minutes", 10*time.Minute, Counts{Total: 9, Unresponsive: 8}, true, true)
	text := l.last().String()
	check("later", 11*time.Minute, Counts{Total: 9, Unresponsive: 8}, true, false)
	for i := range 6 {
		l.observe(fmt.Sprint("n", i), now.Add(11*time.Minute), now.Add(11*time.Minute), grace)
	}
	check("within the same second", 11*time.Minute, Counts{Total: 9, Unresponsive: 8}, true, false)
	if got := l.last().String(); got != text {
		t.Errorf("the outage is %q, and was %q", got, text)
	}
	check("when six renew", 12*time.Minute, Counts{Total: 9, Unresponsive: 2}, false, true)
}

// TestDeafWatch: a Lease that the API server shows renewed is of an agent that responds; one that it shows as the
// watch did confirms it, until the next renewal.
func TestDeafWatch(t *testing.T) {
	var l tracker
	l.observe("n1", now, now, grace)
	later := now.Add(6 * time.Minute)
	check := func(when string, at time.Time, age time.Duration, confirmed, late bool) {
		t.Helper()
		if a, c, l := l.age("n1", at), l.isConfirmed("n1"), l.isLate("n1", at, 5*time.Minute); a != age || c != confirmed || l != late {
			t.Errorf("%s: age %v, confirmed %v, late %v; want %v, %v, %v", when, a, c, l, age, confirmed, late)
		}
	}
	if l.confirm("n1", later.Add(-time.Second), later) {
		t.Error("a renewal that the watch did not show confirms that the agent is unresponsive")
	}
	check("after a renewal that the watch did not show", later, 6*time.Minute, false, true)
	check("long after it", later.Add(5*time.Minute), 11*time.Minute, false, false)
	l.observe("n1", later.Add(-time.Second), later, grace)
	check("when the watch shows it", later, 0, false, false)
	if !l.confirm("n1", later.Add(-time.Second), later.Add(6*time.Minute)) {
		t.Error("no renewal does not confirm that the agent is unresponsive")
	}
	check("without a renewal", later.Add(6*time.Minute), 6*time.Minute, true, false)
	l.observe("n1", later.Add(6*time.Minute), later.Add(6*time.Minute), grace)
	check("after a renewal", later.Add(6*time.Minute), 0, false, false)
}

// TestOldRenewals: a watch that begins minutes late shows renewals from before, one after the other.
// None of them counts, until it has shown what the API server itself shows, or a date that is fresh.
func TestOldRenewals(t *testing.T) {
	ago := func(minutes time.Duration) time.Time { return now.Add(-minutes * time.Minute) }
	for name, c := range map[string]struct {
		first, live, next, then time.Time // live: as the API server itself shows it meanwhile; zero: it is not asked
		want, later             time.Duration
	}{
		"late for good":           {ago(13), ago(11), ago(12), ago(11), grace + 10*time.Second, grace + 20*time.Second},
		"late, then fresh":        {ago(13), ago(11), ago(12), now.Add(15 * time.Second), grace + 10*time.Second, 5 * time.Second},
		"a clock that is behind":  {ago(13), ago(13), ago(12), ago(11), 0, 0},
		"no Lease was shown":      {time.Time{}, ago(11), ago(11), ago(11), grace + 10*time.Second, grace + 20*time.Second},
		"fresh from the start":    {now.Add(-10 * time.Second), time.Time{}, ago(11), ago(10), 0, 0},
		"nothing was asked, late": {ago(13), time.Time{}, ago(12), ago(11), grace + 10*time.Second, grace + 20*time.Second},
	} {
		var l tracker
		l.observe("n1", c.first, now, grace)
		if !c.live.IsZero() {
			l.confirm("n1", c.live, now)
		}
		l.observe("n1", c.next, now.Add(10*time.Second), grace)
		got := l.age("n1", now.Add(10*time.Second))
		l.observe("n1", c.then, now.Add(20*time.Second), grace)
		if later := l.age("n1", now.Add(20*time.Second)); got != c.want || later != c.later {
			t.Errorf("%s: age %v, then %v; want %v, then %v", name, got, later, c.want, c.later)
		}
	}
}

// TestOutageBegins: more than a third of the agents are an outage; in a small cluster each is on its own.
func TestOutageBegins(t *testing.T) {
	for name, c := range map[string]struct {
		agents Counts
		begun  bool
		outage bool
	}{
		"the only one":            {agents: Counts{1, 1}},
		"one of two":              {agents: Counts{2, 1}},
		"both of two":             {agents: Counts{2, 2}},
		"all of three":            {agents: Counts{3, 3}, outage: true},
		"one of ten":              {agents: Counts{10, 1}},
		"a third":                 {agents: Counts{9, 3}},
		"more than a third":       {agents: Counts{10, 4}, outage: true},
		"all of ten":              {agents: Counts{10, 10}, outage: true},
		"fewer, after the outage": {agents: Counts{9, 3}, begun: true, outage: true},
		"a quarter, after it":     {agents: Counts{12, 3}, begun: true},
		"one of two, after it":    {agents: Counts{2, 1}, begun: true},
		"none, after it":          {agents: Counts{10, 0}, begun: true},
	} {
		if got := c.agents.outage(c.begun); got != c.outage {
			t.Errorf("%s: an outage: %v, want %v", name, got, c.outage)
		}
	}
}

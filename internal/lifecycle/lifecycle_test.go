package lifecycle

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/market"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func app(m cpu.Milli) Limits { return Limits{{"app", m}} }

// constraint is what Kubernetes objects demand of the pod of one container; 0: nothing.
type constraint struct{ floor, ceiling, total cpu.Milli }

// running is a Ready pod of one container that requests 100m, on a node of 4000m.
func running(uid string, limit, declared cpu.Milli, c constraint) Pod {
	p := Pod{UID: uid, Mode: ModeEnforce, Ready: true, Declared: app(declared), InLedger: true, Ceiling: c.total}
	app := Container{Name: "app", Limit: limit, InForce: limit, Settable: 110, StartedAt: noon.Add(-time.Hour), PossiblyOwn: true}
	app.Floor, app.Ceiling = c.bounds()
	if app.Ceiling < 110 || c.total > 0 && c.total < 110 { // no limit fits: the container is left as it is
		app.Floor, app.Ceiling = limit, limit
	}
	if p.Ceiling > 0 {
		p.Ceiling = max(p.Ceiling, app.Floor)
	}
	app.NoDecreaseFloor = min(limit, max(declared, app.Floor)).Clamp(app.Floor, app.Ceiling)
	if p.Ceiling > 0 {
		app.NoDecreaseFloor = min(app.NoDecreaseFloor, p.Ceiling.RoundDown(cpu.Quantum))
	}
	p.Containers = []Container{app}
	return p
}

// bounds are the lowest and the highest limit that the pod may get, worked out the plain way.
func (c constraint) bounds() (floor, ceiling cpu.Milli) {
	floor, ceiling = max(110, c.floor), 4000
	for _, m := range []cpu.Milli{c.ceiling, c.total} {
		if m > 0 {
			ceiling = min(ceiling, m)
		}
	}
	if ceiling >= 110 { // below that nothing is moved
		floor = min(floor, ceiling)
	}
	return floor, ceiling
}

// drawn is a pod with any history, and what constrains it.
func drawn(t *rapid.T, i int) (Pod, constraint) {
	limit := func(what string) cpu.Milli { return cpu.Milli(10 * rapid.IntRange(11, 300).Draw(t, what)) }
	one := func(what string, of int) bool { return rapid.IntRange(0, of-1).Draw(t, what) == 0 }
	bound := func(what string) cpu.Milli {
		if !one("some "+what, 4) {
			return 0
		}
		return cpu.Milli(10 * rapid.IntRange(5, 350).Draw(t, what))
	}
	before := func(what string, most int) time.Time {
		return noon.Add(-time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Second)
	}
	declared, now := limit("declared"), limit("limit")
	if rapid.Bool().Draw(t, "at declared") {
		now = declared
	}
	c := constraint{bound("floor"), bound("ceiling"), bound("total")}
	p := running(fmt.Sprint("pod-", i), now, declared, c)
	app := &p.Containers[0]
	app.PossiblyOwn = rapid.Bool().Draw(t, "ours")
	p.OwnWrites = app.PossiblyOwn
	p.Mode = rapid.SampledFrom([]Mode{ModeEnforce, ModeEnforce, ModeEnforce, ModeRestore, ModeRecommend, ModeOff}).Draw(t, "mode")
	p.Progress = rapid.SampledFrom([]actuator.Progress{actuator.Done, actuator.Done, actuator.Done, actuator.Done, actuator.InProgress, actuator.Deferred, actuator.Infeasible, actuator.Errored}).Draw(t, "progress")
	p.InLedger = rapid.Bool().Draw(t, "in ledger")
	p.LatestWins, p.QuotaShort = rapid.Bool().Draw(t, "latest wins"), one("quota short", 4)
	p.StartupBoost = rapid.SampledFrom([]float64{0, 0, 1.5, 3, 10}).Draw(t, "start-up boost")
	p.ReadySince = before("ready for", 300)
	p.Memory.RestoreRefused = rapid.Bool().Draw(t, "restore refused")
	if one("request raised", 8) {
		app.RestoreFloor = limit("request")
	}
	if one("declared unknown", 4) {
		p.Declared = nil
	}
	switch rapid.IntRange(0, 9).Draw(t, "trouble") {
	case 0:
		p.Ready = false
	case 1:
		p.Ready = false
		if rapid.Bool().Draw(t, "says the kubelet") {
			p.UnreadySince = before("unready for", 900)
		}
	case 2:
		app.Restarts, app.EndedAt = 1, []time.Time{before("ended before", 300)}
	}
	if one("down", 5) {
		app.NotRunning, app.StartedAt = true, time.Time{}
		app.Completed = one("for good", 3)
		if app.FailedStart = one("failed start", 2); one("dated", 2) {
			app.FailedAt = before("failed", 60)
		}
		p.Memory.Repairs.Before = Limits{{"app", limit("before")}}
	}
	if one("quota wrong", 5) {
		p.Quota = Quota{CPU: limit("quota"), Wanted: now}
		p.Memory.Repairs.Made = rapid.IntRange(0, 4).Draw(t, "repairs")
		p.Memory.Repairs.NextAt = before("repair", 60).Add(30 * time.Second)
	} else if one("by a quantum", 10) {
		r := &p.Memory.Repairs
		r.To, r.From, r.MadeAt = Limits{{"app", now}}, Limits{{"app", now + cpu.Quantum}}, noon
	}
	app.Own = app.PossiblyOwn && rapid.Bool().Draw(t, "ours for certain")
	switch {
	case one("opted out", 10):
		p.Excluded.Reason = reasons.OptedOut
	case one("vpa", 10):
		p.Excluded = Cause{reasons.ManagedByVPA, "web"}
	case p.Mode == ModeOff:
		p.Excluded.Reason = reasons.NamespaceOff
	case one("old kubelet", 20):
		p.Excluded.Reason = reasons.NodeCannotResize
	}
	if one("refused", 10) {
		p.Refused = Cause{reasons.LimitRangeRefused, "container side"}
	}
	if one("unsure", 10) {
		p.UnknownAutoscaler = "VerticalPodAutoscalers"
	}
	p.TooLarge, p.NotPublished = one("too large", 20), one("not published", 20)
	if p.HPA = one("hpa", 10); one("no decrease", 4) {
		p.NoDecrease = reasons.ScaledByHPA
	}
	if p.Recorded = !one("no record", 5); !p.Recorded {
		return p, c
	}
	if !one("undecided", 4) {
		p.Decision = &Decision{Limits: Limits{{"app", limit("desired")}}}
		p.Decision.Price = rapid.SampledFrom([]market.Price{0, 1.5}).Draw(t, "price")
		p.Decision.RevokedFor = rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second}).Draw(t, "revoked for")
		p.Decision.Age = rapid.SampledFrom([]time.Duration{0, 0, 0, 59 * time.Second, time.Minute, time.Hour}).Draw(t, "age")
	}
	drawStatus(t, &p, now, limit, before)
	return p, c
}

// drawStatus draws what is recorded of a pod that stands at now.
func drawStatus(t *rapid.T, p *Pod, now cpu.Milli, limit func(string) cpu.Milli, before func(string, int) time.Time) {
	s := &p.Status
	if rapid.Bool().Draw(t, "recorded") {
		s.Declared = p.Declared
	}
	if rapid.Bool().Draw(t, "applied") {
		at := before("applied", 300).Add(-time.Second)
		s.Applied, s.LastApplied, s.LastDecrease = app(limit("last")), at, at
		switch rapid.IntRange(0, 3).Draw(t, "raised last") {
		case 0:
			s.LastDecrease, s.LastIncrease = time.Time{}, at
		case 1:
			s.LastIncrease = at
		}
		if rapid.Bool().Draw(t, "as recorded") {
			s.Applied = app(now)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "harmed") == 0 {
		s.LastHarmfulDecrease = noon.Add(-time.Duration(rapid.SampledFrom([]int{1, 3, 60, 1200, 1440, 1800}).Draw(t, "minutes")) * time.Minute)
	}
	if rapid.Bool().Draw(t, "lowered") {
		s.RollbackLimits, s.RollbackWindowStart = app(limit("from")), before("since", 600)
	}
	s.Phase = rapid.SampledFrom([]Phase{"", PhasePending, PhaseApplied, PhaseNotApplied, PhaseFailed, PhaseRestored}).Draw(t, "phase")
	s.Reason = rapid.SampledFrom([]reasons.Reason{
		"", reasons.ResizeInFlight, reasons.DecisionTooOld, reasons.ExternalChange, reasons.ResizeTimedOut, reasons.ResizeDeferred, reasons.QuotaExceeded,
	}).Draw(t, "reason")
	if rapid.Bool().Draw(t, "backing off") {
		s.RetryAt, s.Failures = noon.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "retry"))*time.Second), 1
	}
}

// TestKeepsTheRules draws nodes with any history, and holds every decision to the rules that matter
// most.
func TestKeepsTheRules(t *testing.T) {
	cfg := DefaultConfig()
	check := func(t *rapid.T) {
		one := func(what string, of int) bool { return rapid.IntRange(0, of-1).Draw(t, what) == 0 }
		n := Node{
			Ready: !one("not ready", 5), Pressure: one("pressure", 5), Draining: one("draining", 10), ShuttingDown: one("shutting down", 10),
			LeaseAge: rapid.SampledFrom([]time.Duration{0, 0, 0, 2 * time.Minute, 10 * time.Minute}).Draw(t, "lease"),
		}
		n.Outage, n.LeaseUnread = one("outage", 4), one("Lease unread", 4)
		n.Suspended = rapid.SampledFrom([]reasons.Reason{"", "", "", "", "", reasons.Paused, reasons.PermissionMissing, reasons.CRDNotInstalled}).Draw(t, "blocked")
		pods := make([]Pod, rapid.IntRange(1, 20).Draw(t, "pods"))
		constraints := make([]constraint, len(pods))
		for i := range pods {
			pods[i], constraints[i] = drawn(t, i)
		}
		tasks := Decide(cfg, n, pods, noon)
		if again := Decide(cfg, n, pods, noon); !reflect.DeepEqual(tasks, again) {
			t.Fatal("the same facts are decided in two ways")
		}
		seen := map[int]bool{}
		for _, task := range tasks {
			if seen[task.Pod] {
				t.Fatalf("pod %d has two tasks", task.Pod)
			}
			seen[task.Pod] = true
			if broken := breaks(cfg, n, pods[task.Pod], constraints[task.Pod], task); broken != "" {
				t.Fatalf("%s: %s %v, status %+v", broken, task.Purpose, task.Move, task.Status)
			}
		}
	}
	for range 10 { // a broken rule shows in one of some hundred histories
		rapid.Check(t, check)
	}
}

// breaks names the rule that a task breaks; "" if it breaks none.
func breaks(cfg Config, n Node, p Pod, c constraint, t Task) string {
	s := t.Status
	switch {
	case p.Declared != nil && len(s.Declared) == 0 && (p.Recorded || t.Create) && !t.Delete && !p.TooLarge:
		return "known declared limits are left out"
	case t.Delete && p.Declared != nil && !p.Current().Equal(app(restoreTo(p))):
		return "forgotten before it was restored"
	case t.Move == nil:
		return ""
	case p.TooLarge && (t.Purpose != Restore || !p.Containers[0].Own || t.to() != max(s.Declared.Of("app"), p.Containers[0].RestoreFloor)):
		return "moved with limits that no object can hold, other than back to the recorded ones"
	case p.Declared == nil:
		return "moved without known declared limits"
	case n.Suspended != "":
		return "moved while blocked"
	}
	x := state{pod: &p}
	if _, external := x.adopt(); external && p.Recorded {
		return "moved against an external change"
	}
	leaving := leavesMarket(p.Excluded.Reason)
	for _, ch := range t.Move.Changes {
		if ch.From != p.Containers[0].Limit || ch.From == ch.To {
			return "starts from another limit, or changes nothing"
		}
		floor, ceiling := c.bounds()
		harm := noon.Sub(s.LastHarmfulDecrease)
		harmed := !s.LastHarmfulDecrease.IsZero() && harm < cfg.RollbackHoldOff
		lowers := ch.To < ch.From
		revoked := p.Decision != nil && p.Decision.RevokedFor > 0 && lowers && ch.To >= p.Declared.Total()
		if !lowers && p.Containers[0].NotRunning {
			return "raises a container that does not run"
		}
		switch t.Purpose {
		case Allocate, Startup:
			switch {
			case t.Purpose == Startup && (lowers || float64(ch.To) > p.StartupBoost*float64(p.Declared.Total())+0.001 && ch.To > floor &&
				(p.Decision == nil || ch.To > p.Decision.Limits.Total())):
				return "a start-up boost lowers, or exceeds its factor"
			case t.Purpose == Startup && p.Decision != nil && p.Decision.RevokedFor > 0:
				return "boosts a pod whose raise was revoked"
			case t.Purpose == Startup && p.Ready && noon.Sub(p.ReadySince) >= cfg.BoostGrace:
				return "boosts a pod that is Ready"
			case ch.To < floor || ch.To > max(floor, ceiling) && !lowers:
				return "outside floor and ceiling"
			case lowers && !p.Ready && !revoked && (p.StartupBoost <= 1 || p.UnreadySince.IsZero() || noon.Sub(p.UnreadySince) < 10*time.Minute):
				return "lowers a pod that is not Ready, and was not for ten minutes after a boost"
			case lowers && !p.Ready && ch.To < min(p.Declared.Total(), max(floor, ceiling)):
				return "lowers a pod that is not Ready below its declared limit"
			case lowers && (p.NoDecrease != "" || harmed) && ch.To < p.Declared.Total() && ch.From <= max(floor, ceiling):
				return "lowers a pod below its declared limit that must not be decreased, and is not above its ceiling"
			case lowers && harmed && harm < cfg.RollbackWindow && !revoked:
				return "lowers a pod that a decrease harmed just now"
			case lowers && !revoked && p.HPA && !s.LastDecrease.IsZero() && noon.Sub(s.LastDecrease) < cfg.HPACooldown:
				return "lowers a pod of an HPA again within the cooldown"
			}
		case Repair:
			if max(ch.To-ch.From, ch.From-ch.To) != cpu.Quantum || !p.Containers[0].Own {
				return "repairs by another change than a quantum, or a limit of another writer"
			}
		case StepBack:
			if !lowers || ch.To < p.Containers[0].Settable || !p.Containers[0].NotRunning || !p.Containers[0].Own {
				return "steps back upwards, below the request, with a container that runs, or a limit of another writer"
			}
		case Rollback:
			if lowers || ch.To > max(floor, ceiling) || s.LastHarmfulDecrease.IsZero() {
				return "rolls back what did no harm, or too much"
			}
		case Restore:
			if broken := breaksRestore(cfg, n, p, t); broken != "" {
				return broken
			}
		}
	}
	allocates := t.Purpose == Allocate || t.Purpose == Startup
	switch {
	case !t.RecheckAt.IsZero() && t.RecheckAt.Before(noon):
		return "is decided about again at once, and so for good"
	case p.Mode == ModeRecommend && !leaving && t.Purpose != Repair && t.Purpose != StepBack && (t.Purpose != Restore || t.Move.Lowers()):
		return "moved in mode recommend, other than back up"
	case t.Purpose == Revert:
		return ""
	case allocates && p.Refused.Reason != "":
		return "tries what the API server refuses"
	case (allocates || t.Purpose == Rollback) && p.UnknownAutoscaler != "":
		return "moves a pod that may belong to an autoscaler"
	case !n.Ready || n.Pressure || n.Draining || n.ShuttingDown:
		return "moved on a node that cannot"
	case allocates && n.LeaseAge >= cfg.FreezeAfter:
		return "applies decisions of an unresponsive agent"
	case allocates && p.Decision != nil && p.Decision.Age >= cfg.FreezeAfter:
		return "moved on an old decision"
	case allocates && (p.Excluded.Reason != "" || p.Mode != ModeEnforce):
		return "manages a pod outside of the market"
	case p.Progress == actuator.InProgress && !retried(p, t) && !supersedes(p, t):
		return "a second resize in flight"
	}
	return ""
}

// retried says whether what is in flight is one that was given up: its back-off is over, and it is confirmed. A rollback
// reports itself instead.
func retried(p Pod, t Task) bool {
	s := t.Status
	if t.Purpose == Rollback {
		s = p.Status
	}
	return s.Phase == PhaseFailed || s.Failures > 0 && s.Reason == reasons.DecisionTooOld
}

// supersedes says whether a move may take the place of what is in flight. What was last recorded may be older than
// what is in flight: then a process ended between a resize and its record.
func supersedes(p Pod, t Task) bool {
	s := p.Status
	lowered := s.LastDecrease.Equal(s.LastApplied) && s.LastIncrease.Before(s.LastApplied)
	if limit := p.Containers[0].Limit; !s.lastApplied(p.Declared).Equal(app(limit)) {
		lowered = limit < s.lastApplied(p.Declared).Total()
	}
	return lowered && p.LatestWins && !p.QuotaShort && !t.Move.Lowers()
}

// restoreTo is the limit that a restore of a pod of one container ends at.
func restoreTo(p Pod) cpu.Milli {
	c := p.Containers[0]
	to := max(p.Declared.Total(), c.RestoreFloor)
	if c.Completed {
		return min(to, c.Limit)
	}
	return to
}

// breaksRestore names the rule that a restore breaks; "" if it breaks none.
func breaksRestore(cfg Config, n Node, p Pod, t Task) string {
	ch, to := t.Move.Changes[0], restoreTo(p)
	switch lowers := ch.To < ch.From; {
	case t.Why != reasons.AgentUnresponsive:
		if ch.To != to {
			return "restores something else"
		}
	case n.Outage:
		return "restores in an outage"
	case n.LeaseUnread:
		return "restores before the API server confirms that the agent is unresponsive"
	case n.LeaseAge < cfg.RestoreAfter:
		return "restores although the agent is responsive"
	case !lowers && ch.To != to:
		return "restores something else"
	case lowers && (ch.To < to || float64(ch.To)*cfg.Actuator.MaxDecreaseFactor < float64(ch.From)):
		return "lowers by more than a step"
	case lowers && (!p.Ready || noon.Sub(p.Status.LastDecrease) < cfg.Actuator.DecreaseCooldown):
		return "lowers a pod that is not Ready, or within the cooldown"
	case lowers && p.HPA && noon.Sub(p.Status.LastDecrease) < cfg.HPACooldown:
		return "lowers a pod of an HPA within its cooldown"
	case lowers && p.Containers[0].Restarts > 0 && noon.Sub(p.Containers[0].StartedAt) < cfg.RestartGrace:
		return "lowers a pod that has just restarted"
	}
	return ""
}

// applied is a pod that MBCAS resized to a limit.
func applied(limit, declared cpu.Milli) Pod {
	p := running("web", limit, declared, constraint{})
	p.Recorded, p.Status.Applied, p.Status.Phase = true, app(limit), PhaseApplied
	return p
}

// to is the limit that a resize of a pod of one container sets; 0: it is not resized.
func (t Task) to() cpu.Milli {
	if t.Move == nil {
		return 0
	}
	return t.Move.Changes[0].To
}

// up is a node that has been Ready for long.
var up = Node{Ready: true, ReadySince: noon.Add(-time.Hour)}

// decideOne is the only task of a node with one pod.
func decideOne(t *testing.T, cfg Config, n Node, p Pod, at time.Time) Task {
	t.Helper()
	tasks := Decide(cfg, n, []Pod{p}, at)
	if len(tasks) != 1 {
		t.Fatalf("%d tasks, want one", len(tasks))
	}
	return tasks[0]
}

// TestWaitsForTheAgent: a node that comes back after more than five minutes is restored only if its
// agent does not renew its Lease for five minutes from when it could have.
func TestWaitsForTheAgent(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		ready, lease time.Duration
		restored     bool
		again        time.Duration
	}{
		"back since a second": {time.Second, 6 * time.Minute, false, cfg.RestoreAfter + agentStart - time.Second},
		"not yet":             {cfg.RestoreAfter + agentStart - time.Second, time.Hour, false, time.Second},
		"still unresponsive":  {cfg.RestoreAfter + agentStart, time.Hour, true, 0},
		"Ready all the time":  {time.Hour, cfg.RestoreAfter, true, 0},
		"not so long":         {time.Hour, cfg.RestoreAfter - time.Second, false, time.Second},
	} {
		n := Node{Ready: true, ReadySince: noon.Add(-c.ready), LeaseAge: c.lease}
		got := decideOne(t, cfg, n, applied(1900, 2000), noon)
		if (got.Move != nil) != c.restored || !c.restored && (got.RecheckAt.Sub(noon) != c.again || got.Status.Reason != reasons.AgentUnresponsive) {
			t.Errorf("%s: move %v, status %+v, another look at %v", name, got.Move, got.Status, got.RecheckAt)
		}
	}
}

// TestStopsRestoresInAnOutage: the node of an agent that is unresponsive alone is restored; in an outage limits
// stay where they are.
func TestStopsRestoresInAnOutage(t *testing.T) {
	cfg := DefaultConfig()
	for name, n := range map[string]Node{"alone": {}, "in an outage": {Outage: true}, "Lease unread": {LeaseUnread: true}} {
		n.Ready, n.LeaseAge = true, cfg.RestoreAfter
		got := decideOne(t, cfg, n, applied(2000, 500), noon)
		if (got.Move != nil) != (name == "alone") || got.Move == nil && got.Status.Reason != reasons.AgentUnresponsive {
			t.Errorf("%s: move %v, status %+v", name, got.Move, got.Status)
		}
	}
}

// TestRestoresInSteps: after an unresponsive agent each resize is one step, the next waits for the
// cooldown, and none is made while the pod is not Ready. Limits below the declared one rise at once.
func TestRestoresInSteps(t *testing.T) {
	cfg, n := DefaultConfig(), Node{Ready: true, LeaseAge: 10 * time.Minute}
	for name, c := range map[string]struct {
		limit cpu.Milli
		edit  func(*Pod)
		to    cpu.Milli // 0: none
		again time.Duration
	}{
		"one step":         {limit: 3000, to: 2000},
		"the last step":    {limit: 600, to: 500},
		"the cooldown":     {3000, func(p *Pod) { p.Status.LastDecrease = noon.Add(-time.Second) }, 0, 4 * time.Second},
		"that of an HPA":   {3000, func(p *Pod) { p.HPA, p.Status.LastDecrease = true, noon.Add(-time.Second) }, 0, cfg.HPACooldown - time.Second},
		"it is not Ready":  {3000, func(p *Pod) { p.Ready = false }, 0, 0},
		"it starts":        {3000, func(p *Pod) { p.Containers[0].StartedAt = noon }, 0, cfg.StartGrace},
		"below, not Ready": {200, func(p *Pod) { p.Ready = false }, 500, 0},
		"an old decision":  {3000, func(p *Pod) { p.Decision = &Decision{Limits: app(4000), Age: time.Hour, Price: 1} }, 2000, 0},
	} {
		p := applied(c.limit, 500)
		if c.edit != nil {
			c.edit(&p)
		}
		got := decideOne(t, cfg, n, p, noon)
		if got.to() != c.to || got.Purpose != Restore || c.to == 0 && (got.Status.Reason != reasons.AgentUnresponsive ||
			c.again != 0 && got.RecheckAt.Sub(noon) != c.again) {
			t.Errorf("%s: to %v, want %v; %+v", name, got.to(), c.to, got)
		}
	}
}

// TestRestoresToTheRequest: where the CPU request was raised above the declared limit, a restore goes
// to the request, says so, and ends. The declared limit stays recorded.
func TestRestoresToTheRequest(t *testing.T) {
	cfg, p := DefaultConfig(), applied(900, 500)
	p.Mode, p.Containers[0].RestoreFloor = ModeRestore, 700
	got := decideOne(t, cfg, Node{Ready: true}, p, noon)
	if got.to() != 700 {
		t.Fatalf("%+v, want a resize to the request of 700m", got)
	}
	p.Containers[0].Limit, p.Containers[0].InForce, p.Status.Applied = 700, 700, app(700)
	got = decideOne(t, cfg, Node{Ready: true}, p, noon)
	if got.Move != nil || got.Status.Phase != PhaseRestored || !strings.Contains(got.Status.Message, "container app was raised above its declared limit of 500m") ||
		!got.Status.Declared.Equal(app(500)) {
		t.Errorf("at the request: %+v, want it Restored, with the reason why it is not the declared limit", got)
	}
	p.Excluded.Reason = reasons.OptedOut
	if got = decideOne(t, cfg, Node{Ready: true}, p, noon); !got.Delete {
		t.Errorf("out, at the request: %+v, want its record deleted", got)
	}
}

// TestRaisesWhatItLowered: a change from enforce to recommend leaves no limit below the declared one,
// whatever the agent does, and lowers none. What stays above is said.
func TestRaisesWhatItLowered(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		limit cpu.Milli
		lease time.Duration
		to    cpu.Milli // 0: none
		says  string
	}{
		"lowered":                       {limit: 200, to: 500},
		"lowered, by an agent now gone": {limit: 200, lease: time.Hour, to: 500},
		"raised":                        {limit: 2000, says: "the limits that MBCAS raised stay"},
		"raised, by an agent now gone":  {limit: 2000, lease: time.Hour, says: "the limits that MBCAS raised stay"},
		"as declared":                   {limit: 500},
	} {
		p := applied(c.limit, 500)
		p.Mode, p.Decision = ModeRecommend, &Decision{Limits: app(150)}
		got := decideOne(t, cfg, Node{Ready: true, LeaseAge: c.lease}, p, noon)
		if got.to() != c.to || c.to == 0 && (got.Status.Reason != reasons.Recommending || !strings.Contains(got.Status.Message, c.says)) {
			t.Errorf("%s: to %v, want %v; %+v", name, got.to(), c.to, got.Status)
		}
	}
}

// TestRaisesWhatStaysUndecided: a pod whose limit was lowered, and about which an agent that lives has not
// been able to decide for five minutes, has its declared limit again. Nothing is lowered for that.
func TestRaisesWhatStaysUndecided(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		limit       cpu.Milli
		unconfirmed time.Duration
		node        Node
		to          cpu.Milli // 0: none
	}{
		"lowered":                        {limit: 200, unconfirmed: cfg.RestoreAfter, to: 500},
		"lowered, not for long":          {limit: 200, unconfirmed: 4 * time.Minute},
		"lowered, and the agent decides": {limit: 200},
		"lowered, in an outage":          {limit: 200, unconfirmed: time.Hour, node: Node{Outage: true}},
		"raised":                         {limit: 2000, unconfirmed: time.Hour},
	} {
		p := applied(c.limit, 500)
		p.Decision = &Decision{Limits: app(c.limit), Age: c.unconfirmed, Unconfirmed: c.unconfirmed}
		c.node.Ready = true
		if got := decideOne(t, cfg, c.node, p, noon); got.to() != c.to {
			t.Errorf("%s: to %v, want %v", name, got.to(), c.to)
		}
	}
}

// TestNamesTheConstraint: a pod that is not lowered says why as soon as the market would lower it, though it has room
// below its limit. Between two of several steps that is StepLimited, and before the last one CoolingDown. One that is
// not Ready, has just started or has just restarted says which of these it is; once that has passed it is lowered.
func TestNamesTheConstraint(t *testing.T) {
	cfg := DefaultConfig()
	started := func(ago time.Duration, restarts int) func(*Pod) {
		return func(p *Pod) { p.Containers[0].StartedAt, p.Containers[0].Restarts = noon.Add(-ago), restarts }
	}
	noDisruption := func(p *Pod) { p.NoDecrease = reasons.NoDisruptionAllowed }
	lowered := func(p *Pod) {
		p.Status.Applied, p.Status.LastDecrease = app(p.Containers[0].Limit), noon.Add(-time.Second)
	}
	scarce := Decision{Limits: app(700), Demand: 4000, Price: 0.5}
	for name, c := range map[string]struct {
		limit, declared cpu.Milli
		decision        Decision
		edit            func(*Pod)
		want            reasons.Reason // empty: it is lowered
	}{
		"CPU is not scarce":          {1000, 1000, Decision{Limits: app(1000), Demand: 900}, noDisruption, reasons.Settled},
		"its budget buys its demand": {1000, 1000, Decision{Limits: app(1000), Demand: 190, Price: 0.5}, noDisruption, reasons.Settled},
		"its demand is more":         {1000, 1000, Decision{Limits: app(1000), Demand: 300, Price: 0.5}, noDisruption, reasons.NoDisruptionAllowed},
		"it demands more than it gets": {
			1000, 1000, Decision{Limits: app(1000), Demand: 1200, Price: 0.5, AtFloor: true}, noDisruption, reasons.NoDisruptionAllowed,
		},
		"several steps are left": {1340, 2000, Decision{Limits: app(300)}, lowered, reasons.StepLimited},
		"one step is left":       {600, 2000, Decision{Limits: app(500)}, lowered, reasons.CoolingDown},
		"it starts":              {900, 900, scarce, started(cfg.StartGrace-time.Second, 0), reasons.PodStarting},
		// A start that long ago is over.
		"it has restarted": {900, 900, scarce, started(cfg.RestartGrace-time.Second, 1), reasons.RecentlyRestarted},
		"it is not Ready":  {900, 900, scarce, func(p *Pod) { p.Ready = false }, reasons.PodNotReady},
		"all that is over": {900, 900, scarce, started(time.Hour, 3), ""},
	} {
		p := running("a", c.limit, c.declared, constraint{})
		c.decision.Budget, p.Recorded, p.Decision = 100, true, &c.decision
		c.edit(&p)
		got := decideOne(t, cfg, Node{Ready: true}, p, noon)
		if (got.Move != nil) != (c.want == "") || c.want != "" && got.Status.Reason != c.want {
			t.Errorf("%s: %+v, want it left where it is with reason %s, or lowered for none", name, got, c.want)
		}
		if waits := c.declared > c.limit; waits && got.Status.Phase != PhaseNotApplied {
			t.Errorf("%s: phase %s between two steps, want NotApplied", name, got.Status.Phase)
		}
	}
}

func TestBackOffDoubles(t *testing.T) {
	cfg := DefaultConfig()
	var refused, unanswered Task
	var m Memory
	double := func(d time.Duration) time.Duration { return 2 * d }
	for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		refused.Refused(cfg, noon, Cause{Reason: reasons.QuotaExceeded}, double)
		if got := refused.Status.RetryAt.Sub(noon); got != want*time.Minute {
			t.Errorf("after refusal %d: wait %v, want %v minutes", i+1, got, want)
		}
	}
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		unanswered.Unanswered(cfg, noon, Answer{Reason: reasons.ServerUnavailable}, double, &m)
		if got := m.RetryAt.Sub(noon); got != want*time.Second {
			t.Errorf("after %d requests without an answer: wait %v, want %v seconds", i+1, got, want)
		}
	}
	unanswered.Unanswered(cfg, noon, Answer{Reason: reasons.ServerUnavailable, RetryAfter: time.Hour}, double, &m)
	if got := m.RetryAt.Sub(noon); got != time.Hour {
		t.Errorf("wait %v, want the hour that the server asks for", got)
	}
	unanswered.Resized(cfg, noon, app(100), app(200), &m)
	if m.Troubles != 0 || !m.RetryAt.IsZero() || unanswered.Status.Reason != reasons.ResizeInFlight {
		t.Errorf("after a resize: %+v, %+v", m, unanswered.Status)
	}
}

// TestThrottled: a pod is throttled that demands at least its limits, or whose agent says so.
func TestThrottled(t *testing.T) {
	p := running("web", 500, 500, constraint{})
	for demand, want := range map[cpu.Milli]bool{0: false, 400: false, 499: false, 500: true, 900: true} {
		p.Decision = &Decision{Demand: demand}
		if p.Throttled() != want {
			t.Errorf("demand %v: throttled %v, want %v", demand, !want, want)
		}
	}
	if p.Decision = (&Decision{Demand: 100, Throttled: true}); !p.Throttled() {
		t.Error("a pod with throttled bursts is not throttled")
	}
	if p.Decision = nil; p.Throttled() {
		t.Error("throttled without a decision")
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Actuator: DefaultConfig().Actuator, StartGrace: -1, FreezeAfter: -1}.Validate()
	if got := len(err.(interface{ Unwrap() []error }).Unwrap()); got != 8+1 {
		t.Errorf("%d complaints, want 9: %v", got, err)
	}
	for freeze, ok := range map[time.Duration]bool{44 * time.Second: false, 45 * time.Second: true} {
		c := DefaultConfig()
		c.FreezeAfter = freeze
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("FreezeAfter %v: %v", freeze, err)
		}
	}
}

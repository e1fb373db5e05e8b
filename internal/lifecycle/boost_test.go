package lifecycle

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// starting is a pod with a start-up boost of 3 whose container started so long ago; 0: not yet.
func starting(age time.Duration) Pod {
	p := running("web", 500, 500, constraint{})
	p.Recorded, p.Status.Declared, p.Progress, p.StartupBoost = true, app(500), actuator.Done, 3
	p.Ready, p.UnreadySince = false, noon.Add(-age-time.Second)
	if p.Containers[0].StartedAt = noon.Add(-age); age == 0 {
		p.Containers[0].StartedAt, p.Containers[0].InForce = time.Time{}, 0
	}
	return p
}

// TestBoostEndsOnce: see the package's promises.
func TestBoostEndsOnce(t *testing.T) {
	cfg, ready := DefaultConfig(), func(ago time.Duration) func(*Pod) {
		return func(p *Pod) { p.Ready, p.ReadySince, p.UnreadySince = true, noon.Add(-ago), time.Time{} }
	}
	for name, c := range map[string]struct {
		age     time.Duration
		change  func(*Pod)
		boosted bool
	}{
		"its containers have not started":   {0, func(*Pod) {}, true},
		"it is not Ready yet":               {time.Minute, func(*Pod) {}, true},
		"it has just become Ready":          {time.Minute, ready(cfg.BoostGrace - time.Second), true},
		"it has been Ready for its grace":   {time.Minute, ready(cfg.BoostGrace), false},
		"it does not become Ready":          {cfg.BoostMax, func(*Pod) {}, false},
		"it becomes Ready at the very last": {cfg.BoostMax - time.Second, ready(0), true},
		"it was Ready before":               {time.Minute, func(p *Pod) { p.UnreadySince = noon.Add(-time.Second) }, false},
		"a container restarted":             {time.Minute, func(p *Pod) { p.Containers[0].Restarts = 1 }, false},
		"it lost its readiness, and is Ready again": {time.Minute, func(p *Pod) {
			ready(0)(p)
			p.Memory.FirstReady = noon.Add(-cfg.BoostGrace)
		}, false},
		"its node was not Ready for a while": {time.Minute, func(p *Pod) {
			p.Memory.FirstReady = noon.Add(-30 * time.Second)
		}, false},
		"its container has ended, and is about to be restarted": {0, func(p *Pod) {
			p.Containers[0].EndedAt = []time.Time{noon.Add(-time.Second)}
		}, false},
		"there is no factor": {time.Minute, func(p *Pod) { p.StartupBoost = 0 }, false},
		"it is not managed":  {time.Minute, func(p *Pod) { p.Excluded.Reason = reasons.OptedOut }, false},
		"another client has resized it": {time.Minute, func(p *Pod) {
			p.Containers[0].Limit, p.Containers[0].InForce, p.Containers[0].PossiblyOwn = 700, 700, false
		}, false},
	} {
		p := starting(c.age)
		c.change(&p)
		boosted, again := false, time.Time{}
		for _, task := range Decide(cfg, up, []Pod{p}, noon) {
			boosted = task.Move != nil && task.Purpose == Startup && task.Why == reasons.StartupBoost && task.Move.Changes[0].To == 1500
			again = task.RecheckAt
		}
		if boosted != c.boosted {
			t.Errorf("%s: boosted %v", name, boosted)
		}
		if boosted && c.age > 0 && (again.IsZero() || again.After(noon.Add(cfg.BoostMax))) {
			t.Errorf("%s: looked at again at %v, not when the boost ends", name, again)
		}
	}
}

// TestBoostsStayWithinCeilings: a boost goes to the ceiling of the container, and is none where that is the declared limit.
func TestBoostsStayWithinCeilings(t *testing.T) {
	for ceiling, want := range map[cpu.Milli]cpu.Milli{4000: 1500, 1000: 1000, 500: 0} {
		p := starting(time.Minute)
		p.Containers[0].Ceiling = ceiling
		to, why := cpu.Milli(0), reasons.Reason("")
		for _, task := range Decide(DefaultConfig(), up, []Pod{p}, noon) {
			to, why = task.to(), task.Why
		}
		if to != want || (why == reasons.StartupBoost) != (want > 0) {
			t.Errorf("with a ceiling of %v it is raised to %v (%s), want %v", ceiling, to, why, want)
		}
	}
}

// TestUnreadyPodsLoseTheirBoost: see the package's promises.
func TestUnreadyPodsLoseTheirBoost(t *testing.T) {
	const pulled = "its image is still pulled"
	for name, c := range map[string]struct {
		age    time.Duration // of its container
		change func(*Pod)
		limit  cpu.Milli
	}{
		"not Ready for ten minutes":       {10 * time.Minute, func(*Pod) {}, 500},
		"not Ready for less":              {10*time.Minute - time.Second, func(*Pod) {}, 1500},
		"decided above its declared":      {10 * time.Minute, func(p *Pod) { p.Decision.Limits = app(800) }, 800},
		"no decision":                     {10 * time.Minute, func(p *Pod) { p.Decision = nil }, 500},
		"its decision does not hold":      {10 * time.Minute, func(p *Pod) { p.Decision.Limits, p.Decision.Age = app(1500), time.Hour }, 500},
		"it has restarted":                {10 * time.Minute, func(p *Pod) { p.Containers[0].Restarts = 1 }, 500},
		"it has just restarted":           {time.Second, func(p *Pod) { p.Containers[0].Restarts, p.UnreadySince = 1, noon.Add(-time.Hour) }, 1500},
		"it waits to be restarted":        {0, func(p *Pod) { p.Containers[0].Restarts, p.UnreadySince = 1, noon.Add(-time.Hour) }, 500},
		pulled:                            {0, func(p *Pod) { p.UnreadySince = noon.Add(-time.Hour) }, 1500},
		"it was Ready before":             {time.Hour, func(p *Pod) { p.UnreadySince = noon.Add(-30 * time.Minute) }, 1500},
		"it was seen to be Ready":         {time.Hour, func(p *Pod) { p.Memory.FirstReady = noon.Add(-30 * time.Minute) }, 1500},
		"it has no boost":                 {time.Hour, func(p *Pod) { p.StartupBoost = 0 }, 1500},
		"the node controller says so":     {time.Hour, func(p *Pod) { p.UnreadySince = time.Time{} }, 1500},
		"it must not be decreased":        {time.Hour, func(p *Pod) { p.NoDecrease = reasons.ScaledByHPA }, 500},
		"its declared limit was its need": {time.Hour, func(p *Pod) { p.Declared, p.Status.Declared = app(1500), app(1500) }, 1500},
	} {
		p := starting(c.age)
		p.Containers[0].Limit, p.Containers[0].PossiblyOwn, p.Status.Applied = 1500, true, app(1500)
		if p.Containers[0].InForce > 0 {
			p.Containers[0].InForce = 1500
		}
		p.Decision = &Decision{Limits: app(300), Demand: 4000, Budget: 100}
		c.change(&p)
		limit, reason := p.Containers[0].Limit, reasons.Reason("")
		for _, task := range Decide(scenarioConfig(), up, []Pod{p}, noon) {
			limit, reason = cmp.Or(task.to(), limit), task.Status.Reason
		}
		if limit != c.limit || name == pulled && reason != reasons.StartupBoost {
			t.Errorf("%s: the limit is %v (%s), want %v", name, limit, reason, c.limit)
		}
	}
}

// TestLoansEndWithScarcity: see the package's promises.
func TestLoansEndWithScarcity(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pod)
		limit  cpu.Milli
	}{
		"it starts, boosted":     {func(*Pod) {}, 500},
		"it starts":              {func(p *Pod) { p.StartupBoost = 0 }, 500},
		"it has just restarted":  {func(p *Pod) { p.StartupBoost, p.Containers[0].Restarts, p.Ready = 0, 1, true }, 500},
		"it is no more Ready":    {func(p *Pod) { p.Memory.FirstReady = noon.Add(-30 * time.Minute) }, 500},
		"decided above declared": {func(p *Pod) { p.Decision.Limits = app(800) }, 800},
		"the price bounds none":  {func(p *Pod) { p.Decision.Price = 0 }, 1500},
		"its raise was revoked": {
			func(p *Pod) {
				p.Decision = &Decision{Limits: app(500), Demand: 500, Budget: 100, RevokedFor: 10 * time.Second}
			}, 500,
		},
		"its raise may be made again": {
			func(p *Pod) { p.Decision = &Decision{Limits: app(500), Demand: 500, Budget: 100} }, 1500,
		},
		"below its declared": {func(p *Pod) { p.Containers[0].Limit, p.Containers[0].InForce, p.Status.Applied = 400, 400, app(400) }, 400},
	} {
		p := starting(5 * time.Second)
		p.Containers[0].Limit, p.Containers[0].InForce, p.Containers[0].PossiblyOwn, p.Status.Applied = 1500, 1500, true, app(1500)
		p.Decision = &Decision{Limits: app(300), Demand: 4000, Budget: 100, Price: 1}
		c.change(&p)
		limit := p.Containers[0].Limit
		for _, task := range Decide(scenarioConfig(), up, []Pod{p}, noon) {
			limit = cmp.Or(task.to(), limit)
		}
		if limit != c.limit {
			t.Errorf("%s: the limit is %v, want %v", name, limit, c.limit)
		}
	}
}

// TestBoostIsSaid: mode recommend says what a pod would start with.
func TestBoostIsSaid(t *testing.T) {
	p := starting(time.Minute)
	p.Mode = ModeRecommend
	task := Decide(DefaultConfig(), up, []Pod{p}, noon)[0]
	if task.Move != nil || task.Status.Reason != reasons.Recommending || !strings.Contains(task.Status.Message, "at least app=1500m") {
		t.Errorf("move %v, status %+v", task.Move, task.Status)
	}
}

// TestABoostWaitsForItsRecord: no pod is raised at its start before its declared limits are recorded.
func TestABoostWaitsForItsRecord(t *testing.T) {
	p := starting(0)
	p.Recorded, p.InLedger, p.Status = false, false, Status{}
	task := Decide(DefaultConfig(), up, []Pod{p}, noon)[0]
	if !task.Create || !task.Record.Equal(app(500)) || task.Move == nil {
		t.Fatalf("task %+v: want the record, and a resize after it", task)
	}
	task.AwaitRecord(Status{Declared: app(500)}, false)
	if task.Move != nil {
		t.Errorf("resized to %v without a record", task.Move)
	}
}

// TestABoostIsFollowed: a boost counts as carried out while no kubelet has looked at the pod. If that then begins with
// the declared limit, the resize is in flight until it is carried out, for a time from the start of the container and
// not from the resize: images may take long.
func TestABoostIsFollowed(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		age    time.Duration // of the container
		phase  Phase
		reason reasons.Reason
	}{
		"it has just started": {time.Second, PhasePending, reasons.ResizeInFlight},
		"it started long ago": {cfg.ActuationTimeout + time.Second, PhaseFailed, reasons.ResizeTimedOut},
	} {
		p := starting(c.age)
		p.Containers[0].Limit, p.Containers[0].PossiblyOwn, p.Progress = 1500, true, actuator.InProgress
		p.Status.Phase, p.Status.Reason, p.Status.Applied = PhaseApplied, reasons.StartupBoost, app(1500)
		p.Status.LastApplied = noon.Add(-2 * cfg.ActuationTimeout)
		p.Status.LastIncrease = p.Status.LastApplied
		task := Decide(cfg, up, []Pod{p}, noon)[0]
		if task.Status.Phase != c.phase || task.Status.Reason != c.reason {
			t.Errorf("%s: %s/%s, want %s/%s", name, task.Status.Phase, task.Status.Reason, c.phase, c.reason)
		}
	}
}

package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// TestRepairsQuotas: a limit of MBCAS changes by a quantum where the quota of the pod's cgroup is
// wrong; a container that cannot start after a raise is lowered. What is in vain is given up.
func TestRepairsQuotas(t *testing.T) {
	const app, side = 0, 1
	change := func(container string, from, to cpu.Milli) []actuator.Change {
		return []actuator.Change{{Container: container, From: from, To: to}}
	}
	wrong := func(have, want cpu.Milli) func(*Pod) {
		return func(p *Pod) { p.Quota = Quota{CPU: have, Wanted: want} }
	}
	stops := func(i int) func(*Pod) {
		return func(p *Pod) { p.Containers[i].NotRunning, p.Containers[i].StartedAt = true, time.Time{} }
	}
	others := func(i int) func(*Pod) { return func(p *Pod) { p.Containers[i].Own = false } }
	fails := func(ago time.Duration) func(*Pod) {
		return func(p *Pod) {
			stops(app)(p)
			p.Containers[app].FailedStart, p.Containers[app].FailedAt = true, noon
			p.Status.LastApplied, p.Status.LastIncrease = noon.Add(-ago), noon.Add(-ago)
			p.Memory.Repairs.Before = Limits{{"app", 700}, {"side", 500}}
		}
	}
	for name, c := range map[string]struct {
		with    []func(*Pod)
		changes []actuator.Change
		purpose Purpose
	}{
		"the quota is right":             {nil, nil, ""},
		"too low":                        {[]func(*Pod){wrong(700, 1500)}, change("app", 1000, 1010), Repair},
		"too high":                       {[]func(*Pod){wrong(2000, 1500)}, change("app", 1000, 1010), Repair},
		"the pod has none":               {[]func(*Pod){wrong(700, 0)}, nil, ""},
		"the first does not run":         {[]func(*Pod){wrong(700, 1500), stops(app)}, change("side", 500, 510), Repair},
		"the first is another writer's":  {[]func(*Pod){wrong(700, 1500), others(app)}, change("side", 500, 510), Repair},
		"no limit is of MBCAS":           {[]func(*Pod){wrong(700, 1500), others(app), others(side)}, nil, ""},
		"at the ceiling":                 {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Containers[app].Ceiling = 1000 }}, change("app", 1000, 990), Repair},
		"at the ceiling of the pod":      {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Ceiling = 1500 }}, change("app", 1000, 990), Repair},
		"no room in a quota":             {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.QuotaShort = true }}, change("app", 1000, 990), Repair},
		"in mode recommend":              {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Mode = ModeRecommend }}, change("app", 1000, 1010), Repair},
		"none runs, and it is too low":   {[]func(*Pod){wrong(700, 1500), stops(app), stops(side)}, change("app", 1000, 200), StepBack},
		"none runs, and it is too high":  {[]func(*Pod){wrong(2000, 1500), stops(app), stops(side)}, nil, ""},
		"soon after the last":            {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Memory.Repairs.NextAt = noon.Add(time.Second) }}, nil, ""},
		"after a refusal":                {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Memory.Repairs.RetryAt = noon.Add(time.Second) }}, nil, ""},
		"the server does not answer":     {[]func(*Pod){wrong(700, 1500), func(p *Pod) { p.Memory.RetryAt = noon.Add(time.Second) }}, nil, ""},
		"a start fails beside the other": {[]func(*Pod){fails(time.Second)}, change("side", 500, 510), Repair},
		"and fails again":                {[]func(*Pod){fails(time.Second), func(p *Pod) { p.Memory.Repairs.MadeAt = noon }}, change("app", 1000, 700), StepBack},
		"a start fails, nothing runs":    {[]func(*Pod){fails(time.Second), stops(side)}, change("app", 1000, 700), StepBack},
		"it is not known from where":     {[]func(*Pod){fails(time.Second), stops(side), func(p *Pod) { p.Memory.Repairs.Before = nil }}, change("app", 1000, 800), StepBack},
		"long after the raise":           {[]func(*Pod){fails(time.Hour), stops(side)}, nil, ""},
		"of another writer's limit":      {[]func(*Pod){fails(time.Second), others(app)}, nil, ""},
		"the kubelet has not tried again since": {[]func(*Pod){fails(time.Second), stops(side), func(p *Pod) {
			p.Containers[app].FailedAt = noon.Add(-time.Minute)
		}}, nil, ""},
		"nor in a long back-off": {[]func(*Pod){fails(3 * time.Minute), stops(side), func(p *Pod) {
			p.Containers[app].FailedAt = noon.Add(-4 * time.Minute)
		}}, nil, ""},
		"CRI-O does not date the failure": {[]func(*Pod){fails(time.Second), stops(side), func(p *Pod) {
			p.Containers[app].FailedAt = time.Time{}
		}}, nil, ""},
		"and the kubelet has tried again": {[]func(*Pod){fails(startRetried), stops(side), func(p *Pod) {
			p.Containers[app].FailedAt = time.Time{}
		}}, change("app", 1000, 700), StepBack},
	} {
		p := applied(1000, 800)
		p.Containers[app].Own, p.Containers[app].Floor = true, 110
		second := p.Containers[app]
		second.Name, second.Limit, second.InForce = "side", 500, 500
		p.Containers = append(p.Containers, second)
		for _, limits := range []*Limits{&p.Declared, &p.Status.Declared, &p.Status.Applied} {
			*limits = append(slices.Clone(*limits), Limit{"side", 500})
		}
		p.Decision = &Decision{Limits: p.Current()}
		for _, f := range c.with {
			f(&p)
		}
		tasks := Decide(DefaultConfig(), up, []Pod{p}, noon)
		var got []actuator.Change
		var purpose Purpose
		for _, task := range tasks {
			if task.Move != nil {
				got, purpose = task.Move.Changes, task.Purpose
			}
		}
		if !slices.Equal(got, c.changes) || purpose != c.purpose {
			t.Errorf("%s: %s %v, want %s %v", name, purpose, got, c.purpose, c.changes)
		}
	}
	// A repair that is refused keeps nothing else from the pod, and is tried later and later; so is
	// the return from one.
	for _, returns := range []bool{false, true} {
		p := applied(1000, 500)
		p.Containers[app].Own = true
		p.Decision, p.Quota = &Decision{Limits: Limits{{"app", 2000}}}, Quota{CPU: 500, Wanted: 1000}
		if r := &p.Memory.Repairs; returns {
			r.From, r.To, r.MadeAt, p.Quota = Limits{{"app", 990}}, Limits{{"app", 1000}}, noon, Quota{}
		}
		at, spread := noon, func(d time.Duration) time.Duration { return d + time.Second }
		for n := range 4 {
			task := decideOne(t, DefaultConfig(), up, p, at)
			if task.Purpose != Repair {
				t.Fatalf("%s %v, want a repair", task.Purpose, task.Move)
			}
			task.RepairRefused(DefaultConfig(), at, Cause{reasons.PolicyRefused, ""}, spread, &p.Memory)
			if task := decideOne(t, DefaultConfig(), up, p, at); task.Purpose != Allocate || task.to() != 2000 {
				t.Errorf("after a refused repair: %s %v, want the decision", task.Purpose, task.Move)
			}
			wait := p.Memory.Repairs.RetryAt.Sub(at)
			if want := Doubled(DefaultConfig().Backoff, DefaultConfig().BackoffMax, n) + time.Second; wait != want {
				t.Errorf("the next repair after %v, want %v", wait, want)
			}
			at = p.Memory.Repairs.RetryAt
		}
	}
	// Only a report tells that a repair was not in vain.
	p := applied(1000, 500)
	for _, reported := range []time.Time{{}, p.Status.LastApplied.Add(quotaFound - 1), p.Status.LastApplied.Add(quotaFound)} {
		p.Memory.Repairs.Made, p.QuotasReported = 3, reported
		if p.Memory.Witness(&p); (p.Memory.Repairs.Made == 0) != (reported.Sub(p.Status.LastApplied) == quotaFound) {
			t.Errorf("%d repairs in a row; the agent reported at %v", p.Memory.Repairs.Made, reported)
		}
	}
}

// TestLeavesWithTheRightQuota: the record of a pod that leaves is kept while its quota is wrong and can be repaired, or is
// not known, and no longer.
func TestLeavesWithTheRightQuota(t *testing.T) {
	wrong := Quota{CPU: 700, Wanted: 500}
	for name, c := range map[string]struct {
		change func(p *Pod, app *Container)
		keeps  bool
	}{
		"the quota is right": {func(*Pod, *Container) {}, false},
		"it is wrong":        {func(p *Pod, _ *Container) { p.Quota = wrong }, true},
		"and the server does not answer": {func(p *Pod, _ *Container) {
			p.Quota, p.Memory.RetryAt = wrong, noon.Add(time.Second)
		}, true},
		"and three repairs were in vain": {func(p *Pod, _ *Container) {
			p.Quota, p.Memory.Repairs.Made, p.Memory.Repairs.NextAt = wrong, mostRepairs, noon.Add(time.Minute)
		}, false},
		"and the limit is another writer's": {func(p *Pod, app *Container) { p.Quota, app.Own = wrong, false }, false},
		"and the container has ended for good": {func(p *Pod, app *Container) {
			p.Quota, app.Completed, app.NotRunning = wrong, true, true
		}, false},
		"and the limit cannot change": {func(p *Pod, app *Container) {
			p.Quota, app.Ceiling, app.Settable = wrong, app.Limit, app.Limit
		}, false},
		"it started after the last resize": {func(_ *Pod, app *Container) { app.StartedAt = noon }, true},
		"or in the second of it":           {func(p *Pod, app *Container) { app.StartedAt = p.Status.LastApplied.Truncate(time.Second) }, true},
		"and the pod was raised": {func(p *Pod, app *Container) {
			app.StartedAt, p.Status.LastIncrease = p.Status.LastApplied.Truncate(time.Second), p.Status.LastApplied
		}, false},
		"and started anew": {func(p *Pod, app *Container) {
			app.StartedAt, app.Restarts, p.Status.LastIncrease = p.Status.LastApplied.Truncate(time.Second), 1, p.Status.LastApplied
		}, true},
		"and the agent has reported since": {func(p *Pod, app *Container) {
			app.StartedAt, p.Status.LastApplied, p.QuotasReported = noon.Add(-quotaFound), noon.Add(-quotaFound), noon
		}, false},
		"and has not yet": {func(p *Pod, app *Container) {
			app.StartedAt, p.Status.LastApplied, p.QuotasReported = noon.Add(-time.Minute), noon.Add(-time.Minute), noon.Add(-time.Minute)
		}, true},
		"and does not": {func(p *Pod, app *Container) {
			app.StartedAt, p.Status.LastApplied = noon.Add(-time.Minute), noon.Add(-time.Minute)
		}, true},
		"for long": {func(p *Pod, app *Container) {
			app.StartedAt, p.Status.LastApplied = noon.Add(-recordKept), noon.Add(-recordKept)
		}, false},
		"and each repair is refused": {func(p *Pod, app *Container) {
			p.Quota, p.Memory.Repairs.Refusals, p.Memory.Repairs.RetryAt = wrong, mostRepairs, noon.Add(time.Minute)
		}, false},
	} {
		p := applied(500, 500)
		p.Containers[0].Own, p.Containers[0].Settable = true, 100
		p.Excluded.Reason, p.Status.LastApplied = reasons.OptedOut, noon.Add(-time.Second)
		c.change(&p, &p.Containers[0])
		if task := decideOne(t, DefaultConfig(), up, p, noon); task.Delete == c.keeps {
			t.Errorf("%s: deleted %t, status %s %s", name, task.Delete, task.Status.Phase, task.Status.Reason)
		}
	}
}

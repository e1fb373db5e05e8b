package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// lowered is a pod that declared 2000m and was lowered at the given times after noon, by 100m each.
func lowered(cfg Config, at ...time.Duration) Pod {
	t := Task{Purpose: Allocate}
	limit := cpu.Milli(2000)
	for _, after := range at {
		t.Resized(cfg, noon.Add(after), app(limit), app(limit-100), &Memory{})
		limit -= 100
	}
	p := running("web", limit, 2000, constraint{})
	p.Recorded, p.Status = true, t.Status
	p.Status.Declared = p.Declared
	return p
}

// TestRollsBackHarm tells harm that a decrease did from trouble with another cause.
func TestRollsBackHarm(t *testing.T) {
	s := time.Second
	const long = -time.Hour // that the node has been Ready
	unready := func(after time.Duration) func(*Pod) {
		return func(p *Pod) { p.Ready, p.UnreadySince = false, noon.Add(after) }
	}
	ended := func(after time.Duration) func(*Pod) {
		return func(p *Pod) {
			p.Containers[0].Restarts, p.Containers[0].EndedAt = 1, []time.Time{noon.Add(after)}
		}
	}
	nodeLost := func(p *Pod) { p.Ready = false } // the node controller gives no time of the kubelet
	once, run := []time.Duration{0}, []time.Duration{0, 5 * s, 10 * s}
	for name, c := range map[string]struct {
		lowered []time.Duration
		up      time.Duration
		trouble func(*Pod)
		harmed  bool
		why     string
	}{
		"unready":                        {once, long, unready(45 * s), true, "it was within two minutes"},
		"unready at the two minutes":     {once, long, unready(120 * s), true, "it was within two minutes"},
		"unready after them":             {once, long, unready(121 * s), false, "it had two minutes to fail"},
		"unready before":                 {once, long, unready(-s), false, "it was so before"},
		"ended":                          {once, long, ended(45 * s), true, "it was within two minutes"},
		"ended in a run":                 {run, long, ended(9 * s), true, "the kubelet reported late, after the next decrease"},
		"unready in a run":               {run, long, unready(9 * s), true, "the kubelet reported late, after the next decrease"},
		"ended before a run":             {run, long, ended(-s), false, "it was so before"},
		"unready between far decreases":  {[]time.Duration{-300 * s, 0}, long, unready(-s), false, "decreases so far from each other are no run"},
		"the node was lost":              {once, long, nodeLost, false, "the node controller set it to not Ready"},
		"the kubelet is back":            {once, 60 * s, unready(45 * s), false, "its kubelet keeps the time of the node controller"},
		"the kubelet has yet to probe":   {once, 60 * s, unready(62 * s), false, "up to Kubernetes 1.34 a kubelet takes pods for not Ready when it starts"},
		"the node was started anew":      {once, 60 * s, ended(30 * s), false, "all containers of the node ended"},
		"unready on a node that is back": {once, 60 * s, unready(90 * s), true, "its node has been back for half a minute"},
		"ended on a node that is back":   {once, 60 * s, ended(63 * s), true, "its node was back"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			p := lowered(cfg, c.lowered...)
			c.trouble(&p)
			last := c.lowered[len(c.lowered)-1]
			got := decideOne(t, cfg, Node{Ready: true, ReadySince: noon.Add(c.up)}, p, noon.Add(last+125*s))
			if harmed := !got.Status.LastHarmfulDecrease.IsZero(); harmed != c.harmed || harmed != (got.Move != nil) {
				t.Fatalf("harmed: %v, move %v; want %v, because %s", harmed, got.Move, c.harmed, c.why)
			}
			want := Harm("")
			switch {
			case c.harmed && p.Containers[0].Restarts > 0:
				want = HarmRestart
			case c.harmed:
				want = HarmUnready
			}
			if got.Harm != want {
				t.Errorf("harm shown by %q, want %q", got.Harm, want)
			}
			if c.harmed && (got.Purpose != Rollback || got.Move.Changes[0].To != 2000 || got.NoDecrease != reasons.UnhealthyAfterDecrease) {
				t.Errorf("purpose %s, move %v, no decrease for %q: want 2000m restored and kept", got.Purpose, got.Move, got.NoDecrease)
			}
		})
	}
}

// TestHarmIsFoundOnce: a container that ended right after a decrease says so for good, and counts
// for one day.
func TestHarmIsFoundOnce(t *testing.T) {
	cfg := DefaultConfig()
	p := lowered(cfg, 0)
	p.Containers[0].EndedAt = []time.Time{noon.Add(time.Second)}
	harm := noon.Add(2 * time.Second)
	p.Status.LastHarmfulDecrease = harm
	for _, task := range Decide(cfg, up, []Pod{p}, noon.Add(cfg.RollbackHoldOff+time.Minute)) {
		if task.Move != nil || task.Status.LastHarmfulDecrease != harm {
			t.Errorf("after the day: %s %v, harmed at %v", task.Purpose, task.Move, task.Status.LastHarmfulDecrease)
		}
	}
}

// TestAShortRollbackGoesOn: a rollback that a quota cut short is not taken for done.
func TestAShortRollbackGoesOn(t *testing.T) {
	for got, done := range map[cpu.Milli]bool{700: true, 690: false} {
		p := running("web", got, 1000, constraint{})
		task := Task{Status: Status{RollbackLimits: app(700)}}
		if task.RolledBack(&p) != done {
			t.Errorf("at %v: rolled back: %v", got, !done)
		}
	}
}

// TestRefusingDecreases: a pod that an HPA or a PodDisruptionBudget keeps from being lowered, or a container of which
// ends after each decrease, comes down to its declared limit all the same but for the dead band, and not below it.
func TestRefusingDecreases(t *testing.T) {
	const declared, near = 500, 550
	for name, refuse := range map[string]func(p *Pod, lowered bool, now time.Time){
		"HPA":                 func(p *Pod, _ bool, _ time.Time) { p.NoDecrease, p.HPA = reasons.ScaledByHPA, true },
		"PodDisruptionBudget": func(p *Pod, _ bool, _ time.Time) { p.NoDecrease = reasons.NoDisruptionAllowed },
		"ends": func(p *Pod, lowered bool, now time.Time) {
			if lowered {
				p.Containers[0].EndedAt = append(p.Containers[0].EndedAt, now)
				p.Containers[0].Restarts++
			}
		},
	} {
		cfg := DefaultConfig()
		p := applied(4000, declared)
		var above time.Duration
		lowest, lowered := p.Containers[0].Limit, false
		const look = 5 * time.Second
		for now := noon; now.Before(noon.Add(20 * time.Hour)); now = now.Add(look) {
			refuse(&p, lowered, now)
			p.Decision = &Decision{Limits: app(200), Price: 1, Demand: 4000}
			c := &p.Containers[0]
			c.NoDecreaseFloor = min(c.Limit, declared)
			task := decideOne(t, cfg, up, p, now)
			lowered = false
			if m := task.Move; m != nil {
				from := p.Current()
				lowered, c.Limit = m.Changes[0].To < c.Limit, m.Changes[0].To
				c.InForce = c.Limit
				task.Resized(cfg, now, from, p.Current(), &p.Memory)
			}
			p.Status = task.Status
			if c.Limit > near {
				above += look
			}
			lowest = min(lowest, c.Limit)
		}
		if lowest < declared || lowest > near || above > time.Hour {
			t.Errorf("%s: the lowest limit is %v, and was above %v for %v; want an hour at most", name, lowest, cpu.Milli(near), above)
		}
	}
}

// TestRaisesOnlyWhatRuns: neither a rollback nor a revert raises a container that does not run.
func TestRaisesOnlyWhatRuns(t *testing.T) {
	harmed := lowered(DefaultConfig(), 0)
	harmed.Containers[0].EndedAt = []time.Time{noon.Add(45 * time.Second)}
	refused := applied(500, 1000)
	refused.Status.Phase, refused.Status.Reason, refused.Status.LastApplied = PhasePending, reasons.ResizeInFlight, noon
	refused.Progress, refused.Containers[0].InForce = actuator.Infeasible, 1000
	for purpose, p := range map[Purpose]Pod{Rollback: harmed, Revert: refused} {
		for _, down := range []bool{false, true} {
			p.Containers = slices.Clone(p.Containers)
			p.Containers[0].NotRunning = down
			got := decideOne(t, DefaultConfig(), up, p, noon.Add(time.Minute))
			if raises := got.Move != nil && got.Move.Raises(); raises == down || raises && got.Purpose != purpose {
				t.Errorf("%s, down %t: %s %v", purpose, down, got.Purpose, got.Move)
			}
		}
	}
}

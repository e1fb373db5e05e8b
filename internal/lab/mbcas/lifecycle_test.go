package mbcas

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// catalogue runs a scenario of the catalogue.
func catalogue(t *testing.T, name string) (sim.Setup, sim.Result) {
	t.Helper()
	s, err := scenario.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	setup := s.Setup(0, 1)
	return setup, sim.Run(setup, New(DefaultConfig()))
}

// TestRollsBackInTheSimulator: the service is decreased, becomes not Ready, gets its declared limit
// back, although it had more before, and keeps at least that from then on.
func TestRollsBackInTheSimulator(t *testing.T) {
	s, shipped := catalogue(t, "rollback")
	rollsBack(t, shipped.Pod("service"), 2) // first it had its declared limit, which did not suffice
	alone := sim.Run(s, New(priceAlone()))
	rollsBack(t, alone.Pod("service"), 1)
}

// rollsBack says whether the last time that a service became not Ready was rolled back.
func rollsBack(t *testing.T, service *sim.PodResult, times int) {
	t.Helper()
	if len(service.Unready) != times {
		t.Fatalf("it became not Ready at %v, want %d times", service.Unready, times)
	}
	found := service.Unready[times-1]
	before, after := service.LimitAt(found), service.LimitAt(found+time.Second)
	if before >= service.Spec.Limit/2 || after != service.Spec.Limit {
		t.Errorf("when it became not Ready its limit went from %v to %v, want from less than half of %v to that",
			before, after, service.Spec.Limit)
	}
	for _, c := range service.Changes {
		if c.At > found+time.Second && c.To < service.Spec.Limit {
			t.Errorf("after the rollback it is decreased to %v at %v, below the declared %v", c.To, c.At, service.Spec.Limit)
		}
	}
	if service.Backlog > time.Second {
		t.Errorf("its backlog is %v at the end, so the rollback did not help", service.Backlog)
	}
}

// TestConstraintsHold: a pod under an HPA that allows decreases is not decreased below the floor,
// nor twice within five minutes; one under an HPA that does not stays at its declared limit. The price is alone, as
// neither pod saturates.
func TestConstraintsHold(t *testing.T) {
	s, _ := catalogue(t, "hpa-floor")
	cfg := priceAlone()
	cfg.Round.CapBand = 0 // all of the way
	r := sim.Run(s, New(cfg))
	decreased, kept := r.Pod("decreased"), r.Pod("kept")
	if n := len(decreased.Changes); n != 2 || decreased.Changes[1].To != decreased.Spec.Constraints.Floor {
		t.Fatalf("changes %v, want two decreases that end at the floor, %v", decreased.Changes, decreased.Spec.Constraints.Floor)
	}
	if d := decreased.Changes[1].At - decreased.Changes[0].At; d < 5*time.Minute {
		t.Errorf("two decreases within %v, want 5 min at least", d)
	}
	if len(kept.Changes) != 0 {
		t.Errorf("changes %v of a pod that must not be decreased, at its declared limit", kept.Changes)
	}
}

// TestQuotaHolds: limits exceed the declared ones, and together never the quota.
func TestQuotaHolds(t *testing.T) {
	setup, r := catalogue(t, "quota")
	quota := setup.Quotas[0]
	highest := cpu.Milli(0)
	for _, change := range r.Pod("web-1").Changes {
		highest = max(highest, change.To)
	}
	if highest <= 2*500 {
		t.Errorf("the highest limit is %v, so the quota was not used", highest)
	}
	for i := range r.Pods {
		for _, c := range r.Pods[i].Changes {
			sum := cpu.Milli(0)
			for j := range r.Pods {
				if p := &r.Pods[j]; p.Spec.Namespace == quota.Namespace {
					sum += p.LimitAt(c.At)
				}
			}
			if sum > quota.Limits {
				t.Fatalf("at %v the limits sum to %v, more than the quota's %v", c.At, sum, quota.Limits)
			}
		}
	}
}

// TestOutageFreezesAndRestores: decisions older than the Lease allows are not applied, limits return
// to the declared ones after five minutes, raised ones in steps, and the market resumes with the agent.
func TestOutageFreezesAndRestores(t *testing.T) {
	setup, r := catalogue(t, "agent-outage")
	start, end := setup.Outages[0].At, setup.Outages[0].At+setup.Outages[0].Duration
	for _, name := range []string{"service", "batch"} {
		p := r.Pod(name)
		restored := 0
		for _, c := range p.Changes {
			switch {
			case c.At < start+5*time.Second || c.At > end:
			case c.At < start+4*time.Minute:
				t.Errorf("%s: %v to %v at %v, while the agent does not run", name, c.From, c.To, c.At)
			case c.To == p.Spec.Limit:
				restored++
			case c.To > c.From || c.To < p.Spec.Limit:
				t.Errorf("%s: at %v the limit becomes %v from %v, no step to the declared %v", name, c.At, c.To, c.From, p.Spec.Limit)
			}
		}
		if restored != 1 || p.LimitAt(end) != p.Spec.Limit {
			t.Errorf("%s: %d restores and a limit of %v after the outage, want the declared %v", name, restored, p.LimitAt(end), p.Spec.Limit)
		}
	}
	if batch := r.Pod("batch"); batch.LimitAt(setup.Length) >= batch.Spec.Limit {
		t.Errorf("after the outage the batch pod has %v, so it was not capped again", batch.LimitAt(setup.Length))
	}
}

// TestExternalChangesHoldOff: an external limit becomes the declared one, and the pod is left alone
// for ten minutes.
func TestExternalChangesHoldOff(t *testing.T) {
	const at = 2 * time.Minute
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 2}, Length: 14 * time.Minute, Seed: 1, Pods: []sim.PodSpec{
		{Name: "service", Request: 500, Limit: 1000, Requests: load.Requests{Rate: load.Constant(60), ServiceTime: 10 * time.Millisecond}},
		{Name: "batch", Request: 500, Limit: 1900, Spin: load.Constant(4), ExternalChanges: []sim.ExternalChange{{At: at, Limit: 1800}}},
	}}, New(DefaultConfig()))
	batch := r.Pod("batch")
	if before := batch.LimitAt(at - time.Second); before >= 1500 {
		t.Errorf("the batch pod was not capped before: %v", before)
	}
	later := batch.ChangesBetween(at, 14*time.Minute)
	if len(later) == 0 {
		t.Fatal("the batch pod stays as it is")
	}
	if next := later[0].At; batch.LimitAt(at) != 1800 || next < at+10*time.Minute || next > at+11*time.Minute {
		t.Errorf("limit %v after the external change, and the next change at %v: want 1.8, and %v", batch.LimitAt(at), next, at+10*time.Minute)
	}
}

package baseline

import (
	"reflect"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// observedPolicy passes each action of a policy to observe.
type observedPolicy struct {
	sim.Policy
	observe func(*sim.Snapshot, sim.Action)
}

func (w observedPolicy) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	actions, next := w.Policy.Decide(r)
	for _, a := range actions {
		w.observe(r, a)
	}
	return actions, next
}

// find is the pod of an ID; nil where it does not run.
func find(r *sim.Snapshot, id int) *sim.PodSnapshot {
	for i := range r.Pods {
		if r.Pods[i].ID == id {
			return &r.Pods[i]
		}
	}
	return nil
}

// setup is a node on which the policy of that name acts: a busy one, or a calm one where it needs
// replicas or idle CPU.
func setup(name string, seed uint64) sim.Setup {
	switch name {
	case "hpa", "koordinator", "koordinator-60s", "rubik":
		return simtest.CalmNode(seed)
	}
	return simtest.MixedNode(seed)
}

// TestKeepsUnmanagedPods also checks each limit that a policy sets.
func TestKeepsUnmanagedPods(t *testing.T) {
	for _, named := range Policies() {
		acted := named.Name == "static" || named.Name == "vpa" // which learns for longer than the run, as vpa-1h then acts
		sim.Run(setup(named.Name, 1), observedPolicy{named.New(), func(r *sim.Snapshot, a sim.Action) {
			acted = true
			p := find(r, a.Pod)
			if p == nil || !p.Spec.Managed() {
				t.Errorf("%s: at %v it changes pod %d, which is not managed or does not run", named.Name, r.Now, a.Pod)
			} else if a.Replicas == 0 && named.Name != "no-limits" {
				checkLimit(t, named.Name, r.Now, p, a)
			}
		}})
		if !acted {
			t.Errorf("%s: it never acted, so nothing was tested", named.Name)
		}
	}
}

// checkLimit is LimitsAreValid.
func checkLimit(t *testing.T, policy string, at time.Duration, p *sim.PodSnapshot, a sim.Action) {
	t.Helper()
	if a.Limit < cpu.Quantum {
		t.Errorf("%s: at %v the limit of %s becomes %v, below what the kernel accepts", policy, at, p.Spec.Name, a.Limit)
	}
	if request := max(p.Request, a.Request); a.Delay >= sim.ResizeDelay && a.Limit <= request && a.Request == 0 {
		t.Errorf("%s: at %v the limit of %s becomes %v at a request of %v: the pod would not be Burstable",
			policy, at, p.Spec.Name, a.Limit, request)
	}
}

// TestNewPolicyHasNoState: a policy does the same again with the same seed, whatever another one of
// its name saw meanwhile.
func TestNewPolicyHasNoState(t *testing.T) {
	for _, named := range Policies() {
		first := sim.Run(setup(named.Name, 3), named.New())
		sim.Run(setup(named.Name, 4), named.New())
		if again := sim.Run(setup(named.Name, 3), named.New()); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: two runs with one seed differ", named.Name)
		}
	}
}

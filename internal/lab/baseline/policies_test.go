package baseline

import (
	"reflect"
	"strings"
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

// TestKeepsUnmanagedPods also checks each limit that a policy sets.
func TestKeepsUnmanagedPods(t *testing.T) {
	// On this node these do nothing: HPA has no replicas, VPA alone is not yet sure, and the node
	// is too busy to lend quota.
	inactive := map[string]bool{"static": true, "hpa": true, "vpa": true, "koordinator": true, "koordinator-60s": true, "rubik": true}
	for _, named := range Policies() {
		acted := false
		sim.Run(simtest.MixedNode(1), observedPolicy{named.New(), func(r *sim.Snapshot, a sim.Action) {
			acted = true
			p := find(r, a.Pod)
			if p == nil || !p.Spec.Managed() {
				t.Errorf("%s: at %v it changes pod %d, which is not managed or does not run", named.Name, r.Now, a.Pod)
				return
			}
			if a.Replicas == 0 && named.Name != "no-limits" {
				checkLimit(t, named.Name, r.Now, p, a)
			}
		}})
		if !acted && !inactive[named.Name] {
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
	names := map[string]bool{}
	short := func(seed uint64) sim.Setup {
		s := simtest.MixedNode(seed)
		s.Length = 50 * time.Second
		return s
	}
	for _, named := range Policies() {
		if names[named.Name] || named.Name != strings.ToLower(named.Name) || strings.ContainsAny(named.Name, " /,") || named.Description == "" {
			t.Errorf("%q: want a unique name in lower case without blanks, and a description", named.Name)
		}
		names[named.Name] = true
		first := sim.Run(short(3), named.New())
		sim.Run(short(4), named.New())
		if again := sim.Run(short(3), named.New()); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: two runs with one seed differ", named.Name)
		}
	}
}

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

func spec(r *sim.Snapshot, id int) *sim.PodSnapshot {
	for i := range r.Pods {
		if r.Pods[i].ID == id {
			return &r.Pods[i]
		}
	}
	return nil
}

func TestKeepsUnmanagedPods(t *testing.T) {
	// These have nothing to do here: HPA has no replicas, VPA alone is not yet sure, and the node is too busy to lend quota.
	still := map[string]bool{"static": true, "hpa": true, "vpa": true, "koordinator": true, "koordinator-60s": true, "rubik": true}
	for _, named := range Policies() {
		acted := false
		sim.Run(simtest.MixedNode(1), observedPolicy{named.New(), func(r *sim.Snapshot, a sim.Action) {
			acted = true
			if p := spec(r, a.Pod); p == nil || !p.Spec.Managed() {
				t.Errorf("%s: at %v it changes pod %d, which is not managed or does not run", named.Name, r.Now, a.Pod)
			}
		}})
		if !acted && !still[named.Name] {
			t.Errorf("%s: it never did anything, so nothing was tested", named.Name)
		}
	}
}

func TestLimitsAreValid(t *testing.T) {
	for _, named := range Policies() {
		if named.Name == "no-limits" {
			continue
		}
		sim.Run(simtest.MixedNode(1), observedPolicy{named.New(), func(r *sim.Snapshot, a sim.Action) {
			if a.Replicas > 0 {
				return
			}
			p := spec(r, a.Pod)
			if a.Limit < cpu.Quantum {
				t.Errorf("%s: at %v the limit of %s becomes %v, below what the kernel takes", named.Name, r.Now, p.Spec.Name, a.Limit)
			}
			if a.Delay < sim.ResizeDelay {
				return
			}
			if request := max(p.Request, a.Request); a.Limit <= request && a.Request == 0 {
				t.Errorf("%s: at %v the limit of %s becomes %v at a request of %v: the pod would not be Burstable", named.Name, r.Now, p.Spec.Name, a.Limit, request)
			}
		}})
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for _, named := range Policies() {
		a, b := sim.Run(simtest.MixedNode(7), named.New()), sim.Run(simtest.MixedNode(7), named.New())
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs with one seed differ", named.Name)
		}
	}
}

func TestNewPolicyHasNoState(t *testing.T) {
	names := map[string]bool{}
	for _, named := range Policies() {
		if names[named.Name] || named.Name != strings.ToLower(named.Name) || strings.ContainsAny(named.Name, " /,") || named.Description == "" {
			t.Errorf("%q: want a name of its own in lower case without blanks, and a description", named.Name)
		}
		names[named.Name] = true
		first := sim.Run(simtest.MixedNode(3), named.New())
		sim.Run(simtest.MixedNode(4), named.New())
		if again := sim.Run(simtest.MixedNode(3), named.New()); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: what one policy saw changes what the next one does", named.Name)
		}
	}
}

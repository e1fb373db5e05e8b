package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/guard"
)

var intstrPort = intstr.FromInt32(8080)

const (
	shop = "e2e-shop"
	// declared is the CPU limit of every managed pod here.
	declared = cpu.Milli(300)
)

// managed are the pods of the shop that MBCAS may resize; all others are witnesses.
var managed = []string{"web", "batch"}

// path is the state that the steps of the end-to-end path share.
type path struct {
	*suite
	pods      map[string]*corev1.Pod // of the shop, as they started
	untouched map[string]string
}

// TestPath follows one node from an installation to its removal: limits are decided, raised, kept while MBCAS is
// killed, lowered, and restored.
func TestPath(t *testing.T) {
	s := start(t)
	s.install(t)
	(&path{suite: s}).run(t)
}

// run runs the steps. Each starts from the state in which the one before it ended, so the first failure ends the test.
func (s *path) run(t *testing.T) {
	s.open(t)
	for _, step := range []struct {
		name string
		run  func(*path, *testing.T)
	}{
		{"PodsRunUnprivileged", (*path).podsRunUnprivileged},
		{"IdleNodeRaisesLimits", (*path).idleNodeRaisesLimits},
		{"KilledOnAnIdleNode", (*path).killedOnAnIdleNode},
		{"ContentionLowersLimits", (*path).contentionLowersLimits},
		{"ReleaseRaisesAtOnce", (*path).releaseRaisesAtOnce},
		{"RestoreIsExact", (*path).restoreIsExact},
		{"WitnessesAreUntouched", (*path).witnessesAreUntouched},
		{"UninstallRestoresFirst", (*path).uninstallRestoresFirst},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the test ends at %s; allocations of the shop:\n%s", step.name, s.allocations(t))
		}
	}
}

// open starts the shop: two managed pods, and witnesses that must never be resized.
func (s *path) open(t *testing.T) {
	s.namespace(t, shop, "enforce")
	r := resources{"100m", "300m", "32Mi"}
	for _, app := range managed {
		s.deploy(t, shop, app, r)
	}
	s.bare(t, shop, "guaranteed", resources{"50m", "50m", "32Mi"}, nil)
	s.bare(t, shop, "besteffort", resources{}, nil)
	s.bare(t, shop, "unlimited", resources{"50m", "", ""}, nil)
	s.bare(t, shop, "optedout", r, map[string]string{"mbcas.io/managed": "false"})
	s.pods = s.suite.pods(t, shop)
	if len(s.pods) != 6 {
		t.Fatalf("%d pods in the shop, want 6", len(s.pods))
	}
	s.untouched = map[string]string{}
	for name, p := range s.pods {
		s.untouched[name] = untouched(p)
	}
}

// allocations is a line about every allocation of the shop.
func (s *path) allocations(t *testing.T) string {
	var list v1alpha1.PodAllocationList
	if err := s.List(t.Context(), &list, client.InNamespace(shop)); err != nil {
		return err.Error()
	}
	out := ""
	for _, pa := range list.Items {
		out += fmt.Sprintf("  %s: %s\n", pa.Spec.PodRef.Name, summary(&pa))
	}
	return out
}

// reaches waits until the kernel enforces a limit of the app that matches.
func (s *path) reaches(t *testing.T, most time.Duration, app, what string, matches func(cpu.Milli) bool) {
	t.Helper()
	s.suite.reaches(t, most, s.pods[app], what, matches)
}

func (s *path) isCeiling(q cpu.Milli) bool { return q == s.ceiling }

func (s *path) podsRunUnprivileged(t *testing.T) {
	var list corev1.PodList
	if err := s.List(t.Context(), &list, client.InNamespace(system)); err != nil {
		t.Fatal(err)
	}
	accounts := map[string]bool{}
	for _, p := range list.Items {
		accounts[p.Spec.ServiceAccountName] = true
		if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.SecurityContext == nil || !*p.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may be root or can access the host's network or processes", p.Name)
		}
		for _, c := range p.Spec.Containers {
			sc := c.SecurityContext
			if sc == nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem || len(sc.Capabilities.Drop) != 1 || sc.Capabilities.Drop[0] != "ALL" || len(sc.Capabilities.Add) > 0 {
				t.Errorf("%s/%s is not confined: %+v", p.Name, c.Name, sc)
			}
		}
	}
	if !accounts["mbcas-agent"] || !accounts["mbcas-controller"] {
		t.Errorf("service accounts %v: want those of the agent and the controller", accounts)
	}
}

func (s *path) idleNodeRaisesLimits(t *testing.T) {
	for _, app := range managed {
		s.reaches(t, 3*time.Minute, app, fmt.Sprintf("has the ceiling of %v", s.ceiling), s.isCeiling)
		wait(t, time.Minute, "the allocation of "+app+" is Applied", func(ctx context.Context) (bool, string) {
			pa, err := s.allocation(ctx, s.pods[app])
			return err == nil && pa.Status.Phase == v1alpha1.PhaseApplied, orError(err, "%s", summary(pa))
		})
		pa, _ := s.allocation(t.Context(), s.pods[app])
		if d := pa.Status.DeclaredLimits; len(d) != 1 || d[0].CPULimit != declared {
			t.Errorf("%s: declared limits %v, want %v", app, d, declared)
		}
	}
}

// contentionLowersLimits: both pods demand the whole node, so each is capped at about half of it.
func (s *path) contentionLowersLimits(t *testing.T) {
	for _, app := range managed {
		spin(t, s.pods[app], 2)
	}
	for _, app := range managed {
		s.reaches(t, 3*time.Minute, app, "is lowered to about half of the node", func(q cpu.Milli) bool { return q <= s.ceiling*6/10 })
		if q := s.quota(t, s.pods[app]); q < 100 {
			t.Errorf("%s has %v: want no managed pod below its request of 100m", app, q)
		}
	}
}

// kill ends the pods of a component at once, without a grace period.
func kill(t *testing.T, component string) {
	t.Helper()
	kubectl(t, "-n", system, "delete", "pod", "-l", "app.kubernetes.io/component="+component, "--grace-period=0", "--force")
}

// killedOnAnIdleNode: new instances of agent and controller change nothing.
func (s *path) killedOnAnIdleNode(t *testing.T) {
	before := s.count(t, shop)
	kill(t, "agent")
	kill(t, "controller")
	kubectl(t, "-n", system, "rollout", "status", "deployment/mbcas-controller", "--timeout=300s")
	s.rounds(t, warmUp+5) // the new agent decides again
	if now := s.count(t, shop); now != before {
		t.Errorf("%d resizes, there were %d before agent and controller were killed: want none more\n%s", now, before, s.allocations(t))
	}
}

func (s *path) releaseRaisesAtOnce(t *testing.T) {
	spin(t, s.pods["web"], 1) // alone it fits into the node
	spin(t, s.pods["batch"], 0)
	s.reaches(t, time.Minute, "web", "has the ceiling again", s.isCeiling)
	spin(t, s.pods["web"], 0)
	s.reaches(t, time.Minute, "batch", "has the ceiling again", s.isCeiling)
}

// restoreIsExact: in mode restore each pod gets exactly its declared limit, in the kernel and in its spec.
func (s *path) restoreIsExact(t *testing.T) {
	s.setMode(t, shop, "restore")
	for _, app := range managed {
		s.reaches(t, time.Minute, app, fmt.Sprintf("is back at %v", declared), func(q cpu.Milli) bool { return q == declared })
		wait(t, time.Minute, app+" is Restored", func(ctx context.Context) (bool, string) {
			pa, err := s.allocation(ctx, s.pods[app])
			return err == nil && pa.Status.Phase == v1alpha1.PhaseRestored, orError(err, "%s", summary(pa))
		})
		if got := limit(s.pod(t, s.pods[app])); got != declared {
			t.Errorf("%s: limit %v in the spec, want %v", app, got, declared)
		}
	}
}

func (s *path) witnessesAreUntouched(t *testing.T) {
	resized := s.resizes(t, shop)
	for name, started := range s.pods {
		now := s.pod(t, started)
		if now.UID != started.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was replaced or restarted", name)
		}
		if untouched(now) != s.untouched[name] {
			t.Errorf("%s: more than CPU limits changed:\n%s\nwas\n%s", name, untouched(now), s.untouched[name])
		}
		if slices.Contains(managed, name) {
			continue
		}
		if n := len(resized[started.Name]); n > 0 || now.Generation != started.Generation {
			t.Errorf("%s was touched: %d resizes, generation %d and %d", name, n, started.Generation, now.Generation)
		}
	}
	for name, writes := range resized {
		for _, w := range writes {
			if user := w.User.Username; user != guard.Controller {
				t.Errorf("%s was resized by %s", name, user)
			}
		}
	}
}

func (s *path) uninstallRestoresFirst(t *testing.T) {
	s.setMode(t, shop, "enforce")
	s.reaches(t, 90*time.Second, "web", "has the ceiling again", s.isCeiling)
	uninstall(t)
	for _, app := range managed {
		if got := limit(s.pod(t, s.pods[app])); got != declared {
			t.Errorf("%s: limit %v after the uninstallation, want %v", app, got, declared)
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "mbcas-controller"}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "podallocations.allocation.mbcas.io"}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "demandsignals.allocation.mbcas.io"}},
	} {
		wait(t, time.Minute, o.GetName()+" is gone", func(ctx context.Context) (bool, string) {
			err := s.Get(ctx, client.ObjectKeyFromObject(o), o)
			return errors.IsNotFound(err), orError(err, "still there")
		})
	}
}

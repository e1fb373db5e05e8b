package e2e

import (
	"context"
	"fmt"
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
	shop   = "e2e-shop"
	advice = "e2e-advice"
	// declared is the CPU limit of every managed pod here.
	declared = cpu.Milli(300)
)

// story is what the steps of TestPath share.
type story struct {
	*suite
	pods      map[string]*corev1.Pod // of the shop, as they started
	untouched map[string]string
}

// TestPath follows one node from an installation to its removal. Each step starts from where
// the one before it ended, so the first that fails ends the story.
func TestPath(t *testing.T) {
	s := &story{suite: start(t)}
	s.install(t)
	s.open(t)
	for _, step := range []struct {
		name string
		run  func(*story, *testing.T)
	}{
		{"PodsRunUnprivileged", (*story).podsRunUnprivileged},
		{"IdleNodeRaisesLimits", (*story).idleNodeRaisesLimits},
		{"RecommendChangesNothing", (*story).recommendChangesNothing},
		{"ContentionLowersLimits", (*story).contentionLowersLimits},
		{"KilledInContention", (*story).killedInContention},
		{"ReleaseRaisesAtOnce", (*story).releaseRaisesAtOnce},
		{"KilledOnAnIdleNode", (*story).killedOnAnIdleNode},
		{"AllocationDeleted", (*story).allocationDeleted},
		{"DefinitionDeleted", (*story).definitionDeleted},
		{"EveryRecordLost", (*story).everyRecordLost},
		{"SomebodyElseResizes", (*story).somebodyElseResizes},
		{"MaxCPULowersTheCeiling", (*story).maxCPULowersTheCeiling},
		{"OptOutRestores", (*story).optOutRestores},
		{"RestoreIsExact", (*story).restoreIsExact},
		{"WitnessesAreUntouched", (*story).witnessesAreUntouched},
		{"UninstallRestoresFirst", (*story).uninstallRestoresFirst},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the story ends at %s; state of the shop:\n%s", step.name, s.scene(t))
		}
	}
}

// open starts the shop: two managed pods, and witnesses that must never be touched.
func (s *story) open(t *testing.T) {
	s.namespace(t, shop, "enforce")
	s.namespace(t, advice, "recommend")
	managed := resources{"100m", "300m", "32Mi"}
	s.deploy(t, shop, "web", managed)
	s.deploy(t, shop, "batch", managed)
	s.bare(t, shop, "guaranteed", resources{"50m", "50m", "32Mi"}, nil)
	s.bare(t, shop, "besteffort", resources{}, nil)
	s.bare(t, shop, "unlimited", resources{"50m", "", ""}, nil)
	s.bare(t, shop, "optedout", managed, map[string]string{"mbcas.io/managed": "false"})
	s.deploy(t, advice, "web", managed)
	s.pods = s.suite.pods(t, shop)
	if len(s.pods) != 6 {
		t.Fatalf("%d pods in the shop, want 6", len(s.pods))
	}
	s.untouched = map[string]string{}
	for name, p := range s.pods {
		s.untouched[name] = untouched(p)
	}
}

// scene says how every allocation of the shop stands.
func (s *story) scene(t *testing.T) string {
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

// reaches waits until the kernel enforces a limit of the app that suits.
func (s *story) reaches(t *testing.T, most time.Duration, app, what string, suits func(cpu.Milli) bool) {
	t.Helper()
	s.suite.reaches(t, most, s.pods[app], what, suits)
}

// quiet asserts that n rounds pass without any resize in the shop.
func (s *story) quiet(t *testing.T, n, before int) {
	t.Helper()
	s.rounds(t, n)
	if now := s.count(t, shop); now != before {
		t.Errorf("%d resizes, there were %d before: want none more\n%s", now, before, s.scene(t))
	}
}

func (s *story) podsRunUnprivileged(t *testing.T) {
	var list corev1.PodList
	if err := s.List(t.Context(), &list, client.InNamespace(system)); err != nil {
		t.Fatal(err)
	}
	accounts := map[string]bool{}
	for _, p := range list.Items {
		accounts[p.Spec.ServiceAccountName] = true
		if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.SecurityContext == nil || !*p.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may be root or sees the host's network or processes", p.Name)
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

func (s *story) idleNodeRaisesLimits(t *testing.T) {
	for _, app := range []string{"web", "batch"} {
		s.reaches(t, 90*time.Second, app, fmt.Sprintf("has the ceiling of %v", s.ceiling), func(q cpu.Milli) bool { return q == s.ceiling })
		wait(t, 30*time.Second, "the allocation of "+app+" is Applied", func(ctx context.Context) (bool, string) {
			pa, err := s.allocation(ctx, s.pods[app])
			return err == nil && pa.Status.Phase == v1alpha1.PhaseApplied, orError(err, "%s", summary(pa))
		})
		pa, _ := s.allocation(t.Context(), s.pods[app])
		if d := pa.Status.DeclaredLimits; len(d) != 1 || d[0].CPULimit != declared {
			t.Errorf("%s: declared limits %v, want %v", app, d, declared)
		}
	}
}

func (s *story) recommendChangesNothing(t *testing.T) {
	pod := s.suite.pods(t, advice)["web"]
	wait(t, time.Minute, "the advised pod has a decision", func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, pod)
		return err == nil && pa.Spec.DesiredCPULimit != nil && *pa.Spec.DesiredCPULimit == s.ceiling, orError(err, "%s", summary(pa))
	})
	s.rounds(t, 5)
	if n := s.count(t, advice); n != 0 || limit(s.pod(t, pod)) != declared {
		t.Errorf("%d resizes in a namespace that only wants advice; limit %v", n, limit(s.pod(t, pod)))
	}
}

func (s *story) contentionLowersLimits(t *testing.T) {
	spin(t, s.pods["web"], 1) // alone it fits into the node
	spin(t, s.pods["batch"], 2)
	for _, app := range []string{"web", "batch"} {
		s.reaches(t, 2*time.Minute, app, "comes down to about its half of the node", func(q cpu.Milli) bool { return q <= s.ceiling*6/10 })
		if q := quota(t, s.pods[app]); q < 100 {
			t.Errorf("%s has %v: want no managed pod below 100m", app, q)
		}
	}
}

// kill ends the pods of a part of MBCAS at once, without a chance to say goodbye.
func kill(t *testing.T, component string) {
	t.Helper()
	kubectl(t, "-n", system, "delete", "pod", "-l", "app.kubernetes.io/component="+component, "--grace-period=0", "--force")
}

// Killed while CPU is scarce: limits stay about where they are. (That nothing at all is resized can be asked only of an
// idle node, see killedOnAnIdleNode: here the supply moves with what else the machine does.)
func (s *story) killedInContention(t *testing.T) {
	spin(t, s.pods["web"], 2) // with one thread it may use no more than its share, and then nothing holds it
	defer spin(t, s.pods["web"], 1)
	s.rounds(t, 30) // what contention still moves has moved
	before := map[string]cpu.Milli{}
	for _, app := range []string{"web", "batch"} {
		before[app] = quota(t, s.pods[app])
	}
	kill(t, "agent")
	kill(t, "controller")
	kubectl(t, "-n", system, "rollout", "status", "deployment/mbcas-controller", "--timeout=120s")
	s.rounds(t, 25) // the new agent watches for its warm-up, then decides
	for app, was := range before {
		if now := quota(t, s.pods[app]); now < was*6/10 || now > was*16/10 {
			t.Errorf("%s went from %v to %v when agent and controller were killed\n%s", app, was, now, s.scene(t))
		}
	}
}

func (s *story) killedOnAnIdleNode(t *testing.T) {
	before := s.count(t, shop)
	kill(t, "agent")
	s.quiet(t, 25, before)
	kill(t, "controller")
	kubectl(t, "-n", system, "rollout", "status", "deployment/mbcas-controller", "--timeout=120s")
	s.quiet(t, 15, before)
}

func (s *story) releaseRaisesAtOnce(t *testing.T) {
	spin(t, s.pods["batch"], 0)
	s.reaches(t, 20*time.Second, "web", "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
	spin(t, s.pods["web"], 0)
	s.reaches(t, 20*time.Second, "batch", "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
}

// returns waits until the pod's allocation is there again with what was declared at first.
func (s *story) returns(t *testing.T, app string) {
	t.Helper()
	wait(t, 90*time.Second, "the allocation of "+app+" is back and Applied", func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, s.pods[app])
		return err == nil && pa.Status.Phase == v1alpha1.PhaseApplied, orError(err, "%s", summary(pa))
	})
	pa, _ := s.allocation(t.Context(), s.pods[app])
	if d := pa.Status.DeclaredLimits; len(d) != 1 || d[0].CPULimit != declared {
		t.Errorf("%s: declared limits %v after the loss, want %v", app, d, declared)
	}
}

func (s *story) allocationDeleted(t *testing.T) {
	before := s.count(t, shop)
	for _, app := range []string{"web", "batch"} {
		pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: string(s.pods[app].UID)}}
		if err := s.Delete(t.Context(), pa); err != nil {
			t.Fatal(err)
		}
	}
	s.returns(t, "web")
	s.returns(t, "batch")
	s.quiet(t, 15, before)
}

// stopController takes away every controller, and with it all that it remembers; applyManifests starts one anew.
func stopController(t *testing.T) {
	t.Helper()
	kubectl(t, "-n", system, "scale", "deployment/mbcas-controller", "--replicas=0")
	kubectl(t, "-n", system, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=controller", "--timeout=60s")
}

// With the definition every allocation goes while no controller runs: only the ledger still knows what was declared.
func (s *story) definitionDeleted(t *testing.T) {
	before := s.count(t, shop)
	stopController(t)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "podallocations.allocation.mbcas.io"}}
	if err := s.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	wait(t, time.Minute, "the definition is gone", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return errors.IsNotFound(err), orError(err, "still there")
	})
	s.applyManifests(t)
	s.returns(t, "web")
	s.returns(t, "batch")
	s.quiet(t, 15, before)
}

// Without allocations, ledger and memory only the owner's template still says what was declared. The pods' own limits
// must not be taken for it: they are what the market gave.
func (s *story) everyRecordLost(t *testing.T) {
	before := s.count(t, shop)
	stopController(t)
	for _, app := range []string{"web", "batch"} {
		if now := limit(s.pod(t, s.pods[app])); now != s.ceiling {
			t.Fatalf("%s has a limit of %v: this step proves something only at the ceiling, %v", app, now, s.ceiling)
		}
		pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: string(s.pods[app].UID)}}
		if err := s.Delete(t.Context(), pa); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(system), client.HasLabels{ledgerLabel}); err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"web", "batch"} {
		if written := s.ledger(t, s.pods[app]); written != nil {
			t.Fatalf("%s still stands in the ledger: %v", app, written)
		}
	}

	s.applyManifests(t)
	for _, app := range []string{"web", "batch"} {
		s.returns(t, app)
		if l := s.ledger(t, s.pods[app]); len(l) != 1 || l[0].CPULimit != declared {
			t.Errorf("%s: the ledger says %v after the loss, want %v", app, l, declared)
		}
	}
	s.quiet(t, 15, before)

	s.restores(t, map[string]cpu.Milli{"web": declared, "batch": declared})
	s.setMode(t, shop, "enforce")
	for _, app := range []string{"web", "batch"} {
		s.reaches(t, time.Minute, app, "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
	}
}

func (s *story) somebodyElseResizes(t *testing.T) {
	pod := s.pods["batch"]
	patch := `{"spec":{"containers":[{"name":"load","resources":{"limits":{"cpu":"450m"}}}]}}`
	kubectl(t, "-n", shop, "patch", "pod", pod.Name, "--subresource=resize", "-p", patch)
	wait(t, time.Minute, "the new limit is taken for declared", func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, pod)
		return err == nil && len(pa.Status.DeclaredLimits) == 1 && pa.Status.DeclaredLimits[0].CPULimit == 450 && pa.Status.Phase == v1alpha1.PhaseHeld,
			orError(err, "declared %v, %s", pa.Status.DeclaredLimits, summary(pa))
	})
	before := s.count(t, shop)
	s.quiet(t, 15, before)
	if got := quota(t, pod); got != 450 {
		t.Errorf("quota %v after somebody else set 450m", got)
	}
}

func (s *story) maxCPULowersTheCeiling(t *testing.T) {
	web := s.pods["web"]
	kubectl(t, "-n", shop, "annotate", "pod", web.Name, "mbcas.io/max-cpu=700m")
	s.reaches(t, 2*time.Minute, "web", "comes down to its own maximum", func(q cpu.Milli) bool { return q == 700 })
	kubectl(t, "-n", shop, "annotate", "pod", web.Name, "mbcas.io/max-cpu-")
	s.reaches(t, time.Minute, "web", "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
}

func (s *story) optOutRestores(t *testing.T) {
	web := s.pods["web"]
	kubectl(t, "-n", shop, "label", "pod", web.Name, "mbcas.io/managed=false")
	s.reaches(t, time.Minute, "web", "has its declared limit", func(q cpu.Milli) bool { return q == declared })
	wait(t, time.Minute, "its allocation is gone", func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, web)
		return errors.IsNotFound(err), orError(err, "%s", summary(pa))
	})
	kubectl(t, "-n", shop, "label", "pod", web.Name, "mbcas.io/managed-")
	s.reaches(t, time.Minute, "web", "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
}

// restores puts the shop into mode restore and waits until each pod has exactly what is wanted, in the kernel and in its spec.
func (s *story) restores(t *testing.T, declared map[string]cpu.Milli) {
	t.Helper()
	s.setMode(t, shop, "restore")
	for app, want := range declared {
		s.reaches(t, time.Minute, app, fmt.Sprintf("is back at %v", want), func(q cpu.Milli) bool { return q == want })
		wait(t, 30*time.Second, app+" is Restored", func(ctx context.Context) (bool, string) {
			pa, err := s.allocation(ctx, s.pods[app])
			return err == nil && pa.Status.Phase == v1alpha1.PhaseRestored, orError(err, "%s", summary(pa))
		})
		if got := limit(s.pod(t, s.pods[app])); got != want {
			t.Errorf("%s: limit %v in the spec, want %v", app, got, want)
		}
	}
}

func (s *story) restoreIsExact(t *testing.T) {
	s.restores(t, map[string]cpu.Milli{"web": declared, "batch": 450})
	s.quiet(t, 10, s.count(t, shop))
}

func (s *story) witnessesAreUntouched(t *testing.T) {
	resized := s.resizes(t, shop)
	for name, started := range s.pods {
		now := s.pod(t, started)
		if now.UID != started.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was replaced or restarted", name)
		}
		if untouched(now) != s.untouched[name] {
			t.Errorf("%s: more than CPU limits changed:\n%s\nwas\n%s", name, untouched(now), s.untouched[name])
		}
		if name == "web" || name == "batch" {
			continue
		}
		if n := len(resized[started.Name]); n > 0 || now.Generation != started.Generation {
			t.Errorf("%s was touched: %d resizes, generation %d and %d", name, n, started.Generation, now.Generation)
		}
	}
	for name, writes := range resized {
		for _, w := range writes {
			if user := w.User.Username; user != guard.Controller && name != s.pods["batch"].Name {
				t.Errorf("%s was resized by %s", name, user)
			}
		}
	}
}

func (s *story) uninstallRestoresFirst(t *testing.T) {
	s.setMode(t, shop, "enforce")
	s.reaches(t, 90*time.Second, "web", "has the ceiling again", func(q cpu.Milli) bool { return q == s.ceiling })
	uninstall(t)
	for app, want := range map[string]cpu.Milli{"web": declared, "batch": 450} {
		if got := limit(s.pod(t, s.pods[app])); got != want {
			t.Errorf("%s: limit %v after the uninstallation, want %v", app, got, want)
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

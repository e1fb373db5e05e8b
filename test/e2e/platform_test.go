package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/guard"
)

// Namespaces of TestPlatform.
const (
	shapes    = "e2e-shapes"
	quotas    = "e2e-quotas"
	contended = "e2e-contended"
	scaling   = "e2e-scaling"
	vpas      = "e2e-vpas"
)

// platform is what the steps of TestPlatform share.
type platform struct {
	*suite
	addons    sync.WaitGroup
	failed    string // why the add-ons did not start
	shapes    map[string]*corev1.Pod
	contended map[string]*corev1.Pod
}

// TestPlatform runs pods with an HPA, a VPA, a PodDisruptionBudget and a ResourceQuota, with Kubernetes' own controllers and the real
// metrics-server and VPA. Every workload is there from the start, so that none is new in its step.
func TestPlatform(t *testing.T) {
	p := &platform{suite: start(t)}
	p.startAddons(t)
	p.install(t)
	defer p.cleanUp(t)
	for _, ns := range []string{shapes, quotas, contended, scaling, vpas} {
		p.namespace(t, ns, "enforce")
	}
	p.openShapes(t)
	p.openQuota(t)
	p.openContended(t)
	p.openScaling(t)
	p.openVPAs(t)
	for _, step := range []struct {
		name string
		run  func(*platform, *testing.T)
	}{
		{"EveryKindOfContainer", (*platform).everyKindOfContainer},
		{"VPAIsAddedLater", (*platform).vpaIsAddedLater},
		{"QuotaIsShared", (*platform).quotaIsShared},
		{"NoDisruptionNoDecrease", (*platform).noDisruptionNoDecrease},
		{"HarmfulDecreaseIsRolledBack", (*platform).harmfulDecreaseIsRolledBack},
		{"HPAScalesAndStabilises", (*platform).hpaScalesAndStabilises},
		{"ReasonIsReported", (*platform).reasonIsReported},
		{"VPAPodsAreNotResized", (*platform).vpaPodsAreNotResized},
		{"RestoreIsExact", (*platform).restoreShapes},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(p, t) })
	}
}

// startAddons starts metrics-server and the VPA in the background. The first time that builds them.
func (p *platform) startAddons(t *testing.T) {
	var commands []func() ([]byte, error)
	for _, name := range []string{"metrics-server", "vpa"} {
		commands = append(commands, cluster(t, "addon", "up", name, "--interval=10s").CombinedOutput)
	}
	p.addons.Go(func() {
		for _, run := range commands {
			if out, err := run(); err != nil {
				p.failed = fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
				return
			}
		}
	})
}

func (p *platform) needAddons(t *testing.T) {
	t.Helper()
	p.addons.Wait()
	if p.failed != "" {
		t.Fatalf("metrics-server or the VPA does not run: %s", p.failed)
	}
}

// cleanUp uninstalls MBCAS.
func (p *platform) cleanUp(t *testing.T) {
	p.addons.Wait()
	uninstall(t)
}

// waitAllocation waits until the pod's allocation is as it should be, and returns it.
func (s *suite) waitAllocation(t *testing.T, most time.Duration, pod *corev1.Pod, what string, is func(*v1alpha1.PodAllocation) bool) *v1alpha1.PodAllocation {
	t.Helper()
	var found *v1alpha1.PodAllocation
	wait(t, most, "the allocation of "+pod.Name+": "+what, func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, pod)
		found = pa
		return err == nil && is(pa), orError(err, "%s, constraints %s", summary(pa), constraintsText(pa.Status.Constraints))
	})
	return found
}

// waitNoAllocation waits until the pod has no allocation.
func (s *suite) waitNoAllocation(t *testing.T, most time.Duration, pod *corev1.Pod) {
	t.Helper()
	wait(t, most, pod.Name+" has no allocation", func(ctx context.Context) (bool, string) {
		pa, err := s.allocation(ctx, pod)
		return apierrors.IsNotFound(err), orError(err, "%s", summary(pa))
	})
}

func constraintsText(t *v1alpha1.Constraints) string {
	if t == nil {
		return "none"
	}
	text := fmt.Sprintf("%v by %q and %q, no decrease %q, raise on need %v", t.Containers, t.FloorBy, t.CeilingBy, t.NoDecrease, t.IncreaseOnNeed)
	if t.Ceiling != nil {
		text += fmt.Sprintf(", ceiling %v", *t.Ceiling)
	}
	return text
}

// noDecreaseFor returns whether the constraints forbid a decrease for this reason.
func noDecreaseFor(pa *v1alpha1.PodAllocation, r reasons.Reason) bool {
	return pa.Status.Constraints != nil && pa.Status.Constraints.NoDecrease == string(r)
}

// event waits until an event with the reason is about the pod.
func (s *suite) event(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	wait(t, 30*time.Second, fmt.Sprintf("an event %s of %s", reason, pod.Name), func(ctx context.Context) (bool, string) {
		var list corev1.EventList
		if err := s.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
			return false, err.Error()
		}
		var others []string
		for _, e := range list.Items {
			if e.InvolvedObject.UID != pod.UID {
				continue
			}
			if e.Reason == reason {
				return e.Message != "", "it has no message"
			}
			others = append(others, e.Reason)
		}
		return false, "events " + strings.Join(others, ", ")
	})
}

// loweredBelow lists the resizes in a namespace by which the controller set a limit below the declared one.
func (s *suite) loweredBelow(t *testing.T, namespace string, declared cpu.Milli) (lowered []string) {
	t.Helper()
	for name, events := range s.resizes(t, namespace) {
		for _, e := range events {
			if to := requestedLimit(e); e.User.Username == guard.Controller && to < declared {
				lowered = append(lowered, fmt.Sprintf("%s to %v", name, to))
			}
		}
	}
	return lowered
}

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
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

// TestPlatform runs pods with an HPA, a VPA, a PodDisruptionBudget and a ResourceQuota, with Kubernetes'
// own controllers and the real metrics-server and VPA. Every workload is there from the start, so that
// none is new in its step.
func TestPlatform(t *testing.T) {
	p := &platform{}
	p.suite = start(t, func(*suite) { p.startAddons(t) })
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
		commands = append(commands, cluster(t.Context(), "addon", "up", name, "--interval=10s").CombinedOutput)
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

// hasNoDecrease waits until the constraints of the pod forbid a decrease for this reason.
func (p *platform) hasNoDecrease(t *testing.T, pod *corev1.Pod, r reasons.Reason) *v1alpha1.PodAllocation {
	t.Helper()
	return p.waitAllocation(t, time.Minute, pod, "no decrease: "+string(r), func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Constraints != nil && pa.Status.Constraints.NoDecrease == string(r)
	})
}

// onlyIsLowered asserts that of two pods with the same request, declared limit and load, one was
// lowered below the declared limit and the other, which a constraint guards, was not.
func (p *platform) onlyIsLowered(t *testing.T, namespace string, declared cpu.Milli, lowered, guarded string) {
	t.Helper()
	low := p.loweredBelow(t, namespace, declared)
	if len(low[lowered]) == 0 || len(low[guarded]) > 0 {
		t.Errorf("lowered below the declared limit of %v: %v; want %s alone", declared, low, lowered)
	}
}

// event waits until an event with the reason is about the pod.
func (s *suite) event(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	wait(t, 30*time.Second, fmt.Sprintf("an event %s of %s", reason, pod.Name), func() (bool, string) {
		var list corev1.EventList
		if err := s.List(t.Context(), &list, client.InNamespace(pod.Namespace)); err != nil {
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

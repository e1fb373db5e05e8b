package e2e

import (
	"bytes"
	"fmt"
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
// none is new in its step; but for the fleet, whose trial is to begin in its step.
func TestPlatform(t *testing.T) {
	p := &platform{}
	p.suite = start(t, func(*suite) { p.startAddons(t) })
	defer func() {
		p.addons.Wait()
		uninstall(t)
	}()
	for _, ns := range []string{shapes, quotas, contended, scaling, vpas, fleet} {
		p.namespace(t, ns, "enforce")
	}
	p.openShapes(t)
	p.openQuota(t)
	p.openContended(t)
	p.openScaling(t)
	p.openVPAs(t)
	p.addons.Wait() // a build would use the CPU that raises need
	for _, step := range []struct {
		name string
		run  func(*platform, *testing.T)
	}{
		{"EveryKindOfContainer", (*platform).everyKindOfContainer},
		{"VPAIsAddedLater", (*platform).vpaIsAddedLater},
		{"QuotaIsShared", (*platform).quotaIsShared},
		{"OnlyTheCanaryIsHarmed", (*platform).onlyTheCanaryIsHarmed},
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

// startAddons starts metrics-server and the VPA while the pods of the steps start. The first time that builds them.
func (p *platform) startAddons(t *testing.T) {
	ctx := t.Context()
	p.addons.Go(func() {
		for _, name := range []string{"metrics-server", "vpa"} {
			if out, err := cluster(ctx, "addon", "up", name, "--interval=10s").CombinedOutput(); err != nil {
				p.failed += fmt.Sprintf("%s: %v: %s", name, err, bytes.TrimSpace(out))
			}
		}
	})
}

func (p *platform) needAddons(t *testing.T) {
	t.Helper()
	if p.failed != "" {
		t.Fatalf("metrics-server or the VPA does not run: %s", p.failed)
	}
}

// hasNoDecrease waits until the constraints of the pod forbid a decrease for this reason.
func (p *platform) hasNoDecrease(t *testing.T, pod *corev1.Pod, r reasons.Reason) *v1alpha1.Constraints {
	t.Helper()
	return p.waitConstraints(t, time.Minute, pod, "no decrease: "+string(r), func(c *v1alpha1.Constraints) bool {
		return c.NoDecrease == string(r)
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

// event waits until an event with the reason and a message is about the pod.
func (s *suite) event(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	about := client.MatchingFields{"reason": reason, "involvedObject.uid": string(pod.UID)}
	wait(t, 30*time.Second, fmt.Sprintf("an event %s of %s", reason, pod.Name), func() (bool, string) {
		var list corev1.EventList
		err := s.List(t.Context(), &list, client.InNamespace(pod.Namespace), about)
		return len(list.Items) > 0 && list.Items[0].Message != "", orError(err, "%d without a message", len(list.Items))
	})
}

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestExcludedContainers: what the plugin says of containers that the owner of a pod excluded, and of a name that is
// wrong, in testdata/excluded.txt.
func TestExcludedContainers(t *testing.T) {
	pod := owned("Deployment", "mesh", "mesh-abc-1", apiserver.Container("app", "100m", "500m"), apiserver.Container("istio-proxy", "50m", "200m"))
	pod.Namespace = "shop"
	pod.Annotations = map[string]string{kube.ExcludeContainersKey: "istio-proxy,istio-prox"}
	pa := allocated(pod, both(decided(900, "app", v1alpha1.Decision{
		Demand: 700, Usage: 498, Budget: 150, PriorityPercent: 100, Floor: 310, Ceiling: 4200,
		BoundBy: v1alpha1.BoundByNothing, ObservedAt: *ago(3 * time.Second),
	}), applied(reasons.Settled), declared("app", 500, time.Hour)))
	pa.Status.DeclaredLimits = kube.Limits(pod)
	c := newCluster(t, append(shop(), pod, pa)...)
	doctor, _, _ := c.run(t, "doctor")
	explain, _, err := c.run(t, "explain", "mesh-abc-1", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(doctor) {
		if strings.Contains(line, kube.ExcludeContainersKey) || strings.Contains(line, "excluded") {
			kept = append(kept, line)
		}
	}
	golden(t, "excluded", strings.Join(kept, "")+"\n"+explain)
}

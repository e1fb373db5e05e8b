package runner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestReplicaOf: the budget that counts is the one without a factor.
func TestReplicaOf(t *testing.T) {
	pod := apiserver.Pod("shop", "web-1", apiserver.Container("app", "200m", "500m"))
	pod.Spec.NodeName, pod.Spec.NodeSelector = "n1", map[string]string{corev1.LabelHostname: "n1"}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
	pa := allocation.New(pod)
	pa.Spec.Decision = &v1alpha1.Decision{
		Budget: 320, CoordinationPercent: ptr.To(int32(160)), Price: 0.250, Demand: 700, Floor: 210, Ceiling: 4000,
	}
	r := replicaOf(pod, pa, false)
	if r.BaseBudget != 200 || r.Demand != 700 || r.Node != "n1" || r.Workload != "Pod/web-1" ||
		!r.TopologySpread || !r.FixedToNode || r.UpToDate {
		t.Errorf("replica %+v", r)
	}
}

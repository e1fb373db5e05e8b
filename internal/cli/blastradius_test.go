package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestBlastRadiusIsShown: what doctor and explain say of bounds, and of a workload whose canary stopped it, in
// testdata/blastradius.txt.
func TestBlastRadiusIsShown(t *testing.T) {
	objects := shop()
	edit(t, objects, "shop", func(n *corev1.Namespace) {
		n.Annotations = map[string]string{
			kube.MaxFactorKey: "3", kube.MinFactorKey: "half", kube.CanaryKey: "20", kube.NoChangeKey: "Mon-Fri 09:00-18:00 Europe/Berlin; Sunday",
		}
	})
	settings := map[string]string{
		"mode": "recommend", kube.CanaryFlag: "50", kube.MaxFactorFlag: "4", kube.MinFactorFlag: "0", kube.NoChangeFlag: "Sat,Sun 00:00-24:00",
	}
	data, err := kube.NewSettings("test", settings).Data()
	if err != nil {
		t.Fatal(err)
	}
	edit(t, objects, kube.SettingsName, func(cm *corev1.ConfigMap) { cm.Data = data })
	pod := owned("Deployment", "stopped", "stopped-abc-1", apiserver.Container("app", "100m", "500m"))
	pod.Namespace = "shop"
	opted := owned("Deployment", "stopped", "stopped-abc-2", apiserver.Container("app", "100m", "500m"))
	opted.Namespace, opted.Labels[kube.ManagedKey] = "shop", "false"
	objects = append(objects, pod, opted, allocated(pod, both(decided(500, "app", v1alpha1.Decision{
		Demand: 1100, Usage: 498, ThrottledPercent: 90, Budget: 100, PriorityPercent: 100, Price: 0, Floor: 500, Ceiling: 1500,
		BoundBy: v1alpha1.BoundByCeiling, ObservedAt: *ago(3 * time.Second),
	}), declared("app", 500, time.Hour), constrained(v1alpha1.Constraints{
		Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(500), Ceiling: milli(1500)}},
		FloorBy:    "Namespace/shop", CeilingBy: "Namespace/shop",
	}), func(pa *v1alpha1.PodAllocation) {
		pa.Status.Phase, pa.Status.Reason = v1alpha1.PhaseRestored, string(reasons.CanaryStopped)
		pa.Status.Message = reasons.CanaryStopped.Sentence()
	})))
	switched := &corev1.ConfigMap{Data: map[string]string{
		kube.HarmHoldKey: "3 workloads were harmed within 30m0s: shop/Deployment/stopped, a/Deployment/b, a/Deployment/c",
	}}
	switched.Namespace, switched.Name = kube.SystemNamespace, kube.SwitchName
	c := newCluster(t, append(objects, switched)...)
	doctor, _, _ := c.run(t, "doctor")
	explain, _, err := c.run(t, "explain", "stopped-abc-1", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	optedOut, _, err := c.run(t, "explain", "stopped-abc-2", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "blastradius", strings.Join([]string{doctor, explain, optedOut}, "\n"))
}

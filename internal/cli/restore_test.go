package cli

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestPlanRestore: a restore changes exactly the containers that differ from their declared limit
// and whose limit MBCAS set.
func TestPlanRestore(t *testing.T) {
	creator := metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{}}}`)}
	wrote := func(manager, container string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(
			`{"f:spec":{"f:containers":{"k:{\"name\":\"` + container + `\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`)}
	}
	both := []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 1500}, {Name: "proxy", CPULimit: 80}}
	app, proxy := actuator.Change{Container: "app", From: 500, To: 1500}, actuator.Change{Container: "proxy", From: 50, To: 80}
	for name, c := range map[string]struct {
		declared []v1alpha1.ContainerLimit
		writers  []metav1.ManagedFieldsEntry
		changes  []actuator.Change
		why      string // part of
		failed   bool
		external string
		requests string // of app
		down     string // a container that does not run
	}{
		"one differs":           {declared: both[:1], changes: []actuator.Change{app}},
		"the writer is unknown": {declared: both, changes: []actuator.Change{app, proxy}},
		"another client wrote one": {
			declared: both, writers: []metav1.ManagedFieldsEntry{creator, wrote("kubectl", "app"), wrote(kube.FieldManager, "proxy")},
			changes: []actuator.Change{proxy}, external: "left as it is: another client set app=500m",
		},
		"another client wrote both": {
			declared: both, writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.PluginFieldManager, "app"), wrote("kubectl", "proxy")},
			why: "already", external: "left as it is: another client set app=500m, proxy=50m",
		},
		"the request was raised above": {
			declared: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 300}, {Name: "proxy", CPULimit: 50}}, requests: "500m",
			why: "stays at app=500m, proxy=50m: its CPU request was raised",
		},
		"one does not run": {
			declared: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 300}, {Name: "proxy", CPULimit: 70}}, down: "proxy",
			writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.FieldManager, "app"), wrote(kube.FieldManager, "proxy")},
			changes: []actuator.Change{{Container: "app", From: 500, To: 300}}, why: "container proxy does not run", failed: true,
		},
		"no record":                     {why: "never changed"},
		"no record of what MBCAS wrote": {writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.FieldManager, "app")}, why: "lost", failed: true},
	} {
		pod := apiserver.RunningPod("shop", "web", apiserver.Container("app", cmp.Or(c.requests, "200m"), "500m"), apiserver.Container("proxy", "10m", "50m"))
		pod.ManagedFields = c.writers
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; s.Name == c.down {
				s.State = corev1.ContainerState{}
			}
		}
		p := planRestore(pod, c.declared, "")
		var changes []actuator.Change
		if p.move != nil {
			changes = p.move.Changes
		}
		if !slices.Equal(changes, c.changes) || !strings.Contains(p.why, c.why) || p.failed != c.failed || p.external != c.external {
			t.Errorf("%s: %+v, changes %v; want %+v", name, p, changes, c)
		}
	}
}

// TestResizedAgain: restore says after which hold-off of the installation MBCAS resizes a pod
// again, and prints no figure if the settings are unknown.
func TestResizedAgain(t *testing.T) {
	rows := []snapshot.Row{{Namespace: "shop", Pod: "web", Managed: true, Mode: kube.ModeEnforce}, {Namespace: "lab", Pod: "other"}}
	for want, settings := range map[string]kube.Settings{
		"MBCAS resizes 1 pod again after 25m.":                                        {kube.ExternalChangeHoldOffFlag: "25m0s"},
		"MBCAS resizes 1 pod again after the controller's --external-change-holdoff.": nil,
	} {
		var b strings.Builder
		writeResizedAgain(&b, rows, settings)
		if !strings.Contains(b.String(), want) || !strings.Contains(b.String(), "kubectl mbcas mode shop restore") || strings.Contains(b.String(), "mode lab") {
			t.Errorf("printed %q, want %q", b.String(), want)
		}
	}
}

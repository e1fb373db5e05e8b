package cli

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestBack: the way back changes exactly the containers that are not as declared, and that nobody else has set.
func TestBack(t *testing.T) {
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
		problem  bool
		kept     string
	}{
		"one is not as declared": {declared: both[:1], changes: []actuator.Change{app}},
		"who wrote is not known": {declared: both, changes: []actuator.Change{app, proxy}},
		"both are ours": {
			declared: both, writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.FieldManager, "app"), wrote(kube.FieldManager, "proxy")},
			changes: []actuator.Change{app, proxy},
		},
		"the owner changed one": {
			declared: both, writers: []metav1.ManagedFieldsEntry{creator, wrote("kubectl", "app"), wrote(kube.FieldManager, "proxy")},
			changes: []actuator.Change{proxy}, kept: "left as it is: another writer set app=500m",
		},
		"the owner changed both": {
			declared: both, writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.PluginFieldManager, "app"), wrote("kubectl", "proxy")},
			why: "already", kept: "left as it is: another writer set app=500m, proxy=50m",
		},
		"no record":                 {why: "never changed"},
		"no record of what is ours": {writers: []metav1.ManagedFieldsEntry{creator, wrote(kube.FieldManager, "app")}, why: "lost", problem: true},
	} {
		pod := apiserver.RunningPod("shop", "web", apiserver.Container("app", "200m", "500m"), apiserver.Container("proxy", "10m", "50m"))
		pod.ManagedFields = c.writers
		home := back(pod, c.declared)
		var changes []actuator.Change
		if home.move != nil {
			changes = home.move.Changes
		}
		if !slices.Equal(changes, c.changes) || !strings.Contains(home.why, c.why) || home.problem != c.problem || home.kept != c.kept {
			t.Errorf("%s: %+v, changes %v; want %+v", name, home, changes, c)
		}
	}
}

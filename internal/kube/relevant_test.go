package kube

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRelevant: a change of a pod that decisions depend on leads to a look at its node, and one that only kubelets and
// other managers make for themselves does not.
func TestRelevant(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(at.Add(time.Minute))
	pod := func() *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: "u", Generation: 3, ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: FieldManager, Subresource: "resize", Time: &at}},
		}}
		p.Spec.NodeName = "n1"
		p.Spec.Containers = []corev1.Container{{Name: "app"}}
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, ObservedGeneration: 3, PodIP: "10.0.0.1", HostIP: "10.1.0.1",
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at, LastProbeTime: at},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "web:1", ContainerID: "c1", Ready: true}},
		}
		return p
	}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	for name, c := range map[string]struct {
		relevant bool
		change   func(*corev1.Pod)
	}{
		"another version":          {false, func(p *corev1.Pod) { p.ResourceVersion = "8" }},
		"an address":               {false, func(p *corev1.Pod) { p.Status.PodIP, p.Status.HostIP = "10.0.0.2", "10.1.0.2" }},
		"the id of an image":       {false, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ImageID = "sha256:1" }},
		"a probe":                  {false, func(p *corev1.Pod) { p.Status.Conditions[0].LastProbeTime = later }},
		"a condition of others":    {false, func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }},
		"the time of a write":      {false, func(p *corev1.Pod) { p.ManagedFields[0].Time = &later }},
		"not Ready":                {true, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }},
		"Ready since another time": {true, func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = later }},
		"a resize is pending":      {true, func(p *corev1.Pod) { p.Status.Conditions[1].Type = corev1.PodResizePending }},
		"an eviction":              {true, func(p *corev1.Pod) { p.Status.Conditions[1].Type = corev1.DisruptionTarget }},
		"a restart":                {true, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }},
		"a container has started":  {true, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Started = new(true) }},
		"a limit in force": {true, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Limits: limits}
		}},
		"the generation is observed": {true, func(p *corev1.Pod) { p.Status.ObservedGeneration = 4 }},
		"a limit":                    {true, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = limits }},
		"another writer":             {true, func(p *corev1.Pod) { p.ManagedFields[0].Manager = "kubectl-edit" }},
		"a label":                    {true, func(p *corev1.Pod) { p.Labels[ManagedKey] = "false" }},
		"an annotation":              {true, func(p *corev1.Pod) { p.Annotations = map[string]string{MaxCPUKey: "2"} }},
		"it is deleted":              {true, func(p *corev1.Pod) { p.DeletionTimestamp = &at }},
		"it has ended":               {true, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"another one of its name":    {true, func(p *corev1.Pod) { p.UID = "v" }},
	} {
		before, after := pod(), pod()
		c.change(after)
		if got := !reflect.DeepEqual(Relevant(before), Relevant(after)); got != c.relevant {
			t.Errorf("%s: relevant %v, want %v", name, got, c.relevant)
		}
	}
	if p := pod(); !reflect.DeepEqual(p, pod()) || p.ManagedFields[0].Time == nil {
		t.Error("the pod of the cache was changed")
	}
}

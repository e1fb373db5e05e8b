package kube

import (
	"errors"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Target is the workload that an autoscaler points at, in its own namespace.
type Target struct{ APIVersion, Kind, Name string }

// HPATarget is what an HPA scales.
func HPATarget(h *autoscalingv2.HorizontalPodAutoscaler) Target {
	ref := h.Spec.ScaleTargetRef
	return Target{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
}

// GroupKind is the kind of the target; an API version that cannot be read has no group.
func (t Target) GroupKind() schema.GroupKind {
	gv, _ := schema.ParseGroupVersion(t.APIVersion)
	return schema.GroupKind{Group: gv.Group, Kind: t.Kind}
}

func (t Target) String() string { return t.Kind + "/" + t.Name }

// builtIn are the kinds whose pods are found by their owner references, each with whether it has a
// scale subresource.
var builtIn = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "ReplicaSet"}: true,
	{Group: "apps", Kind: "StatefulSet"}: true, {Group: "apps", Kind: "DaemonSet"}: false,
	{Group: "batch", Kind: "Job"}: false, {Group: "batch", Kind: "CronJob"}: false,
	{Kind: "ReplicationController"}: true,
}

// KnownByOwner says whether the pods of such a target are found by their owner references. Pods of
// any other target are found by the label selector of its scale subresource, as the HPA controller
// does.
func (t Target) KnownByOwner() bool {
	_, known := builtIn[t.GroupKind()]
	return known
}

// HasScale says whether a target of a built-in kind has a scale subresource, which holds the
// selector of its pods.
func (t Target) HasScale() bool { return builtIn[t.GroupKind()] }

// Owns says whether the pod, of the target's namespace, belongs to it. The selector is needed for a
// target that is not KnownByOwner; with nil no pod belongs to such a target.
func (t Target) Owns(pod *corev1.Pod, selector labels.Selector) bool {
	if !t.KnownByOwner() {
		return selector != nil && selector.Matches(labels.Set(pod.Labels))
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	switch t.Kind {
	case "Deployment":
		return owner.Kind == "ReplicaSet" && deploymentOf(pod, owner.Name) == t.Name
	case "CronJob":
		return owner.Kind == "Job" && cronJobOf(owner.Name) == t.Name
	}
	gv, _ := schema.ParseGroupVersion(owner.APIVersion)
	return owner.Kind == t.Kind && owner.Name == t.Name && gv.Group == t.GroupKind().Group
}

// deploymentOf is the Deployment of a ReplicaSet's pod: the ReplicaSet is called by its name and
// the hash of the pod template, which is also a label of the pod (pkg/controller/deployment/sync.go
// of Kubernetes). "" where it has none.
func deploymentOf(pod *corev1.Pod, replicaSet string) string {
	hash := pod.Labels["pod-template-hash"]
	name, ok := strings.CutSuffix(replicaSet, "-"+hash)
	if hash == "" || !ok {
		return ""
	}
	return name
}

// cronJobOf is the CronJob of a Job: the Job is called by its name and the minute of its schedule
// (pkg/controller/cronjob/cronjob_controllerv2.go of Kubernetes). "" where it has none.
func cronJobOf(job string) string {
	i := strings.LastIndexByte(job, '-')
	if i < 1 || strings.Trim(job[i+1:], "0123456789") != "" {
		return ""
	}
	return job[:i]
}

// Workload is what a pod is a replica of, as Kind/name: its Deployment where it has one, else
// whatever controls it. A pod that nothing controls is a workload of its own.
func Workload(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "Pod/" + pod.Name
	}
	if d := deploymentOf(pod, owner.Name); owner.Kind == "ReplicaSet" && d != "" {
		return "Deployment/" + d
	}
	return owner.Kind + "/" + owner.Name
}

// Origin is where a pod comes from over time, as Kind/name: as Workload, but of a Job that a CronJob made that CronJob.
func Origin(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		if name := cronJobOf(owner.Name); name != "" {
			return "CronJob/" + name
		}
	}
	return Workload(pod)
}

// ErrUnreadable marks a target or a selector that is malformed, so that another attempt fails, too.
var ErrUnreadable = errors.New("it cannot be read")

// ScaleOf is the object whose scale subresource is to be read, and an empty scale to read it into.
func ScaleOf(namespace string, t Target) (object, scale *unstructured.Unstructured, err error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil || gv.Version == "" {
		return nil, nil, fmt.Errorf("apiVersion %q: %w", t.APIVersion, ErrUnreadable)
	}
	object, scale = &unstructured.Unstructured{}, &unstructured.Unstructured{}
	object.SetGroupVersionKind(gv.WithKind(t.Kind))
	object.SetNamespace(namespace)
	object.SetName(t.Name)
	scale.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	return object, scale, nil
}

// SelectorOf is the pod selector of a scale. A scale without one selects no pods: an empty selector
// would select all.
func SelectorOf(scale *unstructured.Unstructured) (labels.Selector, error) {
	text, _, err := unstructured.NestedString(scale.Object, "status", "selector")
	if err != nil {
		return nil, fmt.Errorf("selector: %w: %w", ErrUnreadable, err)
	}
	if text == "" {
		return labels.Nothing(), nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("selector: %w: %w", ErrUnreadable, err)
	}
	return selector, nil
}

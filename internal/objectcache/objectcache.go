// Package objectcache makes the objects in the caches of the controller small. The caches hold every
// pod of the cluster and its PodAllocation. An object keeps what decisions read (package kube trims
// it), and shares with others what the pods of a workload have in common: labels, containers with
// their resources, owners. Nothing changes an object of a cache.
//
// What it promises, each a test of the same name:
//   - SharingChangesNothing: an object reads the same whether it was shared or not.
//   - AtMost6KB: a pod of a production cluster and its PodAllocation take at most 6 KB.
package objectcache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// NewTransform is a transformation of objects on their way into the caches of one program. A
// tombstone stays as it is: the object in it was transformed when it came.
func NewTransform() func(object any) (any, error) {
	s := &shared{}
	return func(object any) (any, error) {
		object, err := kube.Trim(object)
		switch o := object.(type) {
		case *corev1.Pod:
			s.sharePod(o)
		case *v1alpha1.PodAllocation:
			s.shareAllocation(o)
		}
		return object, err
	}
}

// shared keeps one copy of what many objects of a cache have in common. A value is found by a text
// that says all of it. Several caches use it at the same time.
type shared struct {
	texts      table[string]
	labels     table[map[string]string]
	resources  table[corev1.ResourceList]
	containers table[[]corev1.Container]
	owners     table[[]metav1.OwnerReference]
	toleration table[[]corev1.Toleration]
	managers   table[[]metav1.ManagedFieldsEntry]
}

// table is values by the text that says all of them.
type table[T any] struct {
	mu     sync.Mutex
	values map[string]T
}

// maxShared bounds a table. One that is full begins anew: objects that hold its values keep them.
const maxShared = 10_000

// get is the shared value of a text; the first one becomes it.
func (t *table[T]) get(text string, value T) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.values[text]; ok {
		return v
	}
	if t.values == nil || len(t.values) >= maxShared {
		t.values = map[string]T{}
	}
	t.values[text] = value
	return value
}

// text shares a string that is not unique to an object.
func (s *shared) text(v *string) {
	if *v != "" {
		*v = s.texts.get(*v, *v)
	}
}

func (s *shared) sharePod(pod *corev1.Pod) {
	s.text(&pod.Namespace)
	s.text(&pod.Spec.NodeName)
	s.text(&pod.Spec.PriorityClassName)
	s.text((*string)(&pod.Status.Phase))
	s.text((*string)(&pod.Status.QOSClass))
	pod.Labels = s.shareLabels(pod.Labels)
	if len(pod.OwnerReferences) > 0 {
		o := pod.OwnerReferences[0] // TrimPod leaves one
		pod.OwnerReferences = s.owners.get(fmt.Sprintf("%q %q %q %q", o.APIVersion, o.Kind, o.Name, o.UID), pod.OwnerReferences)
	}
	if len(pod.Spec.Tolerations) > 0 {
		pod.Spec.Tolerations = s.toleration.get(tolerationsText(pod.Spec.Tolerations), pod.Spec.Tolerations)
	}
	pod.Spec.Containers = s.shareContainers(pod.Spec.Containers)
	pod.Spec.InitContainers = s.shareContainers(pod.Spec.InitContainers)
	pod.ManagedFields = s.shareManagers(pod.ManagedFields)
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		s.text((*string)(&c.Type))
		s.text((*string)(&c.Status))
		s.text(&c.Reason)
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			s.text(&list[i].Name)
			if r := list[i].Resources; r != nil {
				r.Limits = s.shareResources(r.Limits)
			}
		}
	}
}

func (s *shared) shareAllocation(pa *v1alpha1.PodAllocation) {
	s.text(&pa.Kind)
	s.text(&pa.APIVersion)
	s.text(&pa.Namespace)
	s.text(&pa.Spec.NodeName)
	status := &pa.Status
	for _, list := range [][]v1alpha1.ContainerLimit{
		pa.Spec.Containers, status.DeclaredLimits, status.AppliedLimits, status.Rollback.Limits,
	} {
		for i := range list {
			s.text(&list[i].Name)
		}
	}
	if d := pa.Spec.Decision; d != nil {
		s.text((*string)(&d.BoundBy))
	}
	s.text((*string)(&status.Phase))
	s.text(&status.Reason)
	s.text(&status.Message)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		s.text(&c.Type)
		s.text((*string)(&c.Status))
		s.text(&c.Reason)
		s.text(&c.Message)
	}
	status.Conditions = slices.Clip(status.Conditions)
}

func (s *shared) shareLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return labels
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&text, "%q=%q ", key, labels[key])
	}
	return s.labels.get(text.String(), labels)
}

func (s *shared) shareResources(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	return s.resources.get(resourcesText(list), list)
}

// shareContainers shares trimmed containers, but not those with claims or restart rules.
func (s *shared) shareContainers(list []corev1.Container) []corev1.Container {
	if len(list) == 0 {
		return list
	}
	var text strings.Builder
	for i := range list {
		c := &list[i]
		if len(c.Resources.Claims)+len(c.RestartPolicyRules) > 0 {
			return list
		}
		restart := ""
		if c.RestartPolicy != nil {
			restart = string(*c.RestartPolicy)
		}
		fmt.Fprintf(&text, "%q %s / %s %q %q\n",
			c.Name, resourcesText(c.Resources.Limits), resourcesText(c.Resources.Requests), c.ResizePolicy, restart)
		c.Resources.Limits = s.shareResources(c.Resources.Limits)
		c.Resources.Requests = s.shareResources(c.Resources.Requests)
	}
	return s.containers.get(text.String(), list)
}

// shareManagers shares trimmed managedFields.
func (s *shared) shareManagers(list []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if len(list) == 0 {
		return list
	}
	var text strings.Builder
	for _, m := range list {
		fmt.Fprintf(&text, "%q %q %q %q", m.Manager, m.Operation, m.Subresource, m.APIVersion)
		if m.Time != nil {
			fmt.Fprintf(&text, " %d", m.Time.Unix())
		}
		if m.FieldsV1 != nil {
			fmt.Fprintf(&text, " %s", m.FieldsV1.GetRawBytes())
		}
		text.WriteByte('\n')
	}
	return s.managers.get(text.String(), list)
}

// resourcesText says all of a list of resources: equal amounts read the same.
func resourcesText(list corev1.ResourceList) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		fmt.Fprintf(&text, "%q=%s ", name, q.String())
	}
	return text.String()
}

func tolerationsText(list []corev1.Toleration) string {
	var text strings.Builder
	for _, t := range list {
		seconds := int64(-1)
		if t.TolerationSeconds != nil {
			seconds = *t.TolerationSeconds
		}
		fmt.Fprintf(&text, "%q %q %q %q %v %d\n", t.Key, t.Operator, t.Value, t.Effect, t.TolerationSeconds != nil, seconds)
	}
	return text.String()
}

package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FixedToNode says whether the spec of the pod allows one node only: by its node selector, or by
// the one term of its required node affinity, as in pods of a DaemonSet.
func FixedToNode(pod *corev1.Pod) bool {
	if _, named := pod.Spec.NodeSelector[corev1.LabelHostname]; named {
		return true
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	one := func(key string) func(corev1.NodeSelectorRequirement) bool {
		return func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == key && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		}
	}
	return len(terms) == 1 &&
		(slices.ContainsFunc(terms[0].MatchFields, one(metav1.ObjectNameField)) || slices.ContainsFunc(terms[0].MatchExpressions, one(corev1.LabelHostname)))
}

// TopologySpread says whether the pod's replicas are spread over the cluster, and so are meant to
// serve evenly.
func TopologySpread(pod *corev1.Pod) bool { return len(pod.Spec.TopologySpreadConstraints) > 0 }

// CrossesNamespaces says whether an affinity term of the pod selects pods of other namespaces.
func CrossesNamespaces(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// TrimAffinity keeps of an affinity what FixedToNode and CrossesNamespaces read.
func TrimAffinity(a *corev1.Affinity) *corev1.Affinity {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: a}}
	kept := &corev1.Affinity{}
	if FixedToNode(pod) {
		kept.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	if CrossesNamespaces(pod) {
		term := corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
		kept.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
	if kept.NodeAffinity == nil && kept.PodAffinity == nil {
		return nil
	}
	return kept
}

package constraints

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// covers says whether the budget is about the pod, of its namespace. One without a selector is about none.
func selectsPod(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// exhausted says whether no disruption is allowed, as far as is known: a budget that nobody has looked at yet allows none.
func allowsNoDisruption(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed <= 0
}

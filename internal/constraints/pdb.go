package constraints

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selectsPod says whether the budget selects the pod, which is of its namespace. A budget without a
// selector selects none.
func selectsPod(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// allowsNoDisruption says whether the budget allows no disruption. Before the disruption controller
// has counted, it allows none.
func allowsNoDisruption(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed <= 0
}

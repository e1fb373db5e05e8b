package constraints

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/internal/kube"
)

// PDB is a PodDisruptionBudget that allows no disruption of the pods that it selects.
type PDB struct {
	Name     string
	selector labels.Selector
}

// steadyFor is how long a budget must have allowed a disruption until its pods may be decreased. During
// a rollout it changes with each pod. Shorter decreases pods sooner; longer spares writes.
const steadyFor = 5 * time.Minute

// PDBsOf are those of the budgets that allow no disruption, or did less than steadyFor ago, and when
// that may change though no budget does; zero: it will not.
func PDBsOf(budgets []policyv1.PodDisruptionBudget, now time.Time) (list []PDB, changes time.Time) {
	for i := range budgets {
		b := &budgets[i]
		if b.Annotations[kube.AllowDecreaseKey] == "true" {
			continue
		}
		if b.Status.DisruptionsAllowed > 0 {
			steady := allowsSince(b).Add(steadyFor)
			if !now.Before(steady) {
				continue
			}
			if changes.IsZero() || steady.Before(changes) {
				changes = steady
			}
		} // before the disruption controller has counted, it allows none
		// A budget without a selector selects no pod, and one with a wrong selector cannot be created.
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			list = append(list, PDB{b.Name, s})
		}
	}
	return list, changes
}

// allowsSince is when a budget that allows a disruption began to, as its controller says; zero: unknown.
func allowsSince(b *policyv1.PodDisruptionBudget) time.Time {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// selects says whether the budget selects the pod, which is of its namespace.
func (p PDB) selects(pod *corev1.Pod) bool { return p.selector.Matches(labels.Set(pod.Labels)) }

package constraints

import (
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// budgets are those that allow no disruption.
func budgets(list ...policyv1.PodDisruptionBudget) []PDB {
	binding, _ := PDBsOf(list, time.Now())
	return binding
}

// TestPDBsOf: a budget that allows a disruption allows decreases once it has for five minutes, or where
// its controller does not say since when.
func TestPDBsOf(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		allowed int32
		since   time.Duration // of its condition; 0: there is none
		status  metav1.ConditionStatus
		binds   bool
		changes time.Duration // from now; 0: it does not by itself
	}{
		"none":                  {0, time.Hour, metav1.ConditionFalse, true, 0},
		"not counted":           {0, 0, "", true, 0},
		"just now":              {1, time.Second, metav1.ConditionTrue, true, 299 * time.Second},
		"for long":              {1, 5 * time.Minute, metav1.ConditionTrue, false, 0},
		"since an unknown time": {1, 0, "", false, 0},
		"the condition is late": {1, time.Second, metav1.ConditionFalse, false, 0},
		"a clock that is ahead": {1, -time.Minute, metav1.ConditionTrue, true, 6 * time.Minute},
	} {
		b := policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: c.allowed}}
		b.Spec.Selector = &metav1.LabelSelector{}
		if c.since != 0 {
			b.Status.Conditions = []metav1.Condition{{
				Type: policyv1.DisruptionAllowedCondition, Status: c.status, LastTransitionTime: metav1.NewTime(now.Add(-c.since)),
			}}
		}
		want := time.Time{}
		if c.changes != 0 {
			want = now.Add(c.changes)
		}
		list, changes := PDBsOf([]policyv1.PodDisruptionBudget{b}, now)
		if len(list) == 1 != c.binds || !changes.Equal(want) {
			t.Errorf("%s: %d budgets bind until %v, want %v until %v", name, len(list), changes, c.binds, want)
		}
	}
}

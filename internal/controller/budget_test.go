package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestAFlappingBudget: a PodDisruptionBudget that allows a disruption and then none, again and again,
// costs one write for all pods of a node when it first allows none, and one when it has allowed one for
// five minutes.
func TestAFlappingBudget(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "web"}}
		least := intstr.FromInt32(1)
		pdb.Spec.MinAvailable, pdb.Spec.Selector = &least, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		r.must(r.Client.Create(t.Context(), pdb))
		set := func(allowed int32) {
			t.Helper()
			before := pdb.DeepCopy()
			pdb.Status.DisruptionsAllowed, pdb.Status.ObservedGeneration = allowed, pdb.Generation
			poddisruptionbudget.UpdateDisruptionAllowedCondition(pdb)
			pdb.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(l.ahead))
			r.must(r.Client.Status().Patch(t.Context(), pdb, client.MergeFrom(before)))
		}
		set(1)
		l.ahead += 10 * time.Minute
		r.hearAt(time.Now().Add(l.ahead))
		const pods = 5
		var last *corev1.Pod
		for i := range pods {
			last = r.ownedPod("web", fmt.Sprint("web-", i), "100m", "500m")
		}
		l.becomes(last, "recorded", recorded)
		l.look(last)
		constrained := func(want string) {
			t.Helper()
			got := ""
			if c := r.toldConstraints(last); c != nil {
				got = c.NoDecrease
			}
			if got != want {
				t.Errorf("no decrease because of %q, want %q", got, want)
			}
		}
		constrained("")
		before := len(l.writes())
		for range 20 {
			for _, allowed := range []int32{0, 1} {
				l.pass(10 * time.Second)
				set(allowed)
				l.look(last)
				constrained(string(reasons.NoDisruptionAllowed))
			}
		}
		result, err := l.once()
		r.must(err)
		if after := result.RequeueAfter; after > 5*time.Minute {
			t.Errorf("the next look is in %v, when the budget could have allowed disruptions for five minutes", after)
		}
		l.pass(5*time.Minute + time.Second)
		l.look(last)
		constrained("")
		if w := l.writes()[before:]; len(w) != 2 {
			t.Errorf("%d writes, want two for %d pods: %v", len(w), pods, w)
		}
	})
}

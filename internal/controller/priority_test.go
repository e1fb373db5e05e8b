package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/market"
)

// priorityClass makes a class, and waits until the API server gives its priority to pods.
func (r *rig) priorityClass(name string, value int32, byDefault bool) *schedulingv1.PriorityClass {
	r.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: byDefault}
	r.must(r.Client.Create(r.Context(), class))
	r.Cleanup(func() {
		if err := r.Client.Delete(context.Background(), class); client.IgnoreNotFound(err) != nil {
			r.Error(err)
		}
	})
	r.until("class "+name+" is known", func() (bool, any) {
		pod := apiserver.Pod(r.namespace, "probe", apiserver.Container("app", "200m", "500m"))
		if pod.Spec.PriorityClassName = name; byDefault {
			pod.Spec.PriorityClassName = ""
		}
		err := r.Client.Create(r.Context(), pod, client.DryRunAll)
		return err == nil && pod.Spec.Priority != nil && *pod.Spec.Priority == value, err
	})
	return class
}

// TestPriorityIsThatOfThePod: what counts is the priority that the API server gave the pod from its class, or from the global default; a class that changes or
// goes changes no running pod.
func TestPriorityIsThatOfThePod(t *testing.T) {
	r := newRig(t)
	gold := r.priorityClass("gold", 4000, false)
	r.priorityClass("low", -10, false)
	r.priorityClass("usual", 2000, true)
	for class, want := range map[string]int32{"gold": 200, "low": 50, "": 150, "system-cluster-critical": 800} {
		pod := apiserver.Pod(r.namespace, "of-"+class+"-class", apiserver.Container("app", "200m", "500m"))
		pod.Spec.PriorityClassName = class
		bidder := allocation.DemandPod(r.kubelet.Run(t, pod), nil, 4000)
		if bidder.PriorityPercent != want || bidder.Budget != market.Budget(2*want) {
			t.Errorf("class %q: %d %%, budget %v, want %d %% and %d", class, bidder.PriorityPercent, bidder.Budget, want, 2*want)
		}
	}
	r.must(r.Client.Delete(t.Context(), gold))
	pod := &corev1.Pod{}
	r.must(r.Client.Get(t.Context(), types.NamespacedName{Namespace: r.namespace, Name: "of-gold-class"}, pod))
	if got := allocation.DemandPod(pod, nil, 4000).PriorityPercent; got != 200 {
		t.Errorf("%d %% after its class was deleted, want 200", got)
	}
}

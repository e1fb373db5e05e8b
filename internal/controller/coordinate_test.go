package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/market"
)

// TestBudgetMovesToWhereCPUIsDear: of two replicas, the one on the dear node gets a larger budget and the one on the cheap node a smaller
// one, and a pod of another workload hardly another; switched off, or away, it does no harm.
func TestBudgetMovesToWhereCPUIsDear(t *testing.T) {
	r := newRig(t)
	cheap := *r
	cheap.kubelet = r.Kubelet(t, "cheap-node")
	cheap.hear()
	dear, other := r.ownedPod("web", "dear", "200m", "900m"), cheap.ownedPod("web", "cheap", "200m", "900m")
	lone := r.pod("lone", "200m", "900m")
	r.config.CoordinationInterval = 200 * time.Millisecond
	stop := r.start()
	for _, pod := range []*corev1.Pod{dear, other, lone} {
		r.allocation(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 })
	}
	say := func(pod *corev1.Pod, price market.Price, limit, demand int) { // as the agents would, whose markets follow the budget
		t.Helper()
		pa := r.stored(pod)
		before, l := pa.DeepCopy(), cpu.Milli(limit)
		pa.Spec.DesiredCPULimit, pa.Spec.Containers = &l, []v1alpha1.ContainerLimit{app(l)}
		pa.Spec.Decision = &v1alpha1.Decision{
			Demand: milli(demand), Budget: int64(200 * percentOf(pa) / 100), Price: price, Floor: 210, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByPrice, ObservedAt: metav1.NowMicro(),
		}
		if pa.Status.Constraints != nil {
			pa.Spec.Decision.CoordinationPercent = pa.Status.Constraints.CoordinationPercent
		}
		r.must(r.Client.Patch(r.Context(), pa, client.MergeFrom(before)))
	}
	r.until("budget has moved", func() (bool, any) {
		say(dear, 0.500, 400, 2000)
		say(other, 0.150, 1330, 2000)
		say(lone, 0.500, 400, 2000)
		d, o, l := percentOf(r.stored(dear)), percentOf(r.stored(other)), percentOf(r.stored(lone))
		return d >= 120 && o <= 80 && l >= 95 && l <= 115, []int32{d, o, l}
	})

	stop() // it is away: what was said stays, and is taken up again
	before := percentOf(r.stored(dear))
	r.config.CoordinationInterval = time.Hour
	stop = r.start()
	r.publish(lone, "0.000", app(1000))
	r.allocation(lone, "followed again", func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.AppliedCPULimit != nil && *pa.Status.AppliedCPULimit == 1000
	})
	if got := percentOf(r.stored(dear)); got != before {
		t.Errorf("%d %% after the controller has come back, want %d as before", got, before)
	}
	stop()
	r.config.CoordinationInterval = 0
	r.start()
	for _, pod := range []*corev1.Pod{dear, other} {
		r.allocation(pod, "without a factor", func(pa *v1alpha1.PodAllocation) bool { return percentOf(pa) == 100 })
	}
}

// percentOf is what the pod's budget is multiplied by.
func percentOf(pa *v1alpha1.PodAllocation) int32 { return int32(factorOf(pa)) }

// TestASilentNodeKeepsItsFactors: what the coordinator knows of a node whose agent is not heard is too old to act on.
func TestASilentNodeKeepsItsFactors(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.ownedPod("web", "web", "200m", "900m")
	l.settlesAt(pod, 900)
	pa := r.stored(pod)
	before, percent := pa.DeepCopy(), int32(150)
	pa.Status.Constraints = &v1alpha1.Constraints{CoordinationPercent: &percent}
	r.must(r.Client.Status().Patch(r.Context(), pa, client.MergeFrom(before)))
	l.ahead = 2 * time.Minute // nothing was heard for so long
	if nodes, err := l.conductor.rebalance(t.Context()); err != nil || len(nodes) != 0 {
		t.Errorf("changed on %v (%v)", nodes, err)
	}
	if _, err := l.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: r.kubelet.Node}}); err != nil {
		t.Fatal(err)
	}
	if got := percentOf(r.stored(pod)); got != 150 {
		t.Errorf("%d %%, want 150 as before", got)
	}
	if r := replicaOf(pod, r.stored(pod), true); r.Workload != "Deployment/web" || !r.UpToDate || r.Factor != 150 {
		t.Errorf("replica %+v", r)
	}
}

// TestReplicaOf: the budget that counts is the one without a factor.
func TestReplicaOf(t *testing.T) {
	pod := apiserver.Pod("shop", "web-1", apiserver.Container("app", "200m", "500m"))
	pod.Spec.NodeName, pod.Spec.NodeSelector = "n1", map[string]string{corev1.LabelHostname: "n1"}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
	percent := int32(160)
	pa := allocation.New(pod)
	pa.Spec.Decision = &v1alpha1.Decision{Budget: 320, CoordinationPercent: &percent, Price: 0.250, Demand: 700, Floor: 210, Ceiling: 4000}
	r := replicaOf(pod, pa, false)
	if r.BaseBudget != 200 || r.Price != 0.25 || r.Demand != 700 || r.Node != "n1" || r.Workload != "Pod/web-1" || !r.TopologySpread || !r.FixedToNode || r.UpToDate || r.Factor != 100 {
		t.Errorf("replica %+v", r)
	}
}

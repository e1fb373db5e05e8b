package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/coordinator/runner"
	"github.com/mbcas/mbcas/market"
)

// percentOf is what the pod's budget is multiplied by.
func (r *rig) percentOf(pod *corev1.Pod) int32 {
	r.Helper()
	return int32(runner.FactorOf(r.publishedConstraints(pod)))
}

// TestBudgetMovesToHighPrices: of two replicas, the one on the node with a high price gets a larger
// budget and the other a smaller one, and a pod of another workload hardly another; a controller that
// comes back, or is switched off, does no harm.
func TestBudgetMovesToHighPrices(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		low := *r
		low.kubelet = r.Kubelet(t, "low-price-node")
		low.hear()
		atHigh, atLow := r.ownedPod("web", "high", "200m", "900m"), low.ownedPod("web", "low", "200m", "900m")
		lone := r.pod("lone", "200m", "900m")
		r.config.CoordinationInterval = 200 * time.Millisecond
		stop := r.start()
		for _, pod := range []*corev1.Pod{atHigh, atLow, lone} {
			r.allocation(pod, "made", recorded)
		}
		decide := func(pod *corev1.Pod, price market.Price, limit cpu.Milli) { // as the agents would, whose markets follow the budget
			t.Helper()
			d := v1alpha1.Decision{
				Demand: 2000, Budget: int64(200 * r.percentOf(pod) / 100), Price: price, Floor: 210, Ceiling: 4000,
				BoundBy: v1alpha1.BoundByPrice,
			}
			if c := r.publishedConstraints(pod); c != nil {
				d.CoordinationPercent = c.CoordinationPercent
			}
			r.decide(pod, d, app(limit))
		}
		r.until("budget has moved", func() (bool, any) {
			decide(atHigh, 0.500, 400)
			decide(atLow, 0.150, 1330)
			decide(lone, 0.500, 400)
			r.renews(time.Now(), allocation.NodeMarket{Price: 0.5})
			low.renews(time.Now(), allocation.NodeMarket{Price: 0.15})
			d, o, l := r.percentOf(atHigh), r.percentOf(atLow), r.percentOf(lone)
			return d >= 120 && o <= 80 && l >= 95 && l <= 115, []int32{d, o, l}
		})
		stop() // what was decided stays, and is taken up again
		before := r.percentOf(atHigh)
		r.config.CoordinationInterval = time.Hour
		stop = r.start()
		r.at(lone, 1000)
		if got := r.percentOf(atHigh); got != before {
			t.Errorf("%d %% after the controller has come back, want %d as before", got, before)
		}
		stop()
		r.config.CoordinationInterval = 0
		r.start()
		r.until("without a factor", func() (bool, any) { p := r.percentOf(atHigh); return p == 100, p })
	})
}

// TestUnresponsiveNodeKeepsItsFactors: what the coordinator knows of a node whose agent does not renew
// its Lease is too old to act on.
func TestUnresponsiveNodeKeepsItsFactors(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := r.ownedPod("web", "web", "200m", "900m")
		l.settlesAt(pod, 900)
		published := *r.publishedOf(pod)
		published.Constraints = &v1alpha1.Constraints{CoordinationPercent: ptr.To(int32(150))}
		_, err := l.memory.told.Tell(t.Context(), pod.Spec.NodeName, l.nodeUID(), []v1alpha1.NodePod{published})
		r.must(err)
		l.ahead = 2 * time.Minute
		if nodes, err := l.coordinator.Rebalance(t.Context()); err != nil || len(nodes) != 0 {
			t.Errorf("changed on %v (%v)", nodes, err)
		}
		l.look(pod)
		if got := r.percentOf(pod); got != 150 {
			t.Errorf("%d %%, want 150 as before", got)
		}
	})
}

// nodeUID is that of the node.
func (r *rig) nodeUID() types.UID {
	r.Helper()
	var n corev1.Node
	r.must(r.Client.Get(r.Context(), types.NamespacedName{Name: r.kubelet.Node}, &n))
	return n.UID
}

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

// conductor takes the coordinator's turns, and remembers the factors of the last one until they stand in the
// allocations. Where it is away, factors stay as they were last written, within their bounds.
type conductor struct {
	r *Reconciler

	mu      sync.Mutex
	factors map[types.UID]coordinator.Factor // of pods
}

// Start takes a turn in each period until it is told to stop. Only the leader does.
func (c *conductor) Start(ctx context.Context) error {
	if c.r.Config.CoordinationInterval == 0 {
		return nil
	}
	tick := time.NewTicker(c.r.Config.CoordinationInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			nodes, err := c.turn(ctx)
			if err != nil {
				c.r.Log.Error("budgets are not coordinated", "err", err)
			}
			c.r.requeue.nodes(ctx, nodes)
		}
	}
}

// turn takes one turn, and returns the nodes of the pods whose factor has changed.
func (c *conductor) turn(ctx context.Context) ([]string, error) {
	var allocations v1alpha1.PodAllocationList
	if err := c.r.Client.List(ctx, &allocations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PodAllocations: %w", err)
	}
	var pods corev1.PodList
	if err := c.r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	of := make(map[types.UID]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		of[pods.Items[i].UID] = &pods.Items[i]
	}
	prices := newestPrices(allocations.Items)
	var replicas []coordinator.Replica
	var uids []types.UID
	now := c.r.Now()
	for i := range allocations.Items {
		pa := &allocations.Items[i]
		pod := of[pa.Spec.PodRef.UID]
		if pod == nil || kube.Ended(pod) || pa.Spec.Decision == nil {
			continue
		}
		heard := c.r.liveness.age(pa.Spec.NodeName, now) < c.r.Config.FreezeAfter
		replica := replicaOf(pod, pa, heard)
		replica.Price = prices[pa.Spec.NodeName]
		replicas, uids = append(replicas, replica), append(uids, pod.UID)
	}
	factors := make(map[types.UID]coordinator.Factor, len(uids))
	var changed []string
	seen := map[string]bool{}
	for i, f := range c.r.Config.Coordinator.Rebalance(replicas) {
		factors[uids[i]] = f
		if node := replicas[i].Node; f != replicas[i].Factor && !seen[node] {
			seen[node] = true
			changed = append(changed, node)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factors = factors
	return changed, nil
}

// newestPrices is the price that each node told last. A pod's own decision may be older: it is told anew only when it changes.
func newestPrices(allocations []v1alpha1.PodAllocation) map[string]market.Price {
	prices, told := map[string]market.Price{}, map[string]time.Time{}
	for i := range allocations {
		d, node := allocations[i].Spec.Decision, allocations[i].Spec.NodeName
		if d != nil && d.ObservedAt.After(told[node]) {
			prices[node], told[node] = d.Price, d.ObservedAt.Time
		}
	}
	return prices
}

// replicaOf is a managed pod as the coordinator sees it.
func replicaOf(pod *corev1.Pod, pa *v1alpha1.PodAllocation, heard bool) coordinator.Replica {
	d := pa.Spec.Decision
	own := market.Budget(d.Budget)
	if d.CoordinationPercent != nil {
		own = own * 100 / market.Budget(*d.CoordinationPercent)
	}
	return coordinator.Replica{
		Namespace: pod.Namespace, Workload: kube.Workload(pod), Node: pod.Spec.NodeName,
		BaseBudget: own, Price: d.Price, Demand: d.Demand, Floor: d.Floor, Ceiling: d.Ceiling,
		Factor: factorOf(pa), TopologySpread: kube.TopologySpread(pod), FixedToNode: kube.FixedToNode(pod), UpToDate: heard,
	}
}

// factorOf is the factor in force.
func factorOf(pa *v1alpha1.PodAllocation) coordinator.Factor {
	if pa == nil || pa.Status.Constraints == nil || pa.Status.Constraints.CoordinationPercent == nil {
		return coordinator.One
	}
	return coordinator.Factor(*pa.Status.Constraints.CoordinationPercent)
}

// factor is what a pod's budget is multiplied by from now on, for its terms; nil for as it is.
func (c *conductor) factor(pod *corev1.Pod, pa *v1alpha1.PodAllocation) *int32 {
	if c.r.Config.CoordinationInterval == 0 {
		return nil
	}
	c.mu.Lock()
	f, ok := c.factors[pod.UID]
	c.mu.Unlock()
	if !ok {
		f = factorOf(pa)
	}
	if f == coordinator.One {
		return nil
	}
	percent := int32(f)
	return &percent
}

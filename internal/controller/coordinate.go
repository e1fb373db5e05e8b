package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

// coordination rebalances budgets between nodes at each interval, and remembers the factors until
// they are in the PodAllocations. While it does not run, factors stay as they were last written,
// within their bounds.
type coordination struct {
	config   coordinator.Config
	interval time.Duration // between two rounds; 0: never
	pods     client.Reader
	now      func() time.Time
	// fresh says whether the agent of a node renews its Lease.
	fresh func(node string, now time.Time) bool
	// requeue has nodes reconciled whose pods get other factors.
	requeue func(ctx context.Context, nodes []string)
	log     *slog.Logger

	mu      sync.Mutex
	factors map[types.UID]coordinator.Factor // of pods
}

// Start rebalances at each interval until ctx ends. Only the leader does.
func (c *coordination) Start(ctx context.Context) error {
	if c.interval == 0 {
		return nil
	}
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			nodes, err := c.rebalance(ctx)
			if err != nil {
				c.log.Error("budgets are not coordinated", "err", err)
			}
			c.requeue(ctx, nodes)
		}
	}
}

// rebalance works the factors out, and returns the nodes of the pods whose factor has changed.
func (c *coordination) rebalance(ctx context.Context) ([]string, error) {
	var allocations v1alpha1.PodAllocationList
	if err := c.pods.List(ctx, &allocations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PodAllocations: %w", err)
	}
	var pods corev1.PodList
	if err := c.pods.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	of := make(map[types.UID]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		of[pods.Items[i].UID] = &pods.Items[i]
	}
	prices := newestPrices(allocations.Items)
	var replicas []coordinator.Replica
	var uids []types.UID
	now := c.now()
	for i := range allocations.Items {
		pa := &allocations.Items[i]
		pod := of[pa.Spec.PodRef.UID]
		if pod == nil || kube.Ended(pod) || pa.Spec.Decision == nil {
			continue
		}
		replica := replicaOf(pod, pa, c.fresh(pa.Spec.NodeName, now))
		replica.Price = prices[pa.Spec.NodeName]
		replicas, uids = append(replicas, replica), append(uids, pod.UID)
	}
	factors := make(map[types.UID]coordinator.Factor, len(uids))
	var changed []string
	for i, f := range c.config.Rebalance(replicas) {
		factors[uids[i]] = f
		if f != replicas[i].Factor {
			changed = append(changed, replicas[i].Node)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factors = factors
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

// newestPrices is the last published price of each node. The decision of a pod may be older: it is
// published only when it changes.
func newestPrices(allocations []v1alpha1.PodAllocation) map[string]market.Price {
	prices, published := map[string]market.Price{}, map[string]time.Time{}
	for i := range allocations {
		d, node := allocations[i].Spec.Decision, allocations[i].Spec.NodeName
		if d != nil && d.ObservedAt.After(published[node]) {
			prices[node], published[node] = d.Price, d.ObservedAt.Time
		}
	}
	return prices
}

// replicaOf is a managed pod as the coordinator sees it.
func replicaOf(pod *corev1.Pod, pa *v1alpha1.PodAllocation, fresh bool) coordinator.Replica {
	d := pa.Spec.Decision
	own := market.Budget(d.Budget)
	if d.CoordinationPercent != nil {
		own = own * 100 / market.Budget(*d.CoordinationPercent)
	}
	return coordinator.Replica{
		Namespace: pod.Namespace, Workload: kube.Workload(pod), Node: pod.Spec.NodeName,
		BaseBudget: own, Price: d.Price, Demand: d.Demand, Floor: d.Floor, Ceiling: d.Ceiling,
		Factor: factorOf(pa), TopologySpread: kube.TopologySpread(pod), FixedToNode: kube.FixedToNode(pod), UpToDate: fresh,
	}
}

// factorOf is the factor in force.
func factorOf(pa *v1alpha1.PodAllocation) coordinator.Factor {
	if pa == nil || pa.Status.Constraints == nil || pa.Status.Constraints.CoordinationPercent == nil {
		return coordinator.Neutral
	}
	return coordinator.Factor(*pa.Status.Constraints.CoordinationPercent)
}

// factor is what a pod's budget is multiplied by from now on, for its constraints; nil for as it is.
func (c *coordination) factor(pod *corev1.Pod, pa *v1alpha1.PodAllocation) *int32 {
	if c.interval == 0 {
		return nil
	}
	c.mu.Lock()
	f, ok := c.factors[pod.UID]
	c.mu.Unlock()
	if !ok {
		f = factorOf(pa)
	}
	if f == coordinator.Neutral {
		return nil
	}
	return ptr.To(int32(f))
}

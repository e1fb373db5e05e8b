// Package runner runs the coordinator: it reads replicas from PodAllocations and prices from what agents
// say, and keeps the factors of budgets until they are in the NodeAllocations.
package runner

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

// Runner rebalances budgets between nodes at each interval, and remembers the factors until
// they are in the NodeAllocations. While it does not run, factors stay as they were last written,
// within their bounds.
type Runner struct {
	Config   coordinator.Config
	Interval time.Duration // between two passes; 0: never
	Pods     client.Reader
	Now      func() time.Time
	// Fresh says whether the agent of a node renews its Lease.
	Fresh func(node string, now time.Time) bool
	// Price is the price of a node, as its agent said last.
	Price func(node string) market.Price
	// Requeue has nodes reconciled whose pods get other factors.
	Requeue func(ctx context.Context, nodes []string)
	Log     *slog.Logger

	mu      sync.Mutex
	factors map[types.UID]coordinator.Factor // of pods
}

// Start rebalances at each interval until ctx ends. Only the leader does.
func (c *Runner) Start(ctx context.Context) error {
	if c.Interval == 0 {
		return nil
	}
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			nodes, err := c.Rebalance(ctx)
			if err != nil {
				c.Log.Error("budgets are not coordinated", "err", err)
			}
			c.Requeue(ctx, nodes)
		}
	}
}

// Rebalance works the factors out, and returns the nodes of the pods whose factor has changed.
func (c *Runner) Rebalance(ctx context.Context) ([]string, error) {
	var allocations v1alpha1.PodAllocationList
	if err := c.Pods.List(ctx, &allocations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PodAllocations: %w", err)
	}
	var pods corev1.PodList
	if err := c.Pods.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	told, err := c.told(ctx)
	if err != nil {
		return nil, err
	}
	of := make(map[types.UID]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		of[pods.Items[i].UID] = &pods.Items[i]
	}
	var replicas []coordinator.Replica
	var uids []types.UID
	now := c.Now()
	for i := range allocations.Items {
		pa := &allocations.Items[i]
		pod := of[pa.Spec.PodRef.UID]
		if pod == nil || kube.Ended(pod) || pa.Spec.Decision == nil {
			continue
		}
		replica := replicaOf(pod, pa, c.Fresh(pa.Spec.NodeName, now))
		replica.Factor = FactorOf(told[pod.UID])
		replica.Price = c.Price(pa.Spec.NodeName)
		replicas, uids = append(replicas, replica), append(uids, pod.UID)
	}
	factors := make(map[types.UID]coordinator.Factor, len(uids))
	var changed []string
	for i, f := range c.Config.Rebalance(replicas) {
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

// replicaOf is a managed pod as the coordinator sees it.
func replicaOf(pod *corev1.Pod, pa *v1alpha1.PodAllocation, fresh bool) coordinator.Replica {
	d := pa.Spec.Decision
	own := market.Budget(d.Budget)
	if d.CoordinationPercent != nil {
		own = own * 100 / market.Budget(*d.CoordinationPercent)
	}
	return coordinator.Replica{
		Namespace: pod.Namespace, Workload: kube.Workload(pod), Node: pod.Spec.NodeName,
		BaseBudget: own, Demand: d.Demand, Floor: d.Floor, Ceiling: d.Ceiling,
		TopologySpread: kube.TopologySpread(pod), FixedToNode: kube.FixedToNode(pod), UpToDate: fresh,
	}
}

// told are the constraints that agents are told, by the UIDs of pods.
func (c *Runner) told(ctx context.Context) (map[types.UID]*v1alpha1.Constraints, error) {
	var nodes v1alpha1.NodeAllocationList
	if err := c.Pods.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeAllocations: %w", err)
	}
	told := map[types.UID]*v1alpha1.Constraints{}
	for _, n := range nodes.Items {
		for _, p := range n.Spec.Pods {
			if p.Constraints != nil {
				told[p.UID] = p.Constraints
			}
		}
	}
	return told, nil
}

// FactorOf is the factor in force.
func FactorOf(told *v1alpha1.Constraints) coordinator.Factor {
	if told == nil || told.CoordinationPercent == nil {
		return coordinator.Neutral
	}
	return coordinator.Factor(*told.CoordinationPercent)
}

// Factor is what a pod's budget is multiplied by from now on, for its constraints; nil for as it is. told
// are the constraints that its agent is told now.
func (c *Runner) Factor(pod *corev1.Pod, told *v1alpha1.Constraints) *int32 {
	if c.Interval == 0 {
		return nil
	}
	c.mu.Lock()
	f, ok := c.factors[pod.UID]
	c.mu.Unlock()
	if !ok {
		f = FactorOf(told)
	}
	if f == coordinator.Neutral {
		return nil
	}
	return ptr.To(int32(f))
}

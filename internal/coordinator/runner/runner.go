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
	// NodeField is the field by which Pods lists the pods and PodAllocations of a node.
	NodeField string
	Now       func() time.Time
	// Fresh says whether the agent of a node renews its Lease.
	Fresh func(node string, now time.Time) bool
	// Price is the price of a node, as its agent said last.
	Price func(node string) market.Price
	// Requeue has nodes reconciled whose pods get other factors.
	Requeue func(ctx context.Context, nodes []string)
	Log     *slog.Logger

	mu      sync.Mutex
	factors map[types.UID]coordinator.Factor // of pods, where it is not the one that is told
}

// NeedLeaderElection is false: each replica works out the factors of all pods, from the same objects,
// and tells the agents of its own nodes.
func (*Runner) NeedLeaderElection() bool { return false }

// Start rebalances at each interval until ctx ends.
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

// Rebalance works the factors out, and returns the nodes of the pods whose factor has changed. It
// lists objects node by node: a list of all pods of a cluster is as large as its cache.
func (c *Runner) Rebalance(ctx context.Context) ([]string, error) {
	var nodes v1alpha1.NodeAllocationList
	if err := c.Pods.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeAllocations: %w", err)
	}
	var b bids
	for i := range nodes.Items {
		if err := c.add(ctx, &b, &nodes.Items[i]); err != nil {
			return nil, err
		}
	}
	factors := map[types.UID]coordinator.Factor{}
	var changed []string
	for i, f := range c.Config.Rebalance(b.replicas) {
		if f != b.replicas[i].Factor {
			factors[b.uids[i]] = f
			changed = append(changed, b.replicas[i].Node)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factors = factors
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

// bids are the managed pods of a cluster, with their UIDs.
type bids struct {
	replicas []coordinator.Replica
	uids     []types.UID
}

// add adds the pods of a node that have a decision. Its agent is told of each.
func (c *Runner) add(ctx context.Context, b *bids, node *v1alpha1.NodeAllocation) error {
	told := make(map[types.UID]*v1alpha1.Constraints, len(node.Spec.Pods))
	for i := range node.Spec.Pods {
		told[node.Spec.Pods[i].UID] = node.Spec.Pods[i].Constraints
	}
	of := client.MatchingFields{c.NodeField: node.Name}
	var allocations v1alpha1.PodAllocationList
	if err := c.Pods.List(ctx, &allocations, of, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PodAllocations of node %s: %w", node.Name, err)
	}
	var pods corev1.PodList
	if err := c.Pods.List(ctx, &pods, of, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods of node %s: %w", node.Name, err)
	}
	running := make(map[types.UID]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		running[pods.Items[i].UID] = &pods.Items[i]
	}
	fresh, price := c.Fresh(node.Name, c.Now()), c.Price(node.Name)
	for i := range allocations.Items {
		pa := &allocations.Items[i]
		pod := running[pa.Spec.PodRef.UID]
		if pod == nil || kube.Ended(pod) || pa.Spec.Decision == nil {
			continue
		}
		replica := replicaOf(pod, pa, fresh)
		replica.Factor, replica.Price = FactorOf(told[pod.UID]), price
		b.replicas, b.uids = append(b.replicas, replica), append(b.uids, pod.UID)
	}
	return nil
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

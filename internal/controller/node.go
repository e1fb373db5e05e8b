package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/sharding"
)

// nodeState is the part of a node that decisions depend on.
type nodeState struct {
	lifecycle.Node
	name        string
	uid         types.UID
	allocatable cpu.Milli
	latestWins  bool           // its kubelet carries out the latest of several resizes
	cordoned    bool           // no new pods come
	evicting    []corev1.Taint // NoExecute
	unconfirmed allocation.Unconfirmed
	market      allocation.NodeMarket // as the Lease says
}

// node reads the node and the Lease of its agent.
func (r *Reconciler) node(ctx context.Context, name string, now time.Time) (nodeState, error) {
	var n corev1.Node
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &n)
	if client.IgnoreNotFound(err) != nil {
		return nodeState{}, fmt.Errorf("read node %s: %w", name, err)
	}
	node := nodeOf(&n)
	node.name, node.Unknown = name, err != nil
	if err := r.liveness.Judge(ctx, name, &node.Node, now); err != nil {
		return nodeState{}, err
	}
	return node, nil
}

// watchOnly takes in what is to be known of a node that this replica does not own: whether its agent
// counts when unresponsive agents are counted. Where another one owns it, all else of it is forgotten:
// should it come back, that is as after a restart. While none is known to, resizes of it do not start.
func (r *Reconciler) watchOnly(ctx context.Context, name string, owner sharding.Ownership) (time.Duration, error) {
	var n corev1.Node
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &n)
	forgotten := owner == sharding.OwnedByOther || apierrors.IsNotFound(err)
	r.resizes.Replace(name, r.liveness.Nodes(), nil, func(types.UID) bool { return !forgotten })
	if forgotten {
		r.memory.forget(name)
		r.Metrics.Allocations(name, nil)
	}
	switch {
	case apierrors.IsNotFound(err):
		r.saw(name, false)
		// What is left of it is deleted by the replica that owns its name. No Node leads there.
		left, err := r.allocations(ctx, client.MatchingFields{nodeField: name})
		if len(left) == 0 {
			return 0, err
		}
		if owner == sharding.Unknown {
			return r.jitter(failedRetry), nil
		}
		return r.jitter(watchInterval), nil
	case err != nil:
		return 0, fmt.Errorf("read node %s: %w", name, err)
	}
	r.saw(name, true)
	node := nodeOf(&n)
	return r.jitter(watchInterval), r.liveness.Observe(ctx, name, &node.Node, r.Now())
}

// watchInterval is how soon a node of another replica is looked at again: agents become unresponsive
// without an event.
const watchInterval = time.Minute

func nodeOf(n *corev1.Node) nodeState {
	node := nodeState{
		name: n.Name, uid: n.UID, allocatable: allocation.Node(n).Allocatable, cordoned: n.Spec.Unschedulable,
		latestWins: kube.LatestResizeWins(n),
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			node.Ready, node.ReadySince = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			// What the kubelet says then: pkg/kubelet/nodeshutdown of Kubernetes.
			node.ShuttingDown = !node.Ready && strings.Contains(c.Message, "node is shutting down")
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			node.Pressure = node.Pressure || c.Status == corev1.ConditionTrue
		}
	}
	for _, t := range n.Spec.Taints {
		node.Draining = node.Draining || slices.Contains(drainTaints, t.Key)
		if t.Effect == corev1.TaintEffectNoExecute {
			node.evicting = append(node.evicting, t)
		}
	}
	return node
}

// latestWins says whether the kubelet of the pod does so, and says which version of the pod its reports are about.
func (s *snapshot) latestWins(pod *corev1.Pod) bool {
	return s.node.latestWins && pod.Status.ObservedGeneration > 0
}

// startupBoost is that of the pod. There is none where the kubelet may be unable to resize: that shows only
// once the pod runs, and then it could not be restored.
func (s *snapshot) startupBoost(n *namespaceState, pod *corev1.Pod) (factor float64, fault string) {
	if factor, fault = kube.StartupBoost(pod, n.meta); !s.node.latestWins {
		factor = 0
	}
	return factor, fault
}

// drainTaints are set on nodes that are about to be emptied: by the cluster autoscaler, by
// Karpenter, and by the administrator of a node that was shut down.
var drainTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", corev1.TaintNodeOutOfService}

// drainLasts is how long after the last eviction a cordoned node counts as being drained. Longer leaves
// the limits of a node alone that was cordoned for another reason; shorter resizes pods between two
// evictions, which may be far between under a PodDisruptionBudget.
const drainLasts = 10 * time.Minute

// drain takes a cordoned node for one that is drained while pods are evicted from it.
func (s *snapshot) drain(pods []corev1.Pod) {
	switch {
	case !s.node.cordoned:
		s.memory.evicted = time.Time{}
	case slices.ContainsFunc(pods, func(p corev1.Pod) bool { return kube.BeingEvicted(&p) }):
		s.memory.evicted = s.now
	}
	if until := s.memory.evicted.Add(drainLasts); !s.memory.evicted.IsZero() && s.now.Before(until) {
		s.node.Draining = true
		s.recheckAt = lifecycle.Earlier(s.recheckAt, until)
	}
}

// evicted says whether the pod does not tolerate one of the taints.
func evicted(pod *corev1.Pod, taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.ToleratesTaint(klog.Logger{}, &t, false)
		})
	})
}

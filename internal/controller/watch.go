package controller

import (
	"context"
	"fmt"
	"reflect"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Setup has the manager call Reconcile for a node whenever anything changes that its decisions depend on.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := mgr.Add(&gateCheck{r.Gate, r.Log, r.blockedChanged}); err != nil {
		return fmt.Errorf("add the check of the API server: %w", err)
	}
	vpas := &autoscalers.VPAs{}
	discovery := &autoscalers.Discovery{
		VPAs: vpas, API: r.Gate.Discovery, Reviews: r.Gate.API, Live: r.Live, Now: r.Now, Log: r.Log, Changed: r.requeue.allNodes,
	}
	if err := discovery.Setup(mgr); err != nil {
		return err
	}
	r.vpas = vpas
	if err := mgr.Add(r.conductor); err != nil {
		return fmt.Errorf("add the coordinator: %w", err)
	}
	if signals := r.signalController(); signals != nil {
		r.percentages = signals.Percentages
		if err := signals.Setup(mgr); err != nil {
			return err
		}
	}
	acknowledger := &restore.Acknowledger{
		Client: r.Client, Namespace: r.Config.Namespace, InFlight: r.Gate.flying.Load, Wake: r.requeue.pause,
		Blocked: r.Gate.published, Changed: r.pauseChanged,
	}
	if err := acknowledger.Setup(mgr); err != nil {
		return err
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := ctrl.NewControllerManagedBy(mgr).Named("nodes").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Watches(&v1alpha1.PodAllocation{}, handler.EnqueueRequestsFromMapFunc(nodeOfAllocation), builder.WithPredicates(specChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(named), builder.WithPredicates(nodeChanged())).
		Watches(namespace, handler.EnqueueRequestsFromMapFunc(r.nodesOfNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.LimitRange{}, handler.EnqueueRequestsFromMapFunc(r.nodesAround)).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(r.nodesAround), builder.WithPredicates(changed(quotaState))).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(r.nodesAround), builder.WithPredicates(changed(hpaTarget))).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.nodesAround), builder.WithPredicates(changed(budgetState))).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.nodeOfLease)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(nodeOfLedger)).
		WatchesRawSource(source.Channel(r.requeue.node, handler.EnqueueRequestsFromMapFunc(named))).
		WatchesRawSource(source.Channel(r.requeue.namespace, handler.EnqueueRequestsFromMapFunc(r.nodesAround))).
		WatchesRawSource(source.Channel(r.requeue.all, handler.EnqueueRequestsFromMapFunc(r.allNodes))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Config.Nodes,
			ReconciliationTimeout:   r.Config.Timeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	return nil
}

// index lets pods and allocations be listed by node.
func index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.Pod{}, nodeField, func(o client.Object) []string {
		if name := o.(*corev1.Pod).Spec.NodeName; name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	err = indexer.IndexField(ctx, &v1alpha1.PodAllocation{}, nodeField, func(o client.Object) []string {
		return []string{o.(*v1alpha1.PodAllocation).Spec.NodeName}
	})
	if err != nil {
		return fmt.Errorf("index PodAllocations by node: %w", err)
	}
	return nil
}

func node(name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func named(_ context.Context, o client.Object) []reconcile.Request { return node(o.GetName()) }

func nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	return node(o.(*corev1.Pod).Spec.NodeName)
}

func nodeOfAllocation(_ context.Context, o client.Object) []reconcile.Request {
	return node(o.(*v1alpha1.PodAllocation).Spec.NodeName)
}

// nodeOfLease takes the renewal of an agent's Lease in, and returns its node if the Lease was overdue.
func (r *Reconciler) nodeOfLease(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := kube.AgentLeaseNode(o.GetName())
	if !ok {
		return nil
	}
	if before := r.liveness.observe(name, o.(*coordinationv1.Lease), r.Now(), r.Config.FreezeAfter); before < r.Config.FreezeAfter {
		return nil
	}
	return node(name)
}

// nodeOfLedger is the node whose declared limits a ConfigMap records.
func nodeOfLedger(_ context.Context, o client.Object) []reconcile.Request {
	if len(o.GetName()) > len(kube.LedgerPrefix) && o.GetLabels()[kube.LedgerLabel] != "" {
		return node(o.GetName()[len(kube.LedgerPrefix):])
	}
	return nil
}

func (r *Reconciler) nodesOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.nodesWith(ctx, o.GetName())
}

// nodesAround are the nodes with pods in the object's namespace.
func (r *Reconciler) nodesAround(ctx context.Context, o client.Object) []reconcile.Request {
	return r.nodesWith(ctx, o.GetNamespace())
}

func (r *Reconciler) nodesWith(ctx context.Context, namespace string) []reconcile.Request {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("a changed namespace is not looked at", "namespace", namespace, "err", err)
		return nil
	}
	seen := map[string]bool{}
	var requests []reconcile.Request
	for i := range pods.Items {
		if name := pods.Items[i].Spec.NodeName; !seen[name] {
			seen[name] = true
			requests = append(requests, node(name)...)
		}
	}
	return requests
}

func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("nodes are not looked at", "err", err)
		return nil
	}
	var requests []reconcile.Request
	for i := range nodes.Items {
		requests = append(requests, node(nodes.Items[i].Name)...)
	}
	return requests
}

// specChanged lets changes of spec through. Writes of status are our own.
func specChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
	}}
}

// nodeChanged lets changes of a node through that decisions depend on.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok := e.ObjectOld.(*corev1.Node)
		changed, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 || !reflect.DeepEqual(nodeOf(old), nodeOf(changed))
	}}
}

// changed lets changes of the part of an object through that decisions depend on.
func changed[T client.Object](part func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok := e.ObjectOld.(T)
		now, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || !reflect.DeepEqual(part(old), part(now))
	}}
}

// quotaState is what decisions depend on in a ResourceQuota.
func quotaState(q *corev1.ResourceQuota) any {
	left, bounds := constraints.CPUQuotaOf(q)
	if !bounds {
		left = constraints.CPUQuota{}
	}
	return []any{q.Spec, left}
}

// hpaTarget is what decisions depend on in an HPA. Its present number of replicas is not part of it.
func hpaTarget(h *autoscalingv2.HorizontalPodAutoscaler) any {
	return []any{h.Spec.ScaleTargetRef, h.Spec.Metrics, h.Annotations[kube.AllowDecreaseKey]}
}

// budgetState is what decisions depend on in a PodDisruptionBudget.
func budgetState(b *policyv1.PodDisruptionBudget) any {
	return []any{b.Spec, b.Annotations[kube.AllowDecreaseKey], b.Status.DisruptionsAllowed > 0}
}

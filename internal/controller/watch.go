package controller

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/controller/order"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Setup has the manager call Reconcile for a node whenever anything changes that its decisions
// depend on, and run the rest of the controller.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	for _, o := range []client.Object{&corev1.Pod{}, &v1alpha1.PodAllocation{}} {
		name := func(o client.Object) []string { return []string{nodeName(o)} }
		if err := mgr.GetFieldIndexer().IndexField(ctx, o, nodeField, name); err != nil {
			return fmt.Errorf("index %T by node: %w", o, err)
		}
	}
	r.Gate.Changed, r.Gate.Log = r.blockedChanged, r.Log
	runnables := []manager.Runnable{r.Gate, r.coordinator, r.resizes}
	if r.Replica != nil {
		r.Replica.Changed, r.Replica.InFlight = r.shardsChanged, r.Gate.InFlight.Load
		r.Replica.OnNodeCount(r.setShare)
		runnables = append(runnables, r.Replica)
	}
	leads := func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("add %T: %w", runnable, err)
		}
	}
	vpas := &autoscalers.VPAs{}
	r.lookups.vpas = vpas
	setups := []interface{ Setup(mgr ctrl.Manager) error }{
		&autoscalers.Discovery{
			VPAs: vpas, API: r.Gate.Discovery, Reviews: r.Gate.API, Live: r.Live, Now: r.Now, Log: r.Log,
			Changed: r.requeue.Namespace, Interval: r.lookups.interval,
		},
		&restore.Acknowledger{
			Client: r.Client, Namespace: r.Config.Namespace, InFlight: r.Gate.InFlight.Load, Wake: r.requeue.Pause,
			Blocked: r.Gate.Published, Warning: r.liveness.Warning, Changed: r.pauseChanged,
			Acknowledge: r.Replica.Acknowledge, Leads: leads,
		},
	}
	if r.ReadMetric != nil {
		signals := &demandsignal.Controller{
			Config: r.Config.Signal, Client: r.Client, Live: r.Live, Read: r.ReadMetric, Leads: leads,
			Targets: r.lookups.scaleTargets, Unmanaged: r.unmanaged, Changed: r.requeue.Namespace,
			Count: r.Metrics.Signals, Events: r.Events, Log: r.Log, Now: r.Now,
		}
		r.lookups.percentages = signals.Percentages
		setups = append(setups, signals)
	}
	for _, s := range setups {
		if err := s.Setup(mgr); err != nil {
			return err
		}
	}
	return r.watch(mgr)
}

// watch has changes that decisions depend on lead to a reconcile of the nodes that they concern.
func (r *Reconciler) watch(mgr ctrl.Manager) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	nodes, claims := handler.EnqueueRequestsFromMapFunc(r.nodesOf), r.quotas.Watch()
	b := ctrl.NewControllerManagedBy(mgr).Named("nodes")
	for _, w := range []struct {
		object client.Object
		// part is what decisions depend on in the object; nil: all of it.
		part func(client.Object) any
	}{
		{&corev1.Pod{}, func(o client.Object) any { return kube.Relevant(o.(*corev1.Pod)) }},
		{&corev1.LimitRange{}, nil}, {&coordinationv1.Lease{}, nil}, {&corev1.ConfigMap{}, nil},
		{&v1alpha1.PodAllocation{}, func(o client.Object) any { return []any{o.GetUID(), o.GetGeneration()} }},
		{&v1alpha1.NodeAllocation{}, func(client.Object) any { return nil }}, // written here alone; one that is deleted counts
		{&corev1.Node{}, func(o client.Object) any { return nodeOf(o.(*corev1.Node)) }},
		{namespace, func(o client.Object) any {
			a := o.GetAnnotations()
			return []any{o.GetLabels(), a[kube.BelowDeclaredKey], a[kube.StartupBoostKey], a[kube.MaxRaiseKey]}
		}},
		{&corev1.ResourceQuota{}, func(o client.Object) any { // its usage: see shares.Divider
			q := o.(*corev1.ResourceQuota)
			room, _ := constraints.CPUQuotaOf(q)
			return []any{q.Spec, room.Hard, room.Known}
		}},
		{&autoscalingv2.HorizontalPodAutoscaler{}, func(o client.Object) any { // not its number of replicas
			h := o.(*autoscalingv2.HorizontalPodAutoscaler)
			return []any{h.Spec.ScaleTargetRef, h.Spec.Metrics, h.Annotations[kube.AllowDecreaseKey]}
		}},
		{&policyv1.PodDisruptionBudget{}, func(o client.Object) any {
			p := o.(*policyv1.PodDisruptionBudget)
			return []any{p.Spec, p.Annotations[kube.AllowDecreaseKey], p.Status.DisruptionsAllowed > 0}
		}},
	} {
		changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return w.part == nil || !reflect.DeepEqual(w.part(e.ObjectOld), w.part(e.ObjectNew))
		}}
		h := nodes
		switch w.object.(type) {
		case *corev1.Pod, *v1alpha1.PodAllocation:
			h = order.First{EventHandler: nodes, Of: order.Always}
		case *metav1.PartialObjectMetadata: // the mode of all pods of a namespace
			h = order.First{EventHandler: nodes, Of: r.memory.throttled}
		}
		b = b.Watches(w.object, h, builder.WithPredicates(claims, changed))
	}
	err := b.Watches(&corev1.ResourceQuota{}, r.quotas.Usage(r.nodesOf, r.Now)).
		WatchesRawSource(source.Channel(r.requeue.Some, nodes)).
		WatchesRawSource(source.Channel(r.requeue.All, nodes)).
		WithOptions(controller.Options{
			NeedLeaderElection:      ptr.To(false),
			MaxConcurrentReconciles: r.Config.Nodes,
			ReconciliationTimeout:   r.Config.Timeout,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	return nil
}

// shardsChanged has all nodes looked at, as some may have come from another replica.
func (r *Reconciler) shardsChanged() {
	r.resizes.TakeOver()
	r.requeue.AllNodes()
}

// setShare takes the part of the rate of resizes that goes with the nodes which this replica owns.
func (r *Reconciler) setShare(mine, all int) {
	r.Metrics.ShardNodes.Set(float64(mine))
	r.resizes.SetShare(float64(mine) / float64(max(all, 1)))
}

// wakeOwn has those of some nodes looked at that this replica owns.
func (r *Reconciler) wakeOwn(ctx context.Context, nodes []string) {
	r.requeue.Nodes(ctx, slices.DeleteFunc(nodes, func(node string) bool { return !r.Replica.Owns(node) }))
}

// nodesOf are the nodes that a changed object concerns; of a Node without a name, all.
func (r *Reconciler) nodesOf(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var names []string
	var err error
	switch o := o.(type) {
	case *corev1.Pod, *v1alpha1.PodAllocation:
		names = []string{nodeName(o)}
	case *v1alpha1.NodeAllocation:
		names = []string{o.Name}
	case *coordinationv1.Lease:
		names = []string{r.nodeOfLease(o)}
	case *corev1.ConfigMap: // a record of declared limits
		if node, ok := kube.NodeOfName(kube.LedgerPrefix, o); ok && o.Labels[kube.LedgerLabel] != "" {
			names = []string{node}
		}
	case *corev1.Node:
		if names = []string{o.Name}; o.Name == "" {
			var all corev1.NodeList
			err = r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy)
			for i := range all.Items {
				names = append(names, all.Items[i].Name)
			}
		}
	default: // a namespace, or an object that concerns all of one
		var pods corev1.PodList
		err = r.list(ctx, &pods, client.InNamespace(cmp.Or(o.GetNamespace(), o.GetName())))
		for i := range pods.Items {
			names = append(names, pods.Items[i].Spec.NodeName)
		}
	}
	if err != nil {
		r.Log.Error("a change is not looked at", "object", fmt.Sprintf("%T", o), "namespace", cmp.Or(o.GetNamespace(), o.GetName()), "err", err)
	}
	for _, name := range names {
		if name != "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
	}
	return requests
}

// nodeName is the node of a pod or an allocation; "" where there is none.
func nodeName(o client.Object) string {
	if pod, ok := o.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return o.(*v1alpha1.PodAllocation).Spec.NodeName
}

// nodeOfLease takes the renewal of an agent's Lease in, and returns its node if the Lease was
// overdue, or if it confirms other decisions than before.
func (r *Reconciler) nodeOfLease(o *coordinationv1.Lease) string {
	name := r.liveness.Renewed(o, r.Now())
	if r.memory.markets.Renewed(o, r.Now()) {
		name, _ = kube.AgentLeaseNode(o)
	}
	return name
}

// blockedChanged says once for the installation that pods can no longer be resized, or can again: in
// the log, the metric and the switch.
func (r *Reconciler) blockedChanged(reason reasons.Reason, why string) {
	r.Metrics.Blocked(reason)
	if reason != "" {
		r.Log.Error("no pod can be resized", "reason", reason, "why", why)
	} else {
		r.Log.Info("pods can be resized")
		r.requeue.AllNodes()
	}
	r.requeue.Switch()
}

// pauseChanged says once that the installation was paused or resumed.
func (r *Reconciler) pauseChanged(paused bool) {
	r.Metrics.Paused(paused)
	if paused {
		r.Log.Warn("MBCAS is paused: no pod is resized")
		return
	}
	r.Log.Info("MBCAS is resumed")
	r.requeue.AllNodes()
}

// outageChanged publishes that an outage has begun, or has ended.
func (r *Reconciler) outageChanged(begun bool) {
	if !begun {
		r.requeue.AllNodes()
	}
	r.requeue.Switch()
}

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demandsignal"
)

// signalController is the controller of DemandSignals; nil if no metrics can be read.
func (r *Reconciler) signalController() *demandsignal.Controller {
	if r.ReadMetric == nil {
		return nil
	}
	return &demandsignal.Controller{
		Config: r.Config.Signal, Client: r.Client, Live: r.Live, Read: r.ReadMetric, Targets: r.scaleTargets, Unmanaged: r.unmanaged,
		Changed: r.requeue.nodesOf, Count: r.Metrics.signals, Events: r.Events, Log: r.Log, Now: r.Now,
	}
}

// noPercentages is what a controller without metrics has for the per-pod path.
func noPercentages(string) (asks []constraints.Signal, known bool) { return nil, true }

// unmanaged names one of a workload's pods, and why MBCAS does not resize it; "" if it resizes one of them, or will, or if
// that is not known at present.
func (r *Reconciler) unmanaged(ctx context.Context, pods []*corev1.Pod) (name string, why reasons.Reason) {
	namespace := pods[0].Namespace
	var list v1alpha1.PodAllocationList
	if closed, _ := r.Gate.Closed(); closed == reasons.CRDNotInstalled || r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
		return "", ""
	}
	allocated := map[types.UID]bool{}
	for i := range list.Items {
		allocated[list.Items[i].Spec.PodRef.UID] = true
	}
	for _, pod := range pods {
		if allocated[pod.UID] {
			return "", ""
		}
	}
	n, err := r.neighbours(ctx, &snapshot{namespaces: map[string]*neighbourhood{}}, namespace)
	if err != nil {
		return "", ""
	}
	for _, pod := range pods {
		reason := exclusion(pod, n, r.Config.Namespace).Reason
		if reason == "" {
			return "", "" // its PodAllocation is on its way
		}
		if name == "" {
			name, why = pod.Name, reason
		}
	}
	return name, why
}

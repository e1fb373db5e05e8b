package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota/shares"
)

// namespaceState is a namespace with all that constrains decisions about its pods.
type namespaceState struct {
	constraints.NamespaceObjects
	meta         metav1.Object // of the namespace; nil: it does not exist
	mode         kube.Mode
	look         shares.Look     // began before anything of the namespace was read
	shares       shares.Division // of quotas that are short
	recheckAt    time.Time       // when to look again though nothing changes; zero: no need
	signalsKnown bool            // the DemandSignals have been listed since the start
	// unknownAutoscaler says what is not known of the autoscalers of any pod; "" where all is.
	unknownAutoscaler string
}

// gatherNamespace gathers a namespace, once for each look at a node.
func (r *Reconciler) gatherNamespace(ctx context.Context, s *snapshot, name string) (*namespaceState, error) {
	if n := s.namespaces[name]; n != nil {
		return n, nil
	}
	n := &namespaceState{signalsKnown: true, look: r.quotas.Begin(name, s.node.name, r.Now())}
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &ns); {
	case apierrors.IsNotFound(err):
		return n, nil
	case err != nil:
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	n.meta = &ns
	n.MaxRaise, _ = kube.MaxRaise(&ns, r.Config.MaxRaise)
	n.mode, _ = kube.ModeOf(ns.Labels, r.Config.Mode)
	if _, forbids := kube.ForbidsBelowDeclared(&ns); forbids {
		n.KeepsDeclared = name
	}
	if n.mode != kube.ModeOff && !kube.AlwaysUnmanaged(name, r.Config.Namespace) {
		if err := r.gatherConstraints(ctx, n, name); err != nil {
			return nil, err
		}
	}
	s.namespaces[name] = n
	s.recheckAt = lifecycle.Earlier(s.recheckAt, n.recheckAt)
	return n, nil
}

// gatherConstraints reads the objects of the namespace that constrain its pods.
func (r *Reconciler) gatherConstraints(ctx context.Context, n *namespaceState, name string) error {
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var pdbs policyv1.PodDisruptionBudgetList
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	for _, list := range []client.ObjectList{&hpas, &pdbs, &ranges, &quotas} {
		if err := r.list(ctx, list, client.InNamespace(name)); err != nil {
			return err
		}
	}
	n.HPAs, n.LimitRanges, n.Quotas = hpas.Items, ranges.Items, quotas.Items
	n.PDBs, n.recheckAt = constraints.PDBsOf(pdbs.Items, r.Now())
	var err error
	if n.VPAs, n.unknownAutoscaler, err = r.lookups.vpas.List(ctx, name); err != nil {
		return err
	}
	n.Signals, n.signalsKnown = r.lookups.percentages(name)
	if err := r.lookUpSelectors(ctx, n, name); err != nil {
		return err
	}
	n.shares, err = r.quotas.Of(ctx, &n.NamespaceObjects, n.look)
	n.recheckAt = lifecycle.Earlier(n.recheckAt, n.shares.RecheckAt)
	return err
}

// lookUpSelectors finds the pods of the targets that are not known by their owners. They are looked
// up side by side, so that targets that hang delay the node no longer than one.
func (r *Reconciler) lookUpSelectors(ctx context.Context, n *namespaceState, name string) error {
	n.Selectors, n.LookupErrors = map[kube.Target]labels.Selector{}, map[kube.Target]string{}
	var mu sync.Mutex
	return flowcontrol.Each(r.Config.Pods, n.SelectedTargets(), func(t kube.Target) error {
		s, err := r.lookups.scaleTargets.Selector(ctx, name, t)
		if ctx.Err() != nil {
			return fmt.Errorf("find the pods of %s in namespace %s: %w", t, name, ctx.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			n.LookupErrors[t] = autoscalers.Cause(err)
		} else if s != nil {
			n.Selectors[t] = s
		}
		return nil
	})
}

// unmanaged names one of a workload's pods, and why MBCAS does not resize it; "" if it resizes one
// of them, or will, or if that is not known at present.
func (r *Reconciler) unmanaged(ctx context.Context, pods []*corev1.Pod) (name string, why reasons.Reason) {
	namespace := pods[0].Namespace
	if closed, _ := r.Gate.Closed(); closed == reasons.CRDNotInstalled {
		return "", ""
	}
	allocations, err := r.allocations(ctx, client.InNamespace(namespace))
	if err != nil {
		return "", ""
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return allocations[allocation.Key(p)] != nil }) {
		return "", "" // the usual case, known without the other objects of the namespace
	}
	s := &snapshot{namespaces: map[string]*namespaceState{}}
	n, err := r.gatherNamespace(ctx, s, namespace)
	if err != nil {
		return "", ""
	}
	for _, pod := range pods {
		reason := s.exclusion(n, pod, r.Config.Namespace).Reason
		if reason == "" {
			return "", "" // its PodAllocation is on its way
		}
		if name == "" {
			name, why = pod.Name, reason
		}
	}
	return name, why
}

// ownedElsewhere is the share of the pods of a namespace that other replicas resize.
func (r *Reconciler) ownedElsewhere(ctx context.Context, namespace string) (float64, error) {
	if r.Replica.Alone() {
		return 0, nil
	}
	var pods corev1.PodList
	if err := r.list(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return 0, err
	}
	return r.Replica.UnownedFraction(pods.Items), nil
}

package controller

import (
	"context"
	"fmt"
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

	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// neighbourhood is a namespace with all that bends decisions about its pods.
type neighbourhood struct {
	constraints.NamespaceObjects
	exists bool
	mode   kube.Mode
	shares map[types.UID]share // of quotas that are short
	again  time.Time           // when they may change though nothing does; zero: they will not
	// unheard: what DemandSignals ask for is not known yet.
	unheard bool
	// unsure says what is not known of the autoscalers of any pod; "" where all is.
	unsure string
}

// neighbours gathers a namespace, once for each look at a node.
func (r *Reconciler) neighbours(ctx context.Context, s *snapshot, name string) (*neighbourhood, error) {
	if n := s.namespaces[name]; n != nil {
		return n, nil
	}
	n := &neighbourhood{}
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &ns); {
	case apierrors.IsNotFound(err):
		return n, nil
	case err != nil:
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	n.exists = true
	n.mode, _ = kube.ModeOf(ns.Labels, r.Config.Mode)
	if n.mode != kube.ModeOff && !kube.AlwaysUnmanaged(name, r.Config.Namespace) {
		if err := r.listen(ctx, n, name); err != nil {
			return nil, err
		}
	}
	s.namespaces[name] = n
	s.recheckAt = lifecycle.Earlier(s.recheckAt, n.again)
	return n, nil
}

func (n *neighbourhood) sooner(at time.Time) { n.again = lifecycle.Earlier(n.again, at) }

// listen reads what the objects of the namespace say.
func (r *Reconciler) listen(ctx context.Context, n *neighbourhood, name string) error {
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var budgets policyv1.PodDisruptionBudgetList
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	for _, l := range []struct {
		what string
		list client.ObjectList
	}{
		{"HorizontalPodAutoscalers", &hpas}, {"PodDisruptionBudgets", &budgets}, {"LimitRanges", &ranges}, {"ResourceQuotas", &quotas},
	} {
		if err := r.Client.List(ctx, l.list, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list the %s of namespace %s: %w", l.what, name, err)
		}
	}
	vpas, unsure, err := r.vpas.List(ctx, name)
	if err != nil {
		return err
	}
	n.unsure = unsure
	n.NamespaceObjects = constraints.NamespaceObjects{
		HPAs: hpas.Items, VPAs: vpas, PDBs: budgets.Items, LimitRanges: ranges.Items, Quotas: quotas.Items,
	}
	signals, known := r.percentages(name)
	n.Signals, n.unheard = signals, !known
	if err := r.choose(ctx, n, name); err != nil {
		return err
	}
	return r.divide(ctx, n, name)
}

// choose finds the pods of the targets that are not known by their owners. They are asked for side by side, so that targets that hang hold a look up
// no longer than one.
func (r *Reconciler) choose(ctx context.Context, n *neighbourhood, namespace string) error {
	n.Selectors, n.LookupErrors = map[kube.Target]labels.Selector{}, map[kube.Target]string{}
	var mu sync.Mutex
	return each(r.Config.Pods, n.SelectedTargets(), func(t kube.Target) error {
		s, err := r.scaleTargets.Selector(ctx, namespace, t)
		if ctx.Err() != nil {
			return fmt.Errorf("find the pods of %s in namespace %s: %w", t, namespace, ctx.Err())
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

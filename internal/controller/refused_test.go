package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestARefusedPodIsLeftOut: where the API server refuses what is published about a pod all the same, the others of its node
// are published, and its status says why it is left alone. So it is where that is a change.
func TestARefusedPodIsLeftOut(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		odd, refuses := types.UID(""), false
		refuse := func(pods []v1alpha1.NodePod) error {
			i := slices.IndexFunc(pods, func(p v1alpha1.NodePod) bool { return p.UID == odd })
			if i < 0 || !refuses {
				return nil
			}
			path := field.NewPath("spec", "pods").Index(i).Child("constraints", "ceiling")
			return apierrors.NewInvalid(schema.GroupKind{Kind: "NodeAllocation"}, "n", field.ErrorList{{Type: field.ErrorTypeTooLong, Field: path.String()}})
		}
		l.memory.told.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := refuse(o.(*v1alpha1.NodeAllocation).Spec.Pods); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				body, err := p.Data(o)
				r.must(err)
				sent := &v1alpha1.NodeAllocation{}
				r.must(json.Unmarshal(body, sent))
				if err := refuse(sent.Spec.Pods); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
		web, other := l.lowered("web"), l.raised("other")
		odd, refuses = web.UID, true
		most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
		ranges := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "x"}}
		ranges.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: most}}
		r.must(r.Client.Create(r.Context(), ranges)) // a change of both, of which one is refused
		l.pass(time.Second)
		l.settles(web, v1alpha1.PhaseNotApplied, reasons.NotPublished)
		r.limitIs(web, 500, "which is declared, as nothing is decided about it")
		r.vanish(web, theAllocation)
		l.pass(time.Second)
		late := r.pod("late", "100m", "500m")
		l.settles(late, v1alpha1.PhasePending, reasons.NoDecisionYet)
		l.pass(time.Second)
		l.look(late)
		if r.publishedOf(late) == nil || r.publishedOf(other) == nil {
			t.Error("another pod is not published")
		}
		refuses = false
		l.pass(11 * time.Minute)
		l.becomes(web, "published", func(pa *v1alpha1.PodAllocation) bool {
			return pa != nil && pa.Status.Reason != string(reasons.NotPublished)
		})
	})
}

// TestATooLargePodIsLeftOut: a pod that another client gave limits which no object can hold is published no more, and keeps its record.
func TestATooLargePodIsLeftOut(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		web := l.raised("web")
		r.resizeAs("another", web, "100k")
		pa := l.settles(web, v1alpha1.PhaseNotApplied, reasons.PodTooLarge)
		if r.publishedOf(web) != nil {
			t.Error("it is published")
		}
		r.declaredIs(pa, app(500))
		r.limitIs(web, 100_000_000, "which is another client's")
	})
}

// TestTheLedgerForgetsThoseThatLeft: the ledger keeps no entry of a pod that runs on and is not managed any more, once there are many.
func TestTheLedgerForgetsThoseThatLeft(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		for i := range 20 {
			pod := l.newPod(fmt.Sprint("web-", i))
			r.label(pod, "false")
			l.becomes(pod, "unmanaged", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
		}
		raised := l.raised("raised")
		r.vanish(raised, theAllocation)
		last := l.newPod("last")
		if n := len(r.ledger().Data); n != 2 {
			t.Errorf("%d entries, want those of the pod that was raised and of the last one", n)
		}
		r.ledgerIs(raised, app(500))
		r.ledgerIs(last, app(500))
	})
}

// TestABurstStaysInTheLedger: entries of many new pods stay, though no cache shows their PodAllocations yet.
func TestABurstStaysInTheLedger(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		l.Reconciler.Client = interceptor.NewClient(l.Reconciler.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, late := list.(*v1alpha1.PodAllocationList); late {
					return nil
				}
				return c.List(ctx, list, opts...)
			},
		})
		const pods = 25
		for i := range pods {
			r.pod(fmt.Sprint("web-", i), "100m", "500m")
		}
		for look := range 3 {
			if _, err := l.once(); err != nil || len(r.ledger().Data) != pods {
				t.Errorf("look %d: %d entries (%v), want %d", look, len(r.ledger().Data), err, pods)
			}
		}
	})
}

package controller

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// ledger is that of the node.
func (r *rig) ledger() *corev1.ConfigMap {
	r.Helper()
	cm := &corev1.ConfigMap{}
	r.must(r.Client.Get(r.Context(), client.ObjectKey{Namespace: r.config.Namespace, Name: restore.LedgerName(r.kubelet.Node)}, cm))
	return cm
}

// ledgerIs fails the test where the ledger has other declared limits of the pod.
func (r *rig) ledgerIs(pod *corev1.Pod, want ...v1alpha1.ContainerLimit) {
	r.Helper()
	if e, _ := restore.ReadEntry(r.ledger(), pod.UID); !kube.SameLimits(e.Limits, want) || e.Pod != pod.Name {
		r.Errorf("the ledger has %+v, want the declared limits %v of %s", e, want, pod.Name)
	}
}

// withoutRecords is a client whose cache shows neither ledgers nor PodAllocations yet.
func (r *rig) withoutRecords() client.Client {
	return interceptor.NewClient(r.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.ConfigMap); ok {
				return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.PodAllocationList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// TestLedgerTroubleHoldsNewPodsOnly: while the ledger cannot be written, a pod whose limits are recorded
// is restored, and a new one waits.
func TestLedgerTroubleHoldsNewPodsOnly(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		old, lost := l.raised("old"), l.raised("lost")
		whole := l.Reconciler.Client
		r.vanish(old, theLedger) // one that is recorded in its PodAllocation alone can be restored, too
		l.Reconciler.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*corev1.ConfigMap); ok { // as if an admission webhook were down
					return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, o.GetName(), context.DeadlineExceeded)
				}
				return c.Create(ctx, o, opts...)
			},
		})
		fresh := r.pod("fresh", "100m", "500m")
		r.publish(lost, "0.000", app(3000))
		r.mode(r.namespace, kube.ModeRestore)
		for range 4 {
			if _, err := l.once(); err != nil {
				t.Errorf("the node is not dealt with: %v", err)
			}
		}
		r.limitIs(old, 500, "restored without a ledger")
		pa := r.stored(fresh)
		if pa == nil || !stands(v1alpha1.PhaseNotApplied, reasons.LimitsNotRecorded)(pa) || recorded(pa) {
			t.Fatalf("allocation of a pod whose limits cannot be recorded: %+v, want the reason and no declared limits", pa)
		}
		version := pa.ResourceVersion
		l.pass(time.Minute)
		if pa := l.look(fresh); pa.ResourceVersion != version {
			t.Errorf("its status was written again: %+v", pa.Status)
		}
		if n := strings.Count(r.log.String(), "not dealt with"); n != 1 {
			t.Errorf("%d lines about the ledger, want one", n)
		}
		l.Reconciler.Client = whole
		r.mode(r.namespace, kube.ModeEnforce)
		l.pass(20 * time.Minute)
		l.settles(fresh, v1alpha1.PhasePending, reasons.NoDecisionYet)
		r.ledgerIs(fresh, app(500))
	})
}

// TestLedgerGoesWithItsNode: the garbage collector deletes it, as its Node owns it.
func TestLedgerGoesWithItsNode(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.newPod("web")
		owned := func(what string) {
			t.Helper()
			if o := r.ledger().OwnerReferences; len(o) != 1 || o[0].UID != r.nodeUID() || o[0].Kind != "Node" {
				t.Errorf("owners of %s %+v, want the node %s", what, o, r.nodeUID())
			}
		}
		owned("a new ledger")
		r.merge(r.ledger(), `{"metadata":{"ownerReferences":null}}`)
		r.live().look(pod)
		owned("one that an earlier version left")
	})
}

// TestStaleCachesLoseNoRecord: a new leader whose caches do not show the records yet reads them from the
// API server, before it takes the template's limits for the declared ones. It does not publish the pod anew.
func TestStaleCachesLoseNoRecord(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := r.templated("web", "600m")
		l.settlesAt(pod, 2000)
		l = r.live()
		whole := l.Reconciler.Client
		l.Reconciler.Client = r.withoutRecords()
		for range 3 {
			l.look(pod)
		}
		l.Reconciler.Client = whole
		l.look(pod)
		for _, w := range l.writes() {
			if strings.Contains(w, "/nodeallocations/") {
				t.Errorf("the pod is published anew: %s", w)
			}
		}
		r.declaredIs(r.stored(pod), app(500))
		r.ledgerIs(pod, app(500))
	})
}

// TestALivingAllocationStays: the pod cache of a new leader may show less than that of PodAllocations.
func TestALivingAllocationStays(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		before := r.stored(pod)
		l = r.live()
		l.Reconciler.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*corev1.PodList); ok {
					return nil
				}
				return c.List(ctx, list, opts...)
			},
		})
		l.look(pod)
		l.pass(kube.CacheLag)
		if now := l.look(pod); now == nil || now.UID != before.UID {
			t.Errorf("the allocation of a living pod became %+v", now)
		}
		r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
		l.pass(kube.CacheLag)
		l.becomes(pod, "gone with its pod", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
	})
}

// TestAnEndedPodCostsNoRequest: the PodAllocation of a deleted pod is left to the garbage collector; one that it leaves
// behind is deleted.
func TestAnEndedPodCostsNoRequest(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		gone, left, stays := l.raised("gone"), l.raised("left"), l.raised("stays")
		l.look(stays)
		for _, pod := range []*corev1.Pod{gone, left} {
			r.must(r.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		}
		gets, deletes := l.requests(http.MethodGet, "/pods/gone"), l.requests(http.MethodDelete, "")
		l.look(stays)
		r.vanish(gone, theAllocation) // as the garbage collector does
		l.look(stays)
		l.pass(2 * kube.CacheLag)
		if pa := l.look(left); pa != nil {
			t.Errorf("the PodAllocation of a pod that is gone stays: %+v", pa.Status)
		}
		gets, deletes = l.requests(http.MethodGet, "/pods/gone")-gets, l.requests(http.MethodDelete, "")-deletes
		if gets != 0 || deletes != 1 {
			t.Errorf("%d GETs of a pod that is gone and %d DELETEs, want none and that of the one left behind", gets, deletes)
		}
	})
}

// TestTheAllocationHasTheRecordFirst: a PodAllocation that has lost the declared limits gets them back before its pod
// is resized. While that is refused, as where another controller has written meanwhile, no resize is requested.
func TestTheAllocationHasTheRecordFirst(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.newPod("web")
		r.setStatus(pod, `{"declaredLimits":null}`)
		r.publish(pod, "0.000", app(2000))
		l.Reconciler.Client = r.onStatus(func(o client.Object) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "podallocations"}, o.GetName(), errLost)
		})
		_, err := l.Reconcile(t.Context(), request(r.kubelet.Node))
		r.must(err)
		if state, _, _ := l.resizes.Standing(pod.UID); state != flowcontrol.None || recorded(r.stored(pod)) {
			t.Errorf("a resize is requested (%v) although its record was refused", state)
		}
		l.Reconciler.Client = r.Client
		l.pass(time.Minute)
		r.declaredIs(l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled), app(500))
	})
}

// TestAFrozenLeaderOverwritesNothing: a leader that is stopped between its decision and its records finds
// that another one has recorded newer declared limits.
func TestAFrozenLeaderOverwritesNothing(t *testing.T) {
	eachInMemory(t, map[string]string{"ledger": "ConfigMap", "status": "PodAllocation"}, func(t *testing.T, r *rig, at string) {
		a, b := r.live(), r.live()
		pod := a.raised("web")
		b.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		frozenAt := at
		frozen := func(what string) error {
			if what == frozenAt {
				frozenAt = ""
				r.resizeAs("another-client", pod, "700m")
				b.becomes(pod, "adopted", func(pa *v1alpha1.PodAllocation) bool {
					return kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(700)})
				})
				b.look(pod) // the ledger follows
			}
			return nil
		}
		onStatus := r.onStatus(func(client.Object) error { return frozen("PodAllocation") })
		a.Reconciler.Client = interceptor.NewClient(onStatus, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, ok := o.(*corev1.ConfigMap); ok {
					r.must(frozen("ConfigMap"))
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
		r.resizeAs("another-client", pod, "900m")
		for range 2 { // the PodAllocation comes first, and then the ledger
			a.look(pod)
		}
		if frozenAt != "" {
			t.Fatal("it was never stopped")
		}
		r.declaredIs(r.stored(pod), app(700))
		if at == "ConfigMap" { // the one that was stopped at the status may write the ledger once more
			r.ledgerIs(pod, app(700))
		}
		a.pass(time.Minute)
		a.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)
		a.look(pod)
		r.declaredIs(r.stored(pod), app(700))
		r.ledgerIs(pod, app(700))
	})
}

// TestHarmIsFoundOnAnyClock: the clock of a node may be minutes off.
func TestHarmIsFoundOnAnyClock(t *testing.T) {
	const off = 3 * time.Minute
	eachInMemory(t, map[string]harm{
		"not Ready behind": {unready, "unready", -off}, "not Ready ahead": {unready, "unready", off},
		"restarted behind": {restarted, "restart", -off}, "restarted ahead": {restarted, "restart", off},
	}, rollsBack)
}

// TestALeaderFromTheFuture: the cool-downs of a leader whose clock was an hour ahead end with it.
func TestALeaderFromTheFuture(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.config.Actuator.DecreaseCooldown = 5 * time.Second
		early := r.live()
		early.pass(time.Hour)
		pod := early.raised("web")
		r.publish(pod, "0.500", app(1500))
		early.gets(pod, 1500)
		r.hear()
		l := r.live()
		l.look(pod)
		r.publish(pod, "0.500", app(1200))
		l.pass(10 * time.Second)
		l.gets(pod, 1200)
	})
}

// TestWipedFieldsHideNoExternalChange: where a pod does not tell which manager wrote its limits, what MBCAS
// saw and sent does.
func TestWipedFieldsHideNoExternalChange(t *testing.T) {
	withController(t, func(_ *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.merge(pod, `{"metadata":{"managedFields":[{}]}}`)
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.publish(pod, "0.000", app(3000))
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.merge(pod, `{"metadata":{"managedFields":[{}]}}`)
		r.limitIs(pod, 3000, "as MBCAS set it")
		r.resizeAs("another-client", pod, "900m")
		r.merge(pod, `{"metadata":{"managedFields":[{}]}}`)
		r.declaredIs(l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange), app(900))
	})
}

// TestACordonIsNoDrain: pods of a cordoned node end and are deleted as anywhere.
func TestACordonIsNoDrain(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod, going := l.raised("web"), l.newPod("going")
		r.merge(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}}, `{"spec":{"unschedulable":true}}`)
		r.merge(going, `{"metadata":{"finalizers":["example.com/wait"]}}`)
		defer r.merge(going, `{"metadata":{"finalizers":null}}`)
		r.must(r.Client.Delete(r.Context(), going))
		before := len(l.writes())
		l.look(pod)
		for _, w := range l.writes()[before:] {
			if strings.HasPrefix(w, http.MethodPatch) && strings.Contains(w, string(pod.UID)) {
				t.Errorf("a pod that is deleted has the others written: %s", w)
			}
		}
		r.publish(pod, "0.000", app(3000))
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	})
}

// TestAnswersOutliveAFailedLook: what came of a resize is known at the next look where the one that took
// the answer could not be finished, also about a pod of which nothing else is remembered.
func TestAnswersOutliveAFailedLook(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l, node := r.live(), request(r.kubelet.Node)
		pod := l.newPod("web")
		l.resizes.Resizer = answer(podresize.PolicyRefused)
		r.publish(pod, "0.000", app(2000))
		_, err := l.Reconcile(t.Context(), node)
		r.must(err)
		l.memory.forget(r.kubelet.Node) // as when the node was another replica's for a moment
		if !l.steps() {
			t.Fatal("no resize is tried")
		}
		l.fail("/api/v1/namespaces/" + r.namespace)
		_, err = l.Reconcile(t.Context(), node)
		r.must(err)
		l.fail("")
		l.pass(10 * time.Second) // the back-off after a failed read is over
		if pa := l.look(pod); pa.Status.Reason != string(reasons.PolicyRefused) || pa.Status.Retry.Failures != 1 {
			t.Errorf("status %+v, want the one refusal", pa.Status)
		}
		if n := strings.Count(r.audit.String(), `"msg":"resize"`); n != 1 {
			t.Errorf("%d attempts, want one", n)
		}
	})
}

// setStatus changes the status of a PodAllocation, as another controller does.
func (r *rig) setStatus(pod *corev1.Pod, patch string) {
	r.Helper()
	r.must(r.Client.Status().Patch(r.Context(), r.stored(pod), client.RawPatch(types.MergePatchType, []byte(`{"status":`+patch+`}`))))
}

// TestLimitsAreRecordedInAContest: while another controller writes a pod's status otherwise, new declared limits
// are recorded all the same.
func TestLimitsAreRecordedInAContest(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.setStatus(pod, `{"message":"as another controller sees it"}`)
		l.look(pod)
		if s := l.look(pod).Status; s.Message != "as another controller sees it" {
			t.Fatalf("no contest: %+v", s)
		}
		r.resizeAs("another-client", pod, "700m")
		l.look(pod)
		r.declaredIs(l.look(pod), app(700))
		r.ledgerIs(pod, app(700))
		since := r.stored(pod).Status.LastExternalChangeTime
		l.pass(time.Minute)
		if s := l.look(pod).Status; !s.LastExternalChangeTime.Equal(&since) || since.IsZero() {
			t.Errorf("changed externally at %v, want %v as before", s.LastExternalChangeTime, since)
		}
	})
}

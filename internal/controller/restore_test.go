package controller

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// restorer restores through the client, under a clock that goes a second ahead whenever it is asked.
func (r *rig) restorer(c client.Client, out *bytes.Buffer) *Restorer {
	now := time.Now()
	return &Restorer{
		Client: c, Resize: podresize.New(c, kube.FieldManager), Namespace: r.config.Namespace, Out: out, Pods: 4,
		Now: func() time.Time { now = now.Add(time.Second); return now }, Look: time.Millisecond,
	}
}

func TestRestoreNamesWhatIsLost(t *testing.T) {
	r := newRig(t)
	lost := r.live(0, false).raised("lost")
	r.vanish(lost, theAllocation)
	r.vanish(lost, theLedger)
	known := r.live(0, false).raised("known")
	never := r.pod("never", "100m", "500m")
	r.resizeAs("somebody", never, "700m")

	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := r.restorer(r.Client, &out).All(ctx)
	want := r.namespace + "/lost: no record of its declared limits; recreate it (DeclaredLimitUnknown)"
	if err == nil || !strings.Contains(err.Error(), "1 of 2 pods") || !strings.Contains(err.Error(), want) || ctx.Err() != nil {
		t.Errorf("error %v (%v), want %q\n%s", err, ctx.Err(), want, out.String())
	}
	for pod, want := range map[*corev1.Pod]int{lost: 2000, known: 500, never: 700} {
		if got := r.limit(pod); got != milli(want) {
			t.Errorf("%s: limit %v, want %dm", pod.Name, got, want)
		}
	}
	r.must(r.Client.Delete(t.Context(), lost, client.GracePeriodSeconds(0)))
	apiserver.WaitGone(t, r.Client, lost)
	if err := r.restorer(r.Client, &out).All(ctx); err != nil {
		t.Errorf("after the lost pod was deleted: %v", err)
	}
}

// TestRestoreWaitsForTheLeader: a leader that lives has to acknowledge the pause before anything is restored; one that
// died holding its Lease has not.
func TestRestoreWaitsForTheLeader(t *testing.T) {
	r := newRig(t)
	pod := r.live(0, false).raised("web")
	for _, c := range []struct {
		name   string
		renews bool
		limit  int
	}{{"lives", true, 2000}, {"died", false, 500}} {
		// An acknowledgement of an earlier pause is no answer to this one.
		r.must(setSwitch(t.Context(), r.Client, r.config.Namespace, kube.AcknowledgedKey, "restore-20261121T120000.000"))
		renewed := time.Now()
		leading := interceptor.NewClient(r.Client, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				lease, ok := o.(*coordinationv1.Lease)
				if !ok {
					return w.Get(ctx, key, o, opts...)
				}
				if c.renews {
					renewed = renewed.Add(time.Second)
				}
				holder, at := "controller-1", metav1.NewMicroTime(renewed)
				lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &at
				return nil
			},
		})
		var out bytes.Buffer
		err := r.restorer(leading, &out).All(t.Context())
		if c.renews {
			if err == nil || !strings.Contains(err.Error(), "rollout restart deployment/mbcas-controller") || !strings.Contains(err.Error(), "controller-1") {
				t.Errorf("a leader that %s: error %v\n%s", c.name, err, out.String())
			}
		} else if err != nil || !strings.Contains(out.String(), "does not renew its Lease") {
			t.Errorf("a leader that %s: %v\n%s", c.name, err, out.String())
		}
		if got := r.limit(pod); got != milli(c.limit) {
			t.Errorf("a leader that %s: limit %v, want %dm", c.name, got, c.limit)
		}
	}
}

// TestRestoreAsksFirst: where admission would add to the pod what can never be removed, restore leaves it and says so.
func TestRestoreAsksFirst(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.kubelet.Run(t, apiserver.Pod(r.namespace, "web", apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "", "")))
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.publish(pod, "0.000", app(2000))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	lr := &corev1.LimitRange{}
	lr.Namespace, lr.Name = r.namespace, "late"
	lr.Spec.Limits = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}}
	r.must(r.Client.Create(t.Context(), lr))
	before := &corev1.Pod{}
	r.must(r.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), before))

	restore := func(within time.Duration) (string, error) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		err := r.restorer(r.Client, &out).All(ctx)
		return out.String(), err
	}
	if out, err := restore(2 * time.Second); err == nil || !strings.Contains(err.Error(), podresize.WouldMutate.String()) {
		t.Errorf("error %v\n%s", err, out)
	}
	got := &corev1.Pod{}
	r.must(r.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), got))
	if got.Generation != before.Generation || len(got.Spec.Containers[1].Resources.Limits) != 0 {
		t.Errorf("the pod was changed: %+v", got.Spec.Containers)
	}
	r.must(r.Client.Delete(t.Context(), lr))
	r.until("restored without the LimitRange", func() (bool, any) { // admission sees the deletion late
		out, err := restore(2 * time.Second)
		return err == nil && r.limit(pod) == 500, out
	})
}

// TestARefusedRestoreBacksOff: in mode restore, a kubelet that refuses is asked again only after the back-off.
func TestARefusedRestoreBacksOff(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web")
	r.kubelet.Answer(pod, apiserver.Refuse)
	r.mode(r.namespace, kube.ModeRestore)
	pa := l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeInfeasible)
	r.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 2000, r.limit(pod) })
	if pa.Status.Retry.Failures != 1 || pa.Status.Retry.Time == nil {
		t.Errorf("status %+v, want one failure and a time to try again", pa.Status)
	}
	declaredIs(t, pa, app(500))
	r.kubelet.Answer(pod, apiserver.Obey)
	before := l.counter.resizes()
	for range 3 {
		l.ahead += r.config.Backoff / 4
		r.hearAt(time.Now().Add(l.ahead))
		l.look(pod)
	}
	if got := l.counter.resizes(); got != before || r.limit(pod) != 2000 {
		t.Errorf("%d resizes within the back-off, limit %v", got-before, r.limit(pod))
	}
	l.ahead += r.config.Backoff
	r.hearAt(time.Now().Add(l.ahead))
	pa = l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
	if r.limit(pod) != 500 || pa.Status.Retry.Failures != 0 {
		t.Errorf("limit %v after the back-off, status %+v", r.limit(pod), pa.Status)
	}
}

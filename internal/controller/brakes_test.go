package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// lowered is a pod that declared 500m and was lowered to 200m.
func (l *life) lowered(name string) *corev1.Pod {
	l.Helper()
	pod := l.newPod(name)
	l.publish(pod, "0.500", app(200))
	l.becomes(pod, "lowered", func(*v1alpha1.PodAllocation) bool { return l.limit(pod) == 200 })
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return pod
}

// TestRaisedRequestIsRestored: a request that was raised in place above the declared limit does not keep
// the pod from being restored: it ends at the request, with the reason, and an opt-out ends, too.
func TestRaisedRequestIsRestored(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.must(r.Client.SubResource("resize").Patch(r.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json",
			[]byte(`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"700m"}}}]}}`)), client.FieldOwner("another-client")))
		r.mode(r.namespace, kube.ModeRestore)
		pa := l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
		r.limitIs(pod, 700, "at the request")
		if want := lifecycle.Sentence(reasons.Restoring,
			"the CPU request of container app was raised above its declared limit of 500m, so its limit is 700m"); pa.Status.Message != want {
			t.Errorf("message %q, want %q", pa.Status.Message, want)
		}
		r.declaredIs(pa, app(500))
		r.label(pod, "false")
		l.becomes(pod, "gone", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
		r.limitIs(pod, 700, "out, at the request")
	})
}

// TestDeafWatchRestoresNothing: where the cache shows an old Lease and the API server a fresh one,
// nothing is restored; nor where the API server does not answer. It is asked once.
func TestDeafWatchRestoresNothing(t *testing.T) {
	type answer struct {
		live  func(*coordinationv1.Lease, time.Time) error
		limit cpu.Milli
		asked int
	}
	eachInMemory(t, map[string]answer{
		"a fresh Lease": {func(l *coordinationv1.Lease, now time.Time) error { l.Spec.RenewTime.Time = now; return nil }, 2000, 1},
		"no answer":     {func(*coordinationv1.Lease, time.Time) error { return errors.New("no answer") }, 2000, 5},
		"the same":      {func(*coordinationv1.Lease, time.Time) error { return nil }, 500, 1},
	}, func(t *testing.T, r *rig, c answer) {
		r.config.Actuator.MaxDecreaseFactor = 100
		l := r.live()
		pod := l.raised("web")
		asked := 0
		l.liveness.Live = interceptor.NewClient(r.Client, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := w.Get(ctx, key, o, opts...); err != nil {
					return err
				}
				asked++
				return c.live(o.(*coordinationv1.Lease), l.Reconciler.Now())
			},
		})
		l.ahead += r.config.RestoreAfter + time.Minute
		for range 5 {
			l.look(pod)
		}
		if c.limit == 500 {
			l.settles(pod, v1alpha1.PhaseRestored, reasons.AgentUnresponsive)
		}
		r.limitIs(pod, c.limit, "once the agent has been unresponsive for long")
		if asked != c.asked {
			t.Errorf("the API server was asked %d times for the Lease, want %d", asked, c.asked)
		}
	})
}

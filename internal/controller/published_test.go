package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
)

// TestPublishesConstraints: of each managed pod, its declared limits and its PodAllocation are
// published to the agent of its node, and nothing of a pod that leaves the market; a NodeAllocation
// that another client deletes is written again.
func TestPublishesConstraints(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		web, idle := r.pod("web", "100m", "500m"), r.pod("idle", "", "")
		r.until("published", func() (bool, any) { p := r.publishedOf(web); return p != nil, p })
		published, pa := r.publishedOf(web), r.stored(web)
		declared := kube.SameLimits(published.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)})
		if published.AllocationUID != pa.UID || !declared || published.Constraints != nil {
			t.Errorf("published %+v, want the declared limits of %s", published, pa.UID)
		}
		if p := r.publishedOf(idle); p != nil {
			t.Errorf("published %+v of a pod that cannot be managed", p)
		}
		n := &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}}
		r.must(r.Client.Delete(t.Context(), n))
		r.until("published again", func() (bool, any) { p := r.publishedOf(web); return p != nil, p })
		r.label(web, "false")
		r.until("published no more", func() (bool, any) { p := r.publishedOf(web); return p == nil, p })
	})
}

// TestRecordsBeforeAPodRuns: when its kubelet is about to start a pod, it has its PodAllocation,
// its declared limits are recorded and published to the agent. Nothing more is written when it
// runs, until something is decided.
func TestRecordsBeforeAPodRuns(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := r.held("web", map[string]string{})
		r.declaredIs(l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet), app(500))
		if p := r.publishedOf(pod); p == nil || !kube.SameLimits(p.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)}) {
			t.Errorf("published %+v", p)
		}
		before := r.stored(pod).ResourceVersion
		r.starts(pod)
		l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
		if after := r.stored(pod).ResourceVersion; after != before {
			t.Errorf("its PodAllocation was written when it ran: version %s, was %s", after, before)
		}
		if n := r.counter.resizes(); n > 0 {
			t.Errorf("%d resizes before any decision", n)
		}
	})
}

// TestAnErrorIsNoNews: what is published of a pod that cannot be read stays, and the others are
// published.
func TestAnErrorIsNoNews(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		bad, good := l.raised("bad"), l.newPod("good")
		before := r.publishedOf(bad)
		l.Live = interceptor.NewClient(r.Client, interceptor.Funcs{Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if key.Name == bad.Name {
				return errors.New("no such luck")
			}
			return c.Get(ctx, key, o, opts...)
		}})
		r.resizeAs("another-client", bad, "700m") // so that it is read again
		r.merge(good, `{"metadata":{"annotations":{"mbcas.io/max-cpu":"900m"}}}`)
		other := r.pod("other", "100m", "500m")
		l.look(other)
		if p := r.publishedOf(bad); p == nil || p.AllocationUID != before.AllocationUID || !strings.Contains(r.log.String(), "no such luck") {
			t.Errorf("published %+v of the pod that cannot be read, want %+v as before", p, before)
		}
		if r.publishedOf(good) == nil || r.publishedOf(other) == nil {
			t.Error("the others are not published")
		}
	})
}

// TestOneWriteForAll: a constraint that comes and goes for all pods of a node costs one write of its
// NodeAllocation each time, and none of a PodAllocation; what an agent says of its market costs none.
func TestOneWriteForAll(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		const pods = 12
		var last *corev1.Pod
		for i := range pods {
			last = r.pod(fmt.Sprint("web-", i), "100m", "500m")
		}
		l.settles(last, v1alpha1.PhasePending, reasons.NoDecisionYet)
		l.look(last)
		ranges := r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("3")})
		l.look(last)
		for i, most := range []string{"2", "1500m", "2"} {
			r.merge(ranges, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"`+most+`"}}]}}`)
			before := len(l.writes())
			l.look(last)
			if w := l.writes()[before:]; len(w) != 1 || !strings.Contains(w[0], "/nodeallocations/") {
				t.Errorf("change %d: writes %v, want one of the NodeAllocation", i, w)
			}
		}
		before := len(l.writes())
		for i := range 5 {
			l.ahead += 30 * time.Second
			r.renews(time.Now().Add(l.ahead), allocation.NodeMarket{Round: uint64(i), Price: 0.5, Demand: 4000, Usage: 3000})
			l.look(last)
		}
		if w := l.writes()[before:]; len(w) != 0 {
			t.Errorf("writes %v while nothing but figures changed", w)
		}
	})
}

// TestUnconfirmedIsNotApplied: a decision that was made long ago is applied when its agent's Lease confirms it,
// and not while the Lease names the pod, or says that there is a later decision than the cache shows.
func TestUnconfirmedIsNotApplied(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.mode(r.namespace, kube.ModeRecommend)
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
		r.publish(pod, "0.000", app(3000))
		l.look(pod)
		renew := func(m allocation.NodeMarket) {
			t.Helper()
			l.ahead += 61 * time.Second
			r.renews(time.Now().Add(l.ahead), m)
			l.look(pod)
		}
		later := allocation.Epoch{Time: time.Now().Add(time.Hour)}
		renew(allocation.NodeMarket{Epoch: later, Unconfirmed: allocation.UnconfirmedOf([]types.UID{pod.UID})})
		r.mode(r.namespace, kube.ModeEnforce)
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
		renew(allocation.NodeMarket{Epoch: later}) // which the cache had a minute to show
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
		r.limitIs(pod, 2000, "while the agent does not stand by its decision")
		renew(allocation.NodeMarket{})
		l.ahead += 20 * time.Second
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.limitIs(pod, 3000, "once the agent stands by its decision")
	})
}

// TestUndecidedIsRaised: a lowered pod that its agent, which lives, does not stand by for five minutes has its
// declared limit again.
func TestUndecidedIsRaised(t *testing.T) {
	withController(t, func(_ *testing.T, r *rig, l *life) {
		pod := l.lowered("web")
		l.ahead += time.Minute // after the last decision
		for i := range 7 {
			r.limitIs(pod, 200, "before five minutes")
			l.ahead += 50 * time.Second
			r.renews(time.Now().Add(l.ahead), allocation.NodeMarket{Unconfirmed: allocation.UnconfirmedOf([]types.UID{pod.UID})})
			if i < 6 {
				l.look(pod)
			}
		}
		l.gets(pod, 500)
	})
}

// TestTighterConstraintsArePublished: while another controller publishes otherwise for the node,
// lower ceilings are published.
func TestTighterConstraintsArePublished(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		ranges := r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("3")})
		l.look(pod)
		n := &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}}
		r.merge(n, `{"spec":{"pods":[]}}`)
		l.look(pod)
		if p := r.publishedOf(pod); p != nil {
			t.Fatalf("no contest: published %+v", p)
		}
		other := r.live()
		other.look(pod)
		r.merge(ranges, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"1500m"}}]}}`)
		l.look(pod)
		if c := r.publishedConstraints(pod); c == nil || c.Ceiling == nil || *c.Ceiling != 1500 {
			t.Errorf("published %+v, want a ceiling of 1500m", c)
		}
	})
}

// lowered is a pod that declared 500m and was lowered to 200m.
func (l *life) lowered(name string) *corev1.Pod {
	l.Helper()
	pod := l.newPod(name)
	l.publish(pod, "0.500", app(200))
	l.becomes(pod, "lowered", func(*v1alpha1.PodAllocation) bool { return l.limit(pod) == 200 })
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return pod
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

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// cached is a namespace with four managed pods of equal demand, as a cache shows it, which a test may
// have behind a quota of ten cores.
type cached struct {
	*testing.T
	r   *Reconciler
	now time.Time
}

func newCached(t *testing.T) *cached {
	t.Helper()
	c := &cached{T: t, now: noon}
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme),
		policyv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(8000)}
	objects := []client.Object{node}
	for i := range 4 {
		pod := running(fmt.Sprintf("web-%d", i), 2000, true)
		pod.ManagedFields = nil // the fake client wants them whole
		pa := allocation.New(pod)
		pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{app(500)}
		pa.Spec.Decision = &v1alpha1.Decision{Demand: 1000}
		objects = append(objects, pod, pa)
	}
	c.r = (&Reconciler{
		Config: DefaultConfig(), Now: func() time.Time { return c.now }, Gate: flowcontrol.NewGate(nil, nil),
		API: API{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()},
	}).Init()
	return c
}

func (c *cached) must(err error) {
	c.Helper()
	must.Succeed(c, err)
}

// shares fails the test where the shares of the four pods, by a quota of that size and use, are not
// all as wanted, or another look is not wanted then.
func (c *cached) shares(what string, hard, used, want cpu.Milli, again time.Duration) {
	c.Helper()
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cores", UID: "q1"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(hard)}
	q.Status.Hard = q.Spec.Hard
	q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(used)}
	look := c.r.quotas.Begin("shop", "n1", c.now)
	n, err := c.r.quotas.Of(c.Context(), &constraints.NamespaceObjects{Quotas: []corev1.ResourceQuota{q}}, look)
	c.must(err)
	var shares []cpu.Milli
	for i := range 4 {
		shares = append(shares, n.Shares[types.UID(fmt.Sprintf("web-%d", i))].Most)
	}
	recheckAt := time.Time{}
	if again > 0 {
		recheckAt = c.now.Add(again)
	}
	if slices.Min(shares) != want || slices.Max(shares) != want || !n.RecheckAt.Equal(recheckAt) {
		c.Errorf("%s: shares %v and another look at %v, want %v and %v", what, shares, n.RecheckAt, want, recheckAt)
	}
}

// shows has the cache show a pod with that limit, in its spec and in force.
func (c *cached) shows(name string, spec, inForce cpu.Milli) {
	c.Helper()
	pod := &corev1.Pod{}
	c.must(c.r.Client.Get(c.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod))
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(spec)}
	c.must(c.r.Client.Update(c.Context(), pod))
	pod.Status.ContainerStatuses[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(inForce)}
	c.must(c.r.Client.Status().Update(c.Context(), pod))
}

// TestAResizeIsNoOtherPod: while the quota shows a resize and the pod not yet, or the other way round,
// all shares stay, as no other pod uses anything; one that the cache shows lowers them at once.
func TestAResizeIsNoOtherPod(t *testing.T) {
	c := newCached(t)
	c.shares("steady", 10000, 8000, 2250, 0)
	c.now = c.now.Add(50 * time.Second) // nothing was looked at for long
	c.shares("raised, in the quota", 10000, 9000, 2250, quota.Lag)
	c.now = c.now.Add(20 * time.Millisecond)
	c.shows("web-0", 3000, 2000)
	c.shares("raised, in both", 10000, 9000, 2250, 0)
	c.shows("web-0", 2000, 3000)
	c.shares("lowered, not in force", 10000, 9000, 2250, 0)
	c.now = c.now.Add(20 * time.Second)
	c.shows("web-0", 2000, 2000)
	c.shares("lowered, in the pod", 10000, 9000, 2250, quota.Lag)
	c.now = c.now.Add(quota.Lag / 2)
	c.shares("and one more", 10000, 9100, 2250, quota.Lag/2)
	c.now = c.now.Add(quota.Lag / 4)
	c.shares("lowered, in both", 10000, 8000, 2250, 0)
	other := running("other", 600, false)
	other.ManagedFields = nil
	c.must(c.r.Client.Create(t.Context(), other))
	c.shares("a new pod", 10000, 8600, 2100, 0)
}

// TestClaim: where a quota is short a pod bids with its request (100m) as its priority counts, half
// for one below 0, without what a coordinator gives it on its node; and a signal only ever raises its
// demand.
func TestClaim(t *testing.T) {
	pod := running("u1", 500, false)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}
	pa := allocation.New(pod)
	pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{app(500)}
	told := &v1alpha1.Constraints{CoordinationPercent: ptr.To(int32(200))}
	pa.Spec.Decision = &v1alpha1.Decision{Demand: 400}
	n := &constraints.NamespaceObjects{}
	for priority, want := range map[int32]market.Budget{-1: 50, 0: 100, 4000: 200} {
		pod.Spec.Priority = &priority
		if got := allocation.QuotaClaim(n, pod, pa, told, 4000).Budget; got != want {
			t.Errorf("priority %d: budget %d, want %d", priority, got, want)
		}
	}
	db := kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}
	for percent, want := range map[int32]cpu.Milli{50: 400, 100: 400, 250: 1000} {
		n.Signals = []constraints.Signal{{Name: "db", Target: db, Percent: percent}}
		if got := allocation.QuotaClaim(n, pod, pa, told, 4000).Demand; got != want {
			t.Errorf("at %d %% a demand of 400m counts as %v, want %v", percent, got, want)
		}
	}
}

// quota makes a quota on CPU limits.
func (r *rig) quota(hard string) *corev1.ResourceQuota {
	r.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "cores"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(hard)}
	r.must(r.Client.Create(r.Context(), q))
	return q
}

// counts reports so much as used, as the quota controller does.
func (r *rig) counts(q *corev1.ResourceQuota, used string) {
	r.Helper()
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(used)}
	r.must(r.Client.Status().Update(r.Context(), q))
}

// used is what the quota counts.
func (r *rig) used(q *corev1.ResourceQuota) cpu.Milli {
	r.Helper()
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(q), q))
	return kube.Milli(q.Status.Used[corev1.ResourceLimitsCPU])
}

// TestARestoreTakesWhatThereIs: a restore or a rollback that the quota has no room for goes as far as
// it has, is not done until it is exact, and is completed when there is room.
func TestARestoreTakesWhatThereIs(t *testing.T) {
	for name, c := range map[string]struct {
		begin  func(*rig, *corev1.Pod)
		phase  v1alpha1.Phase
		reason reasons.Reason
	}{
		"restore":  {func(r *rig, _ *corev1.Pod) { r.mode(r.namespace, kube.ModeRestore) }, v1alpha1.PhaseRestored, reasons.Restoring},
		"rollback": {func(r *rig, pod *corev1.Pod) { r.harm(pod, unready) }, v1alpha1.PhaseApplied, reasons.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, pod := r.lowered()
				q := r.quota("2")
				r.counts(q, "1400m")    // other pods have 1200m of it
				l.pass(2 * time.Second) // so it has run for long
				c.begin(r, pod)
				pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.WaitingForQuota)
				if got := r.used(q); got != 2000 {
					t.Errorf("%v of the quota are used, want all of it", got)
				}
				r.limitIs(pod, 800, "for which there is room")
				r.declaredIs(pa, app(1000))
				if l.look(pod); r.stored(pod).Status.Phase != v1alpha1.PhaseNotApplied || l.counter.resizes() == 0 {
					t.Errorf("status %+v", r.stored(pod).Status)
				}
				r.counts(q, "800m") // the others have gone
				s := l.settles(pod, c.phase, c.reason).Status
				r.limitIs(pod, 1000, "as declared")
				if undone := s.Rollback.Limits == nil && !s.Rollback.LastHarmfulDecreaseTime.IsZero(); undone != (name == "rollback") {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// TestSharesAreLookedAtAgain: where the quota alone shows that other pods took from it, the pod is
// looked at again though nothing happens then.
func TestSharesAreLookedAtAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.newPod("web")
		q := r.quota("2")
		share := func(used string, want cpu.Milli) {
			t.Helper()
			r.counts(q, used)
			l.look(pod)
			if c := r.publishedConstraints(pod); c == nil || c.Ceiling == nil || *c.Ceiling != want {
				t.Errorf("constraints %+v, want a ceiling of %v", c, want)
			}
		}
		share("500m", 1800)
		share("1", 1800)
		result, err := l.once()
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > quota.Lag {
			t.Errorf("another look after %v (%v), want one within %v", result.RequeueAfter, err, quota.Lag)
		}
		l.ahead = quota.Lag
		share("1", 1300)
	})
}

// TestNoWakeUpIsLost: a pod that waits for a quota is looked at again soon if the quota was used less while the
// pod was looked at, as that may have been after the quota was read. Else the quota's usage has it looked at.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, refused := range map[string]bool{"no room": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, pod := r.lowered()
				q := r.quota("2")
				used := "2"
				if refused {
					used = "100m"
					l.resizes.Resizer = fakeResizer{Resizer: l.resizes.Resizer, apply: func(*corev1.Pod, func() podresize.Result) podresize.Result {
						return podresize.Result{Outcome: podresize.QuotaExceeded, Message: "exceeded quota"}
					}}
				}
				r.counts(q, used)
				r.mode(r.namespace, kube.ModeRestore)
				awaits := func() bool {
					return r.stored(pod).Status.Phase == v1alpha1.PhaseNotApplied || r.stored(pod).Status.Phase == v1alpha1.PhaseFailed
				}
				var meanwhile cpu.Milli // used when the quota has been read
				l.Reconciler.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						err := c.List(ctx, list, opts...)
						if _, ok := list.(*corev1.ResourceQuotaList); ok && meanwhile > 0 {
							now := q.DeepCopy()
							now.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(meanwhile)}
							l.quotas.Used(q, now, l.Now())
						}
						return err
					},
				})
				after := func() time.Duration {
					result, err := l.once()
					r.must(err)
					return result.RequeueAfter
				}
				for i := 0; i < 30 && !awaits(); i++ {
					after()
				}
				for used, soon := range map[cpu.Milli]bool{0: false, 50: true, 3000: false} {
					meanwhile = used
					if got := after(); !awaits() || got <= 0 || (got <= time.Second) != soon {
						t.Errorf("looked at again after %v where the quota's usage became %v meanwhile, want soon: %v; %+v",
							got, used, soon, r.stored(pod).Status)
					}
				}
			})
		})
	}
}

// TestQuotaIsNeverExceeded: pods on two nodes that demand more than their namespace's quota has get what
// it leaves, by the real quota controller's count, without a refusal; a new pod finds the part that
// stays free, and what it takes is given back.
func TestQuotaIsNeverExceeded(t *testing.T) {
	r := newRig(t)
	r.Controllers(t, "resourcequota-controller")
	q := r.quota("4")
	r.until("counted", func() (bool, any) { r.used(q); return q.Status.Used != nil, q.Status })
	second := *r
	second.kubelet = r.Kubelet(t, r.kubelet.Node+"-2")
	var pods []*corev1.Pod
	for i := range 8 {
		on := []*rig{r, &second}[i%2]
		pods = append(pods, on.pod(fmt.Sprint("web-", i), "50m", "200m"))
	}
	var refused atomic.Int64
	r.start(func(re *Reconciler) {
		re.resizes.Resizer = fakeResizer{Resizer: re.resizes.Resizer, apply: func(_ *corev1.Pod, next func() podresize.Result) podresize.Result {
			result := next()
			if result.Outcome == podresize.QuotaExceeded {
				refused.Add(1)
			}
			return result
		}}
	})
	decide := func(busy int) { // the market gives every pod what the constraints allow
		t.Helper()
		r.hear()
		second.hear()
		for i, pod := range pods {
			d := v1alpha1.Decision{Demand: 20, Budget: 50, Floor: 60, Ceiling: 4000, BoundBy: v1alpha1.BoundByCeiling}
			if i/2 == busy {
				d.Demand = 1000
			}
			limit := cpu.Milli(200)
			r.allocation(pod, "made", recorded)
			if c := r.publishedConstraints(pod); c != nil && c.IncreaseOnNeed {
				limit = *c.Ceiling
			}
			r.decide(pod, d, app(limit))
		}
	}
	for turn := range atlength.Of(2, 8) { // of the four pairs
		for range atlength.Of(5, 10) {
			decide(turn % 4)
		}
		if u := r.used(q); u > 3600 {
			t.Errorf("turn %d: %v of 4 cores are used, want a tenth free", turn, u)
		}
	}
	r.until("what the quota leaves is given", func() (bool, any) { decide(3); u := r.used(q); return u >= 3400, u })
	r.pod("new", "50m", "390m") // fits what is free
	r.until("a tenth is free again", func() (bool, any) { decide(3); u := r.used(q); return u <= 3600, u })
	if n := refused.Load(); n > 0 {
		t.Errorf("%d refusals by the quota", n)
	}
}

// lowered is a pod in a namespace of its own that declares 1000m and has 200m.
func (r *rig) lowered() (*life, *corev1.Pod) {
	r.Helper()
	r.namespace = r.Namespace(r)
	r.mode(r.namespace, kube.ModeEnforce)
	l := r.live()
	pod := r.pod("web", "100m", "1")
	l.settlesAt(pod, 1000)
	r.publish(pod, "0.500", app(200))
	l.gets(pod, 200)
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return l, pod
}

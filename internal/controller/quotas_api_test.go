package controller

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// crowd makes a quota of two cores whose room others have taken, all but 600m, and a pod that was declared 1000m and lowered to 200m.
func (l *life) crowd(name string) (pod, others *corev1.Pod) {
	l.Helper()
	pod = l.rig.pod(name, "100m", "1")
	l.settlesAt(pod, 200)
	others = apiserver.Pod(l.namespace, "others-"+name, apiserver.Container("app", "100m", "1200m"))
	others.Labels = map[string]string{kube.ManagedKey: "false"}
	others = l.kubelet.Run(l.T, others)
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = l.namespace, "cores-"+name
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("2")}
	l.must(l.rig.Client.Create(l.Context(), q))
	l.counts(q.Name, "1400m")
	return pod, others
}

// counts waits until the quota counts that much.
func (l *life) counts(quota, used string) {
	l.Helper()
	want := resource.MustParse(used)
	l.until("the quota counts "+used, func() (bool, any) {
		q := &corev1.ResourceQuota{}
		l.must(l.rig.Client.Get(l.Context(), client.ObjectKey{Namespace: l.namespace, Name: quota}, q))
		got := q.Status.Used[corev1.ResourceLimitsCPU]
		return got.Cmp(want) == 0, q.Status
	})
}

// TestARestoreTakesWhatThereIs: a restore that the quota has no room for goes as far as it has, is not done until it is exact, and
// is completed when there is room.
func TestARestoreTakesWhatThereIs(t *testing.T) {
	r := newRig(t)
	r.Controllers(t, "resourcequota-controller")
	l := r.live(0, false)
	pod, others := l.crowd("web")
	r.mode(r.namespace, kube.ModeRestore)
	pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.WaitingForQuota)
	l.counts("cores-web", "2")
	if got := r.limit(pod); got != 800 {
		t.Errorf("limit %v, want the 800m that there is room for", got)
	}
	declaredIs(t, pa, app(1000))
	if l.look(pod); r.stored(pod).Status.Phase != v1alpha1.PhaseNotApplied || l.counter.resizes() == 0 {
		t.Errorf("status %+v", r.stored(pod).Status)
	}
	r.must(r.Client.Delete(t.Context(), others, client.GracePeriodSeconds(0)))
	l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
	if got := r.limit(pod); got != 1000 {
		t.Errorf("limit %v, want 1000m", got)
	}
}

// TestSharesAreLookedAtAgain: where the quota alone shows that others took from it, the pod's share comes down once that has lasted, though
// nothing happens then.
func TestSharesAreLookedAtAgain(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.pod("web", "100m", "500m")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = r.namespace, "cores"
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("2")}
	r.must(r.Client.Create(t.Context(), q))
	counts := func(used string) {
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(used)}
		r.must(r.Client.Status().Update(t.Context(), q))
	}
	share := func(want int) {
		t.Helper()
		if terms := l.look(pod).Status.Constraints; terms == nil || terms.Ceiling == nil || *terms.Ceiling != milli(want) {
			t.Errorf("terms %+v, want a ceiling of %dm", terms, want)
		}
	}
	counts("500m")
	share(1800)
	counts("1")
	result, err := l.once()
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > quota.Lag {
		t.Errorf("another look after %v (%v), want one within %v", result.RequeueAfter, err, quota.Lag)
	}
	share(1800)
	l.ahead = quota.Lag
	share(1300)
}

// TestQuotaIsNeverExceeded: twenty pods that want more than their namespace's quota has get what it leaves, by the real quota
// controller's count, without a refusal; a new pod finds the part that stays free, and what it takes is given back.
func TestQuotaIsNeverExceeded(t *testing.T) {
	r := newRig(t)
	r.Controllers(t, "resourcequota-controller")
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = r.namespace, "compute"
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("10")}
	r.must(r.Client.Create(r.Context(), q))
	used := func() int64 {
		t.Helper()
		r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(q), q))
		u := q.Status.Used[corev1.ResourceLimitsCPU]
		return u.MilliValue()
	}
	r.until("counted", func() (bool, any) { used(); return q.Status.Used != nil, q.Status })
	var pods []*corev1.Pod
	for i := range 20 {
		pods = append(pods, r.pod("web-"+string(rune('a'+i)), "50m", "200m"))
	}
	refused := 0
	r.start(func(re *Reconciler) { re.Resize = watching{re.Resize, &refused} })
	for _, pod := range pods {
		r.allocation(pod, "told", func(pa *v1alpha1.PodAllocation) bool {
			return pa.Status.Constraints != nil && pa.Status.Constraints.IncreaseOnNeed
		})
	}
	want := func(busy int, demand int) { // the market gives everybody what the terms allow
		t.Helper()
		r.hear()
		for i, pod := range pods {
			pa := r.stored(pod)
			before := pa.DeepCopy()
			limit := *pa.Status.Constraints.Ceiling
			d := 20
			if i%4 == busy {
				d = demand
			}
			pa.Spec.DesiredCPULimit, pa.Spec.Containers = &limit, []v1alpha1.ContainerLimit{app(limit)}
			pa.Spec.Decision = &v1alpha1.Decision{
				Demand: milli(d), Budget: 50, Price: 0.000, Floor: 60, Ceiling: 4000, BoundBy: v1alpha1.BoundByCeiling, ObservedAt: metav1.NowMicro(),
			}
			r.must(r.Client.Patch(r.Context(), pa, client.MergeFrom(before)))
		}
	}
	turns := 4 // of the four groups, with MBCAS_LONG=1 each twice
	if os.Getenv("MBCAS_LONG") != "" {
		turns = 8
	}
	for turn := range turns {
		end := time.Now().Add(3 * time.Second)
		for time.Now().Before(end) {
			want(turn%4, 1000)
		}
		if u := used(); u > 9000 {
			t.Errorf("turn %d: %dm of 10 cores are used, want a tenth free", turn, u)
		}
	}
	r.until("what the quota leaves is given", func() (bool, any) { want(3, 1000); u := used(); return u >= 8500, u })
	r.pod("new", "50m", "900m") // fits what is free
	r.until("a tenth is free again", func() (bool, any) { want(3, 1000); u := used(); return u <= 9000, u })
	if refused > 0 {
		t.Errorf("%d refusals by the quota", refused)
	}
}

// watching counts refusals by quotas.
type watching struct {
	Resizer
	refused *int
}

func (w watching) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	result := w.Resizer.Apply(ctx, pod, move)
	if result.Outcome == podresize.QuotaExceeded {
		*w.refused++
	}
	return result
}

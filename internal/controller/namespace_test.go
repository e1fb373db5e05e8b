package controller

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func cpus(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
}

func (r *rig) limitRange(items ...corev1.LimitRangeItem) *corev1.LimitRange {
	r.Helper()
	lr := &corev1.LimitRange{}
	lr.Namespace, lr.Name, lr.Spec.Limits = r.namespace, "limits", items
	r.must(r.Client.Create(r.Context(), lr))
	return lr
}

// TestNewlyLabelledPodsAreLowered: a pod that has run for long is not taken for one that starts when
// its namespace becomes managed.
func TestNewlyLabelledPodsAreLowered(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.config.StartGrace = time.Minute
		r.mode(r.namespace, kube.ModeOff)
		l := r.live()
		pod := r.pod("web", "100m", "500m")
		l.look(pod)
		l.pass(10 * time.Minute)
		l.look(pod)
		r.mode(r.namespace, kube.ModeEnforce)
		l.becomes(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return pa != nil })
		r.publish(pod, "0.500", app(400))
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		l.limitIs(pod, 400, "at once, since it does not start")
	})
}

// TestLimitRangeBinds: limits stay within what the namespace's LimitRanges allow, and a pod that no
// resize could pass is skipped with the reason, without a try.
func TestLimitRangeBinds(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "200m", "300m")
	mixed := r.kubelet.Run(t, apiserver.Pod(r.namespace, "mixed", apiserver.Container("app", "200m", "300m"), apiserver.Container("big", "2600m", "2700m")))
	ranges := r.limitRange(corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer, Min: cpus("150m"), Max: cpus("2500m"), MaxLimitRequestRatio: cpus("8"),
		Default: cpus("500m"), DefaultRequest: cpus("150m"),
	}, corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("1400m")})
	c := r.constraints(pod, "constrained")
	if *c.Containers[0].Floor != 150 || *c.Containers[0].Ceiling != 1600 || *c.Ceiling != 1400 || c.CeilingBy != "LimitRange/limits" {
		t.Errorf("constraints %+v", c)
	}
	r.publish(pod, "0.000", app(4000))
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	r.limitIs(pod, 1400, "as the LimitRange allows for a pod")
	r.publish(mixed, "0.000", app(1000), v1alpha1.ContainerLimit{Name: "big", CPULimit: 3000})
	pa := r.allocation(mixed, "skipped", stands(v1alpha1.PhaseNotApplied, reasons.LimitRangeRefused))
	if !strings.Contains(pa.Status.Message, "container big") || !strings.Contains(pa.Status.Message, "LimitRange limits") {
		t.Errorf("message %q: want the container and the LimitRange", pa.Status.Message)
	}
	if strings.Contains(r.audit.String(), `"pod":"mixed"`) {
		t.Error("a resize was tried that cannot pass")
	}
	r.must(r.Client.Delete(r.Context(), ranges))
	r.allocation(mixed, "applied without the LimitRange", stands(v1alpha1.PhaseApplied, reasons.Settled))
}

// TestAdmissionChangesNoMore: no resize is stored with which admission would change more than the
// limit. Defaults of a LimitRange, which would stay on another container for good, are found
// without a try, and what a webhook changes by a dry run.
func TestAdmissionChangesNoMore(t *testing.T) {
	r := newRig(t)
	l := r.live()
	containers := []corev1.Container{apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "", "")}
	pod := r.kubelet.Run(t, apiserver.Pod(r.namespace, "web", containers...))
	refused := func(pod *corev1.Pod, phase v1alpha1.Phase) {
		t.Helper()
		r.publish(pod, "0.000", app(2000))
		l.settles(pod, phase, reasons.AdmissionWouldMutate)
		if got := r.read(pod); got.Generation != pod.Generation {
			t.Errorf("the pod was changed: %+v", got.Spec.Containers)
		}
	}
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	ranges := r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: memory})
	refused(pod, v1alpha1.PhaseNotApplied)
	r.must(r.Client.Delete(t.Context(), ranges))

	fresh := l.newPod("fresh")
	const request = "/spec/containers/0/resources/requests/cpu"
	r.MutateResizes(t, r.namespace, apiserver.Change{Op: "replace", Path: request, Value: "50m"})
	r.until("the API server knows the webhook", func() (bool, any) {
		move := actuator.Move{UID: string(fresh.UID), Changes: []actuator.Change{{Container: "app", From: 500, To: 1000}}}
		got := l.counter.DryRun(t.Context(), fresh, move)
		return got.Outcome == podresize.WouldMutate, got
	})
	refused(fresh, v1alpha1.PhaseFailed)
}

// TestFirstResizeIsTriedDry: whether admission would change more than the limit is asked before the
// first resize, once for each pod and set of LimitRanges. What admission changes then:
// TestAdmissionChangesNoMore.
func TestFirstResizeIsTriedDry(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l, runs := r.live(), 0
		l.resizes.Resizer = fakeResizer{Resizer: l.counter, dry: func(_ *corev1.Pod, next func() podresize.Result) podresize.Result {
			runs++
			return next()
		}}
		pod := l.raised("web")
		l.settlesAt(pod, 3000)
		if runs != 1 {
			t.Errorf("%d dry runs for two resizes, want one", runs)
		}
		r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("4")})
		l.settlesAt(pod, 2000)
		l.settlesAt(pod, 3000)
		if runs != 2 {
			t.Errorf("%d dry runs after a LimitRange came, want two", runs)
		}
	})
}

// TestRetriesOnceTheCauseIsGone: what was refused for the sake of a LimitRange or a quota waits to be
// tried again only while that stands, also across a restart.
func TestRetriesOnceTheCauseIsGone(t *testing.T) {
	room := func(r *rig, q *corev1.ResourceQuota, hard, used string) {
		r.merge(q, `{"spec":{"hard":{"limits.cpu":"`+hard+`"}}}`)
		status := `{"status":{"hard":{"limits.cpu":"` + hard + `"},"used":{"limits.cpu":"` + used + `"}}}`
		r.must(r.Client.Status().Patch(r.Context(), q, client.RawPatch(types.MergePatchType, []byte(status))))
	}
	type refusal struct {
		outcome podresize.Outcome
		reason  reasons.Reason
		goes    func(*rig, *corev1.ResourceQuota)
	}
	eachInMemory(t, map[string]refusal{
		"limit-range": {podresize.LimitRangeRefused, reasons.LimitRangeRefused, func(r *rig, _ *corev1.ResourceQuota) {
			r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("3")})
		}},
		"larger-quota": {podresize.QuotaExceeded, reasons.QuotaExceeded, func(r *rig, q *corev1.ResourceQuota) { room(r, q, "40", "7") }},
		"freed-quota":  {podresize.QuotaExceeded, reasons.QuotaExceeded, func(r *rig, q *corev1.ResourceQuota) { room(r, q, "30", "3") }},
	}, func(_ *testing.T, r *rig, c refusal) {
		q := r.quota("30")
		room(r, q, "30", "5") // and what the pod has
		l := r.live()
		pod := l.newPod("web")
		l.resizes.Resizer = answer(c.outcome)
		r.publish(pod, "0.000", app(2000))
		l.settles(pod, v1alpha1.PhaseFailed, c.reason)
		l.resizes.Resizer = l.counter
		room(r, q, "30", "7") // less is left than before
		l.look(pod)
		l = r.live()
		l.look(pod)
		l.look(pod)
		r.limitIs(pod, 500, "while the cause stands")
		c.goes(r, q)
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.limitIs(pod, 2000, "once the cause is gone")
	})
}

func hpa(namespace, name string, target kube.Target, percent int32) *autoscalingv2.HorizontalPodAutoscaler {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: target.APIVersion, Kind: target.Kind, Name: target.Name}
	h.Spec.MaxReplicas = 5
	h.Spec.Metrics = []autoscalingv2.MetricSpec{{
		Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}}
	return h
}

// TestHPAPodsAreNotLowered: a pod that an HPA scales is raised to where the HPA can see its load, and
// is not lowered unless the HPA's owner allows it; then seldom, and not below that.
func TestHPAPodsAreNotLowered(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		low, high := r.ownedPod("web", "low", "200m", "220m"), r.ownedPod("web", "high", "200m", "900m")
		other := r.ownedPod("other", "other", "200m", "900m")
		web := hpa(r.namespace, "web", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, 150)
		r.must(r.Client.Create(r.Context(), web))

		c := r.constraints(low, "constrained") // 200m x 150 % x 1.2
		if len(c.Containers) != 1 || *c.Containers[0].Floor != 360 || c.FloorBy != "HorizontalPodAutoscaler/web" || c.NoDecrease != string(reasons.ScaledByHPA) {
			t.Errorf("constraints %+v", c)
		}
		r.constraints(high, "constrained")
		r.allocation(other, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))

		// The agent may not have seen the constraints yet, so it decides as if there were none.
		for _, pod := range []*corev1.Pod{low, high, other} {
			r.decide(pod, capped(v1alpha1.BoundByFloor), app(220))
		}
		r.allocation(low, "raised", stands(v1alpha1.PhaseApplied, reasons.ScaledByHPA))
		r.allocation(high, "left", stands(v1alpha1.PhaseApplied, reasons.ScaledByHPA))
		r.until("the other is lowered", func() (bool, any) { return r.limit(other) < 900, r.limit(other) })
		r.limitIs(low, 360, "at the floor")
		r.limitIs(high, 900, "as before")

		r.annotate(web, kube.AllowDecreaseKey, "true")
		r.allocation(high, "lowered once", stands(v1alpha1.PhaseNotApplied, reasons.StepLimited))
		r.limitIs(high, 600, "one step down")
	})
}

// TestNeverBelowDeclared: while a namespace forbids it, no limit of it stays or goes below the declared
// one, whatever its agent decides. Other decreases go on.
func TestNeverBelowDeclared(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		pod := r.ownedPod("web", "web", "200m", "600m")
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
		r.decide(pod, capped(v1alpha1.BoundByPrice), app(500))
		r.reaches(pod, 500)

		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
		r.annotate(ns, kube.BelowDeclaredKey, kube.BelowDeclaredNever)
		c := r.constraints(pod, "constrained")
		if len(c.Containers) != 1 || *c.Containers[0].Floor != 600 || c.FloorBy != "Namespace/"+r.namespace {
			t.Errorf("constraints %+v", c)
		}
		r.reaches(pod, 600) // though the decision is still 500m

		r.decide(pod, capped(v1alpha1.BoundByNothing), app(800))
		r.reaches(pod, 800)
		r.decide(pod, capped(v1alpha1.BoundByPrice), app(300))
		r.reaches(pod, 600)
	})
}

// TestMaxRaise: no limit rises above the multiple of its declared limit which the installation, its namespace or its pod
// allows, whatever its agent decides, and one that is above comes down.
func TestMaxRaise(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		pod := r.ownedPod("web", "web", "100m", "200m")
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
		r.decide(pod, capped(v1alpha1.BoundByNothing), app(1800))
		r.reaches(pod, 1600)

		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
		r.annotate(ns, kube.MaxRaiseKey, "4")
		if c := r.constraints(pod, "constrained"); c.MaxRaise == nil || *c.MaxRaise != 4 {
			t.Errorf("constraints %+v", c)
		}
		r.reaches(pod, 800) // though the decision is still 1800m
		r.annotate(pod, kube.MaxRaiseKey, "9")
		r.reaches(pod, 1800)
	})
}

// TestNoDisruptionNoDecrease: while a PodDisruptionBudget allows no disruption, as the real controller
// counts it, no pod of it is lowered.
func TestNoDisruptionNoDecrease(t *testing.T) {
	r := newRig(t)
	r.Controllers(t, "disruption-controller")
	var ahead atomic.Int64
	r.start(clockAhead(&ahead))
	one := r.ownedPod("web", "one", "200m", "900m")
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "web"}}
	least := intstr.FromInt32(1)
	pdb.Spec.MinAvailable, pdb.Spec.Selector = &least, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	r.must(r.Client.Create(r.Context(), pdb))
	c := r.constraints(one, "constrained")
	if c.NoDecrease != string(reasons.NoDisruptionAllowed) {
		t.Errorf("constraints %+v", c)
	}
	r.decide(one, capped(v1alpha1.BoundByFloor), app(700))
	r.allocation(one, "left", stands(v1alpha1.PhaseApplied, reasons.NoDisruptionAllowed))
	r.limitIs(one, 900, "as before")
	r.ownedPod("web", "two", "200m", "900m") // now one of them may go
	r.until("a disruption is allowed", func() (bool, any) {
		r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pdb), pdb))
		return pdb.Status.DisruptionsAllowed == 1, pdb.Status
	})
	d := capped(v1alpha1.BoundByFloor)
	r.until("it is allowed for long enough, also in the cache of the controller", func() (bool, any) {
		ahead.Add(int64(10 * time.Second))
		d.Usage++ // another decision
		r.decide(one, d, app(700))
		got := r.limit(one)
		return got == 700, got
	})
	if ahead.Load() < int64(4*time.Minute) {
		t.Errorf("it was lowered after %v", time.Duration(ahead.Load()))
	}
}

// priorityClass makes a class, and waits until the API server gives its priority to pods.
func (r *rig) priorityClass(name string, value int32, byDefault bool) *schedulingv1.PriorityClass {
	r.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: byDefault}
	r.CreateUntilEnd(r, class)
	r.until("class "+name+" is known", func() (bool, any) {
		pod := apiserver.Pod(r.namespace, "probe", apiserver.Container("app", "200m", "500m"))
		if pod.Spec.PriorityClassName = name; byDefault {
			pod.Spec.PriorityClassName = ""
		}
		err := r.Client.Create(r.Context(), pod, client.DryRunAll)
		return err == nil && pod.Spec.Priority != nil && *pod.Spec.Priority == value, err
	})
	return class
}

// TestAFlappingBudget: a PodDisruptionBudget that allows a disruption and then none, again and again,
// costs one write for all pods of a node when it first allows none, and one when it has allowed one for
// five minutes.
func TestAFlappingBudget(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "web"}}
		least := intstr.FromInt32(1)
		pdb.Spec.MinAvailable, pdb.Spec.Selector = &least, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		r.must(r.Client.Create(t.Context(), pdb))
		set := func(allowed int32) {
			t.Helper()
			before := pdb.DeepCopy()
			pdb.Status.DisruptionsAllowed, pdb.Status.ObservedGeneration = allowed, pdb.Generation
			poddisruptionbudget.UpdateDisruptionAllowedCondition(pdb)
			pdb.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(l.ahead))
			r.must(r.Client.Status().Patch(t.Context(), pdb, client.MergeFrom(before)))
		}
		set(1)
		l.ahead += 10 * time.Minute
		r.hearAt(time.Now().Add(l.ahead))
		const pods = 5
		var last *corev1.Pod
		for i := range pods {
			last = r.ownedPod("web", fmt.Sprint("web-", i), "100m", "500m")
		}
		l.becomes(last, "recorded", recorded)
		l.look(last)
		constrained := func(want string) {
			t.Helper()
			got := ""
			if c := r.publishedConstraints(last); c != nil {
				got = c.NoDecrease
			}
			if got != want {
				t.Errorf("no decrease because of %q, want %q", got, want)
			}
		}
		constrained("")
		before := len(l.writes())
		for range 20 {
			for _, allowed := range []int32{0, 1} {
				l.pass(10 * time.Second)
				set(allowed)
				l.look(last)
				constrained(string(reasons.NoDisruptionAllowed))
			}
		}
		result, err := l.once()
		r.must(err)
		if after := result.RequeueAfter; after > 5*time.Minute {
			t.Errorf("the next look is in %v, when the budget could have allowed disruptions for five minutes", after)
		}
		l.pass(5*time.Minute + time.Second)
		l.look(last)
		constrained("")
		if w := l.writes()[before:]; len(w) != 2 {
			t.Errorf("%d writes, want two for %d pods: %v", len(w), pods, w)
		}
	})
}

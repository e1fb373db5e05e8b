package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func (r *rig) limitRange(items ...corev1.LimitRangeItem) *corev1.LimitRange {
	r.Helper()
	lr := &corev1.LimitRange{}
	lr.Namespace, lr.Name, lr.Spec.Limits = r.namespace, "limits", items
	r.must(r.Client.Create(r.Context(), lr))
	return lr
}

// TestWhatALimitRangeBarsIsNotTried: neither a floor above its request, nor a pod or an init container that is out of range, has
// a resize tried that the API server cannot but refuse.
func TestWhatALimitRangeBarsIsNotTried(t *testing.T) {
	r := newRig(t)
	r.limitRange(
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("1")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("1500m")},
	)
	l := r.live(0, false)
	r.until("the API server knows the LimitRange", func() (bool, any) {
		pod := apiserver.Pod(r.namespace, "probe", apiserver.Container("app", "1", "2"))
		pod.Spec.NodeName = r.kubelet.Node
		err := r.Client.Create(t.Context(), pod, client.DryRunAll)
		return err != nil, err
	})
	full := r.pod("full", "1", "1")
	l.settlesAt(full, 1010) // as an agent decides that does not know better
	l.settles(full, v1alpha1.PhaseApplied, reasons.Settled)
	if got, tries := r.limit(full), strings.Count(r.log.String(), `"pod":"full"`); got != 1000 || tries != 0 {
		t.Errorf("limit %v after %d tries, want 1 and none", got, tries)
	}

	r.must(r.Client.Delete(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "limits"}}))
	init := apiserver.Pod(r.namespace, "init", apiserver.Container("app", "100m", "500m"))
	init.Spec.InitContainers = []corev1.Container{apiserver.Container("migrate", "1", "2")}
	var pod *corev1.Pod
	r.until("the API server knows that the LimitRange is gone", func() (bool, any) {
		err := r.Client.Create(t.Context(), init.DeepCopy(), client.DryRunAll)
		return err == nil, err
	})
	pod = r.kubelet.Run(t, init)
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	for kind, says := range map[corev1.LimitType]string{
		corev1.LimitTypeContainer: "container migrate: its cpu limit is above the maximum 1500m of LimitRange limits",
		corev1.LimitTypePod:       "the whole pod: its cpu limit is above the maximum 1500m of LimitRange limits",
	} {
		lr := r.limitRange(corev1.LimitRangeItem{Type: kind, Max: cpus("1500m")})
		r.publish(pod, "0.000", app(1000))
		pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.LimitRangeRefused)
		if !strings.Contains(pa.Status.Message, says) {
			t.Errorf("message %q, want %q", pa.Status.Message, says)
		}
		r.must(r.Client.Delete(t.Context(), lr))
	}
	if tries := strings.Count(r.log.String(), `"pod":"init"`); tries != 0 {
		t.Errorf("%d tries of a resize that cannot pass", tries)
	}
}

// dry counts dry runs.
type dry struct {
	Resizer
	runs *int
}

func (d dry) DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	*d.runs++
	return d.Resizer.DryRun(ctx, pod, move)
}

// TestFirstResizeIsTriedDry: what admission adds to a resize is found before anything is stored, and once for each pod and set of LimitRanges.
func TestFirstResizeIsTriedDry(t *testing.T) {
	r := newRig(t)
	l, runs := r.live(0, false), 0
	l.Resize = dry{l.Resize, &runs}
	pod := l.raised("web")
	l.settlesAt(pod, 3000)
	l.settlesAt(pod, 2000)
	if runs != 1 {
		t.Errorf("%d dry runs for three resizes, want one", runs)
	}
	r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("4")})
	l.settlesAt(pod, 3000)
	l.settlesAt(pod, 2000)
	if runs != 2 {
		t.Errorf("%d dry runs after a LimitRange came, want two", runs)
	}
	r.MutateResizes(t, r.namespace, apiserver.Change{Op: "replace", Path: "/spec/containers/0/resources/requests/cpu", Value: "50m"})
	fresh := r.pod("fresh", "100m", "500m")
	r.until("the API server knows the policy or webhook", func() (bool, any) {
		move := actuator.Move{UID: string(fresh.UID), Changes: []actuator.Change{{Container: "app", From: 500, To: 1000}}}
		got := l.counter.Resizer.DryRun(t.Context(), fresh, move)
		return got.Outcome == podresize.WouldMutate, got
	})
	l.settles(fresh, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.publish(fresh, "0.000", app(2000))
	l.settles(fresh, v1alpha1.PhaseFailed, reasons.AdmissionWouldMutate)
	got := &corev1.Pod{}
	r.must(r.Client.Get(t.Context(), client.ObjectKeyFromObject(fresh), got))
	if got.Generation != fresh.Generation {
		t.Errorf("the pod was changed: %+v", got.Spec.Containers)
	}
}

// TestMendedLawsAreTriedAtOnce: what was refused for the sake of a LimitRange or a quota waits to be tried again only while that stands.
func TestMendedLawsAreTriedAtOnce(t *testing.T) {
	r := newRig(t)
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = r.namespace, "compute"
	for name, c := range map[string]struct {
		outcome podresize.Outcome
		reason  reasons.Reason
		mend    func()
	}{
		"limit-range": {podresize.LimitRangeRefused, reasons.LimitRangeRefused, func() {
			r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("3")})
		}},
		"larger-quota": {podresize.QuotaExceeded, reasons.QuotaExceeded, func() { r.room(q, "40", "7") }},
		"freed-quota":  {podresize.QuotaExceeded, reasons.QuotaExceeded, func() { r.room(q, "30", "3") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			r.room(q, "30", "5") // and what the pod has
			l := r.live(0, false)
			pod := r.pod(name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			l.Resize = answer{podresize.Result{Outcome: c.outcome, Message: "because"}}
			r.publish(pod, "0.000", app(2000))
			l.settles(pod, v1alpha1.PhaseFailed, c.reason)
			l.Resize = l.counter
			r.room(q, "30", "7") // less is left than before
			l.look(pod)
			l.look(pod)
			if r.limit(pod) != 500 {
				t.Fatal("tried again at once, although nothing is mended")
			}
			// Not even a restart has what was mended since wait.
			l = r.live(0, false)
			l.look(pod)
			c.mend()
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			if got := r.limit(pod); got != 2000 {
				t.Errorf("limit %v, want 2000m", got)
			}
		})
	}
}

// room makes a quota leave room, as its controller does.
func (r *rig) room(q *corev1.ResourceQuota, hard, used string) {
	r.Helper()
	list := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(amount)}
	}
	if q.UID == "" {
		q.Spec.Hard = list(hard)
		r.must(r.Client.Create(r.Context(), q))
	}
	spec := `{"spec":{"hard":{"limits.cpu":"` + hard + `"}}}`
	r.must(r.Client.Patch(r.Context(), q, client.RawPatch(types.MergePatchType, []byte(spec))))
	q.Status.Hard, q.Status.Used = list(hard), list(used)
	r.must(r.Client.Status().Update(r.Context(), q))
}

// TestLimitRangeBinds: limits stay within what the namespace's LimitRanges allow, and a pod that no resize could pass is left alone with the
// reason, without a try.
func TestLimitRangeBinds(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "200m", "300m")
	mixed := r.kubelet.Run(t, apiserver.Pod(r.namespace, "mixed", apiserver.Container("app", "200m", "300m"), apiserver.Container("big", "2600m", "2700m")))
	ranges := &corev1.LimitRange{}
	ranges.Namespace, ranges.Name = r.namespace, "limits"
	ranges.Spec.Limits = []corev1.LimitRangeItem{
		{
			Type: corev1.LimitTypeContainer, Min: cpus("150m"), Max: cpus("2500m"), MaxLimitRequestRatio: cpus("8"),
			Default: cpus("500m"), DefaultRequest: cpus("150m"),
		},
		{Type: corev1.LimitTypePod, Max: cpus("1400m")},
	}
	r.must(r.Client.Create(r.Context(), ranges))
	pa := r.allocation(pod, "told", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Constraints != nil })
	terms := pa.Status.Constraints
	if *terms.Containers[0].Floor != 150 || *terms.Containers[0].Ceiling != 1600 || *terms.Ceiling != 1400 || terms.CeilingBy != "LimitRange/limits" {
		t.Errorf("terms %+v", terms)
	}
	r.publish(pod, "0.000", app(4000))
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	if got := r.limit(pod); got != 1400 {
		t.Errorf("limit %v, want 1400m as the LimitRange allows for a pod", got)
	}
	r.publish(mixed, "0.000", app(1000), v1alpha1.ContainerLimit{Name: "big", CPULimit: 3000})
	pa = r.allocation(mixed, "held", stands(v1alpha1.PhaseNotApplied, reasons.LimitRangeRefused))
	if !strings.Contains(pa.Status.Message, "container big") || !strings.Contains(pa.Status.Message, "LimitRange limits") {
		t.Errorf("message %q: want the container and the LimitRange", pa.Status.Message)
	}
	if n := strings.Count(r.log.String(), `"pod":"mixed"`); n != 0 {
		t.Errorf("%d tries of a resize that cannot pass", n)
	}
	r.must(r.Client.Delete(r.Context(), ranges))
	r.allocation(mixed, "applied without the LimitRange", stands(v1alpha1.PhaseApplied, reasons.Settled))
}

func cpus(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
}

package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// TestTenMinutesOfTrouble: while the API server takes no resize for ten minutes, each pod backs off by itself, with
// few tries, at most one event and a few log lines; then all are resized.
func TestTenMinutesOfTrouble(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pods := map[string]*corev1.Pod{}
		for i := range 4 {
			pod := l.raised(fmt.Sprint("web-", i))
			pods[pod.Name] = pod
		}
		for _, pod := range pods {
			r.publish(pod, "0.000", app(3000))
		}
		var mu sync.Mutex
		tries, whole, lines := map[string]int{}, l.resizes.Resizer, strings.Count(r.log.String(), "\n")
		l.resizes.Resizer = fakeResizer{Resizer: whole, apply: func(pod *corev1.Pod, _ func() podresize.Result) podresize.Result {
			mu.Lock()
			defer mu.Unlock()
			tries[pod.Name]++
			return podresize.Result{Outcome: podresize.Unavailable, Message: "the server is overloaded"}
		}}
		for sent := l.Events.(*events.FakeRecorder).Events; len(sent) > 0; {
			<-sent
		}
		for range 60 {
			l.pass(10 * time.Second)
			l.look(pods["web-0"])
		}
		told := len(l.Events.(*events.FakeRecorder).Events)
		mu.Lock()
		for name := range pods {
			// 5 s, doubled up to five minutes, each by half of it at least: 2.5 + 5 + 10 + 20 + 40 + 80 +
			// 150 + 150 + ...
			if n := tries[name]; n < 3 || n > 11 {
				t.Errorf("pod %s was tried %d times in ten minutes", name, n)
			}
		}
		mu.Unlock()
		if n := strings.Count(r.log.String(), "\n") - lines; told > len(pods) || n > 2*len(pods) {
			t.Errorf("%d events and %d log lines for %d pods", told, n, len(pods))
		}
		l.resizes.Resizer = whole
		l.pass(10 * time.Minute)
		for _, pod := range pods {
			l.gets(pod, 3000)
		}
	})
}

// TestUnseenVersions: what becomes of a pod depends on the last version of each object, whether those before it were
// seen or not.
func TestUnseenVersions(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		end := map[string]string{}
		for name, seen := range map[string]func(*corev1.Pod){
			"seen":   func(pod *corev1.Pod) { l.look(pod) },
			"unseen": func(*corev1.Pod) {},
		} {
			pod := l.raised(name)
			ranges := r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("3")})
			for _, change := range []func(){
				func() { r.publish(pod, "0.000", app(2500)) },
				func() { r.mode(r.namespace, kube.ModeRecommend) },
				func() { r.publish(pod, "0.000", app(700)) },
				func() { r.annotate(pod, kube.MaxCPUKey, "nonsense") },
				func() { r.annotate(pod, kube.MaxCPUKey, "4") },
				func() { r.merge(ranges, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"600m"}}]}}`) },
				func() { r.must(r.Client.Delete(t.Context(), ranges)) },
				func() { r.mode(r.namespace, kube.ModeEnforce) },
				func() { r.publish(pod, "0.000", app(1500)) },
			} {
				change()
				seen(pod)
			}
			pa := l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			end[name] = fmt.Sprint(r.limit(pod), pa.Status.DeclaredLimits, pa.Status.Reason, r.publishedConstraints(pod))
		}
		if end["seen"] != end["unseen"] || !strings.HasPrefix(end["seen"], "1500m") {
			t.Errorf("seen: %s\nunseen: %s", end["seen"], end["unseen"])
		}
	})
}

// TestTwoLeaders: two controllers that both believe to lead lower a pod no faster than one, and neither takes the
// limits of the other for those of its owner.
func TestTwoLeaders(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		const cooldown = 10 * time.Second
		r.config.Actuator.DecreaseCooldown = cooldown
		first, second := r.live(), r.live()
		pod := first.raised("web")
		second.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		var mu sync.Mutex
		var lowered []time.Time
		for _, l := range []*life{first, second} {
			next := l.resizes.Resizer
			l.resizes.Resizer = fakeResizer{Resizer: next, apply: func(_ *corev1.Pod, apply func() podresize.Result) podresize.Result {
				mu.Lock()
				defer mu.Unlock()
				result := apply()
				if result.Outcome == podresize.Accepted {
					lowered = append(lowered, l.Reconciler.Now())
				}
				return result
			}}
		}
		first.pass(time.Minute)
		second.ahead = first.ahead
		r.publish(pod, "2.000", app(600))
		r.until("the pod is lowered", func() (bool, any) {
			for _, l := range []*life{first, second} {
				l.pass(time.Second)
				first.ahead, second.ahead = l.ahead, l.ahead
				l.look(pod)
			}
			return r.limit(pod) == 600, r.stored(pod).Status
		})
		for i := 1; i < len(lowered); i++ {
			if gap := lowered[i].Sub(lowered[i-1]); gap < cooldown-time.Second {
				t.Errorf("decrease %d came %v after the one before it, want at least %v", i, gap, cooldown)
			}
		}
		if len(lowered) < 3 {
			t.Errorf("%d decreases, want several steps", len(lowered))
		}
		pa := r.stored(pod)
		r.declaredIs(pa, app(500))
		if !pa.Status.LastExternalChangeTime.IsZero() {
			t.Errorf("the limits of one were an external change to the other: %+v", pa.Status)
		}
	})
}

// definition is the stored definition of a custom resource.
func (r *rig) definition(name string) *apiextensionsv1.CustomResourceDefinition {
	r.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	r.must(r.extensions().Get(r.Context(), client.ObjectKey{Name: name}, crd))
	return crd
}

// schema changes the schema of a CRD, and returns what changes it back, which happens at the end of the test too.
func (r *rig) schema(crd string, change func(*apiextensionsv1.JSONSchemaProps)) (back func()) {
	r.Helper()
	c, whole := r.extensions(), r.definition(crd)
	o := whole.DeepCopy()
	change(o.Spec.Versions[0].Schema.OpenAPIV3Schema)
	r.must(c.Update(r.Context(), o))
	back = sync.OnceFunc(func() {
		now := &apiextensionsv1.CustomResourceDefinition{}
		err := c.Get(context.Background(), client.ObjectKey{Name: crd}, now)
		if err == nil {
			now.Spec.Versions = whole.Spec.Versions
			err = c.Update(context.Background(), now)
		}
		if err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(back)
	return back
}

// TestAnOlderCRD: with CRDs of an earlier version, which drop fields that the controller writes, it resizes as decided,
// loses no declared limit, and writes nothing when nothing changes; that the fields are known again causes no resize.
func TestAnOlderCRD(t *testing.T) {
	r := newRig(t)
	l := r.live()
	pod := l.raised("web")
	drops := func(want bool) func() (bool, any) {
		return func() (bool, any) {
			pa := r.stored(pod)
			raw := client.RawPatch(types.MergePatchType, []byte(`{"status":{"rollback":{"windowStart":"2026-01-01T00:00:00.000000Z"}}}`))
			r.must(r.Client.Status().Patch(t.Context(), pa, raw))
			n := &v1alpha1.NodeAllocation{}
			r.must(r.Client.Get(t.Context(), client.ObjectKey{Name: r.kubelet.Node}, n))
			n.Spec.Pods[0].Constraints = &v1alpha1.Constraints{CeilingBy: "a probe"}
			r.must(r.Client.Update(t.Context(), n))
			return pa.Status.Rollback.WindowStart.IsZero() == want && (n.Spec.Pods[0].Constraints.CeilingBy == "") == want, nil
		}
	}
	backs := []func(){
		r.schema("podallocations.allocation.mbcas.io", func(s *apiextensionsv1.JSONSchemaProps) {
			delete(s.Properties["status"].Properties, "rollback")
		}),
		r.schema("nodeallocations.allocation.mbcas.io", func(s *apiextensionsv1.JSONSchemaProps) {
			pods := s.Properties["spec"].Properties["pods"].Items.Schema
			delete(pods.Properties["constraints"].Properties, "ceilingBy")
		}),
	}
	r.until("the fields are dropped", drops(true))
	l = r.live() // the controller is newer
	r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("3")})
	r.publish(pod, "2.000", app(1500))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	quiet := func(when string) {
		t.Helper()
		l.pass(time.Minute)
		l.look(pod)
		before := len(l.writes())
		for range 5 {
			l.pass(time.Minute)
			l.look(pod)
		}
		if w := l.writes()[before:]; len(w) != 0 {
			t.Errorf("%d writes while nothing changes %s: %v", len(w), when, w)
		}
		r.limitIs(pod, 1500, when)
		r.declaredIs(r.stored(pod), app(500))
	}
	quiet("with older CRDs")
	for _, back := range backs {
		back()
	}
	r.until("the fields are known", drops(false))
	ahead := l.ahead
	l = r.live()
	l.pass(ahead + time.Minute)
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	quiet("with the CRDs of today")
	r.mode(r.namespace, kube.ModeRestore)
	l.gets(pod, 500)
}

// TestWatchesAreCut: while all watches are cut, and their versions gone when they begin anew, pods come and go,
// decisions are made, and another client changes a limit. Then all of that is followed, by one resize each.
func TestWatchesAreCut(t *testing.T) {
	r := newRig(t)
	there, w := r.wired(nil)
	there.start()
	web, other, gone := r.pod("web", "100m", "500m"), r.pod("other", "100m", "500m"), r.pod("gone", "100m", "500m")
	for _, pod := range []*corev1.Pod{web, other, gone} {
		r.allocation(pod, "made", recorded)
		r.publish(pod, "0.000", app(1000))
		r.reaches(pod, 1000)
	}
	for round := range cpu.Milli(2) {
		watches, mend := w.cutWatches()
		if round == 0 && watches < 10 { // later, some are not made again yet
			t.Fatalf("%d watches are cut, want those of all kinds of objects", watches)
		}
		limit := 2000 + 500*round
		r.publish(web, "0.000", app(limit))
		if round == 1 {
			r.resizeAs("another-client", other, "700m")
			r.must(r.Client.Delete(t.Context(), gone, client.GracePeriodSeconds(0)))
		}
		fresh := r.pod(fmt.Sprint("fresh-", round), "100m", "500m")
		r.hear()
		mend()
		r.reaches(web, limit)
		r.allocation(fresh, "made", recorded)
	}
	r.declaredIs(r.allocation(other, "left alone", stands(v1alpha1.PhaseNotApplied, reasons.ExternalChange)), app(700))
	if n := there.counter.resizes(); n != 3+2 {
		t.Errorf("%d resizes, want one for each decision", n)
	}
}

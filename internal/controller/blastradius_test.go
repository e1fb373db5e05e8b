package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

func (r *rig) namespaceObject() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
}

// replicas runs four pods of a Deployment, for which 800m of declared 500m is decided.
func (r *rig) replicas(deployment string) (pods []*corev1.Pod) {
	r.Helper()
	for i := range 4 {
		pod := r.ownedPod(deployment, fmt.Sprintf("%s-%d", deployment, i), "100m", "500m")
		r.allocation(pod, "made", recorded)
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		r.publish(pod, "0.000", app(800))
	}
	return pods
}

// resized counts the resizes of the pods that there are, as the API server has them: with each, the generation of a pod goes
// up by one. A controller knows of a resize only when it has the answer.
func (r *rig) resized() (n int64) {
	r.Helper()
	var pods corev1.PodList
	r.must(r.Client.List(r.Context(), &pods, client.InNamespace(r.namespace)))
	for i := range pods.Items {
		n += pods.Items[i].Generation - 1
	}
	return n
}

// stops harms the first of some replicas, the only one that was resized, and waits until all are as declared.
func (r *rig) stops(pods []*corev1.Pod) {
	r.Helper()
	r.hear()
	r.reaches(pods[0], 800)
	for _, pod := range pods[1:] {
		r.allocation(pod, "waiting for the canary", stands(v1alpha1.PhaseNotApplied, reasons.WaitingForCanary))
		r.limitIs(pod, 500, "until the canary has proved harmless")
	}
	r.allocation(pods[0], "known to be resized", func(pa *v1alpha1.PodAllocation) bool { return !pa.Status.FirstAppliedTime.IsZero() })
	r.harm(pods[0], unready)
	for _, pod := range pods {
		pa := r.allocation(pod, "stopped", stands(v1alpha1.PhaseRestored, reasons.CanaryStopped))
		r.limitIs(pod, 500, "after the stop")
		if pa.Status.CanaryStoppedTime.IsZero() || !pa.Status.FirstAppliedTime.IsZero() {
			r.Errorf("status of pod %s: %+v", pod.Name, pa.Status)
		}
	}
}

// TestHarmSpreads: a workload whose canary does worse than the others stops, all its replicas return to their
// declared limits, and no other is resized. With the third such workload decisions are held, until an operator resumes;
// what harms a pod meanwhile is rolled back, and does not count after the resume.
func TestHarmSpreads(t *testing.T) {
	r := newRig(t)
	r.annotate(r.namespaceObject(), kube.CanaryKey, "25")
	r.config.Guard.Harm.Workloads, r.config.Guard.Harm.Settle = 3, 0
	var told *events.FakeRecorder
	r.start(func(rec *Reconciler) { told = rec.Events.(*events.FakeRecorder) })
	state := func() restore.State {
		s, err := restore.ReadState(t.Context(), r.Client, r.config.Namespace)
		r.must(err)
		return s
	}
	lowered := r.pod("lowered", "100m", "500m")
	r.allocation(lowered, "made", recorded)
	r.decide(lowered, capped(v1alpha1.BoundByPrice), app(400))
	r.reaches(lowered, 400)
	r.allocation(lowered, "lowered", stands(v1alpha1.PhaseApplied, reasons.Settled))
	for _, name := range []string{"one", "two", "three"} {
		if state().HarmHold != "" {
			t.Fatalf("held before workload %s was harmed: %+v", name, state())
		}
		r.stops(r.replicas(name))
	}
	r.until("decisions are held", func() (bool, any) { return state().HarmHold != "", state() })
	if state().Paused() {
		t.Errorf("the installation is paused: %+v", state())
	}
	for _, want := range []string{"3 workloads", "Deployment/one", "Deployment/three"} {
		if !strings.Contains(state().HarmHold, want) {
			t.Errorf("the hold says %q, want it to name %s", state().HarmHold, want)
		}
	}
	said := false
	for len(told.Events) > 0 {
		said = strings.Contains(<-told.Events, "HarmSpread") || said
	}
	if !said {
		t.Error("no event tells of the hold")
	}

	later := r.replicas("later")
	r.hear()
	r.allocation(later[0], "held", stands(v1alpha1.PhaseNotApplied, reasons.HarmSpread))
	r.harm(lowered, unready)
	r.reaches(lowered, 500)
	r.allocation(lowered, "known to be harmed", func(pa *v1alpha1.PodAllocation) bool {
		return !pa.Status.Rollback.LastHarmfulDecreaseTime.IsZero()
	})
	r.limitIs(later[0], 500, "while decisions are held")

	resizes := r.resized()
	r.must(restore.Resume(t.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager, time.Now()))
	r.reaches(later[0], 800) // harm from before the resume does not count again
	if n := r.resized() - resizes; state().HarmHold != "" || n != 1 {
		t.Errorf("held %q after the resume, %d resizes since, want one", state().HarmHold, n)
	}
}

// TestCanaryIsFollowed: once the canary has been through the grace, the other replicas follow, also where another
// controller has taken over meanwhile.
func TestCanaryIsFollowed(t *testing.T) {
	r := newRig(t)
	r.config.Guard.CanaryPercent, r.config.Guard.CanaryGrace = 50, 10*time.Minute
	stop := r.start()
	pods := r.replicas("web")
	for _, pod := range pods[:2] {
		r.reaches(pod, 800)
		r.allocation(pod, "known to be resized", func(pa *v1alpha1.PodAllocation) bool { return !pa.Status.FirstAppliedTime.IsZero() })
	}
	for _, pod := range pods[2:] {
		r.allocation(pod, "waiting for the canary", stands(v1alpha1.PhaseNotApplied, reasons.WaitingForCanary))
	}
	stop()
	ahead := func() time.Time { return time.Now().Add(11 * time.Minute) }
	r.hearAt(ahead())
	r.start(func(rec *Reconciler) { rec.Now = ahead })
	for _, pod := range pods {
		r.reaches(pod, 800)
	}
}

// TestNoChangeWindows: within a window decisions change nothing, and a rollback goes on. One that cannot be read
// counts as a window, and says what is wrong.
func TestNoChangeWindows(t *testing.T) {
	r := newRig(t)
	r.start()
	pod, harmed := r.pod("web", "100m", "500m"), r.pod("harmed", "100m", "500m")
	for _, p := range []*corev1.Pod{pod, harmed} {
		r.allocation(p, "made", recorded)
	}
	r.decide(harmed, capped(v1alpha1.BoundByPrice), app(400))
	r.reaches(harmed, 400)
	r.allocation(harmed, "lowered", stands(v1alpha1.PhaseApplied, reasons.Settled))

	r.annotate(r.namespaceObject(), kube.NoChangeKey, "* 00:00-24:00 Europe/Berlin")
	r.publish(pod, "0.000", app(800))
	r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.NoChangeWindow))
	r.harm(harmed, unready)
	r.reaches(harmed, 500)
	r.limitIs(pod, 500, "within the window")

	r.annotate(r.namespaceObject(), kube.NoChangeKey, "Mon-Fry 09:00-18:00")
	pa := r.allocation(pod, "held still", stands(v1alpha1.PhaseNotApplied, reasons.InvalidNoChangeWindow))
	if !strings.Contains(pa.Status.Message, "Mon-Fry") || !strings.Contains(pa.Status.Message, r.namespace) {
		t.Errorf("message %q: want it to name the namespace and what cannot be read", pa.Status.Message)
	}
	r.merge(r.namespaceObject(), `{"metadata":{"annotations":{"`+kube.NoChangeKey+`":null}}}`)
	r.reaches(pod, 800)
}

// TestFactorsBind: a limit stays within the strictest multiple of the declared one, and its constraints name what
// sets it.
func TestFactorsBind(t *testing.T) {
	r := newRig(t)
	r.config.Guard.Max, r.config.Guard.Min = 4, 0.5
	r.start()
	pod := r.pod("web", "50m", "500m")
	r.allocation(pod, "made", recorded)
	r.publish(pod, "0.000", app(3000))
	r.reaches(pod, 2000)
	r.annotate(r.namespaceObject(), kube.MaxFactorKey, "3")
	r.reaches(pod, 1500)
	r.annotate(pod, kube.MaxFactorKey, "1.5")
	r.reaches(pod, 750)
	c := r.constraints(pod, "constrained by itself", func(c *v1alpha1.Constraints) bool { return c.CeilingBy == "Pod/web" })
	if *c.Containers[0].Ceiling != 750 || c.FloorBy != "Installation/mbcas" || *c.Containers[0].Floor != 250 {
		t.Errorf("constraints %+v", c)
	}
	r.decide(pod, capped(v1alpha1.BoundByPrice), app(100))
	r.reaches(pod, 250)
	r.annotate(r.namespaceObject(), kube.MinFactorKey, "half") // counts as 1
	r.reaches(pod, 500)
}

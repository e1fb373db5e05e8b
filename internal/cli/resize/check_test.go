package resize

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestCheck: every request becomes a move, an objection, or both.
func TestCheck(t *testing.T) {
	app := apiserver.Container("app", "200m", "500m")
	change := func(with func(*corev1.Pod)) *corev1.Pod {
		p := apiserver.RunningPod("shop", "web", app)
		with(p)
		return p
	}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		ask    Request
		used   cpu.Milli // 0: unknown
		reason string    // part of an objection; "": none
		final  bool
		to     cpu.Milli
	}{
		"raise":              {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 800}, to: 800},
		"lower":              {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 300}, used: 250, to: 300},
		"round":              {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 301}, to: 310},
		"the request itself": {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 200}, to: 200},
		"below request":      {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 190}, reason: "below the CPU request", final: true},
		"below use":          {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 300}, used: 400, reason: "usage of the pod is 400m", to: 300},
		"raise below use":    {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 600}, used: 900, to: 600},
		"above node":         {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 5000}, reason: "more than the allocatable CPU of node", to: 5000},
		"cores for milli":    {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 800000}, reason: "did you mean 800m?", to: 800000},
		"no such container":  {pod: change(func(*corev1.Pod) {}), ask: Request{Limit: 800, Container: "db"}, reason: `no container or sidecar "db"`, final: true},
		"two containers": {
			pod: apiserver.RunningPod("shop", "web", app, apiserver.Container("proxy", "10m", "50m")), ask: Request{Limit: 800},
			reason: "choose one with -c app or proxy", final: true,
		},
		"two, one limited": {pod: apiserver.RunningPod("shop", "web", app, apiserver.Container("proxy", "10m", "")), ask: Request{Limit: 800}, to: 800},
		"unlimited container": {
			pod: apiserver.RunningPod("shop", "web", app, apiserver.Container("proxy", "10m", "")), ask: Request{Limit: 800, Container: "proxy"},
			reason: "cannot be removed", final: true,
		},
		"below the kernel's least": {
			pod: apiserver.RunningPod("shop", "web", apiserver.Container("app", "", "50m")), ask: Request{Limit: 0}, reason: "no CPU limit below 10m", final: true,
		},
		"guaranteed": {pod: change(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }), ask: Request{Limit: 800}, reason: "Guaranteed", final: true},
		"deleted":    {pod: change(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), ask: Request{Limit: 800}, reason: "being deleted", final: true},
		"pending":    {pod: change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), ask: Request{Limit: 800}, reason: "Pending, not Running", final: true},
		"static": {
			pod: change(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
			ask: Request{Limit: 800}, reason: "static", final: true,
		},
		"old kubelet": {
			pod: change(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil }), ask: Request{Limit: 800},
			reason: "does not report container resources", final: true,
		},
		"restarts": {
			pod: change(func(p *corev1.Pod) {
				p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
			}), ask: Request{Limit: 800}, reason: "restarts it", to: 800,
		},
		"sandboxed": {pod: change(func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") }), ask: Request{Limit: 800}, reason: "runtimeClassName", to: 800},
		"in flight": {pod: change(func(p *corev1.Pod) { p.Generation = 4 }), ask: Request{Limit: 800}, reason: "earlier resize is not finished", to: 800},
	} {
		t.Run(name, func(t *testing.T) {
			s := (&snapshot.Snapshot{Settings: kube.Settings{kube.ModeFlag: "enforce"}, System: "mbcas-system"}).Row(c.pod)
			if c.used > 0 {
				s.Figures = &snapshot.Figures{Usage: c.used}
			}
			move, against := Check(Target{Pod: c.pod, Row: s, Allocatable: 4000}, c.ask)
			switch {
			case c.reason == "" && len(against) > 0:
				t.Fatalf("objections: %v", against)
			case c.reason != "" && (len(against) == 0 || !strings.Contains(against[0].Why, c.reason) || against[0].Final != c.final):
				t.Fatalf("objections: %+v, want one with %q, final %v", against, c.reason, c.final)
			case !c.final && (len(move.Changes) != 1 || move.Changes[0] != actuator.Change{Container: "app", From: kube.Containers(c.pod)[0].Limit(), To: c.to}):
				t.Errorf("move %v, want app to %v", move, c.to)
			}
		})
	}
}

// TestRefuse: force helps against objections that are not final, and only then.
func TestRefuse(t *testing.T) {
	pod := apiserver.RunningPod("shop", "web")
	soft, hard := Objection{"it is harmful", false}, Objection{"it is impossible", true}
	for name, c := range map[string]struct {
		against []Objection
		force   bool
		refused bool
	}{
		"none":       {nil, false, false},
		"soft":       {[]Objection{soft}, false, true},
		"soft force": {[]Objection{soft}, true, false},
		"hard":       {[]Objection{hard}, false, true},
		"hard force": {[]Objection{soft, hard}, true, true},
	} {
		err := Refuse(pod, c.against, c.force)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "--force") != (name == "soft") {
			t.Errorf("%s: %v: --force is offered where it does not help, or not where it does", name, err)
		}
	}
}

// TestRefusal: every outcome but success has a sentence of its own, with the server's message in it
// where it helps.
func TestRefusal(t *testing.T) {
	for o := podresize.Accepted; !strings.HasPrefix(o.String(), "Outcome("); o++ {
		text := refusal(podresize.Result{Outcome: o, Message: "the words\nof the server"})
		success := o == podresize.Accepted || o == podresize.NoChange
		switch {
		case success != (text == ""):
			t.Errorf("%v: %q", o, text)
		case strings.Contains(text, "\n"):
			t.Errorf("%v: %q is more than a line", o, text)
		case strings.HasPrefix(text, o.String()+":"):
			t.Errorf("%v: has no sentence of its own: %q", o, text)
		}
	}
}

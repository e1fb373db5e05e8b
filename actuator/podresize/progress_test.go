package podresize_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// resized is a running pod of generation 5 whose spec and status agree on app=300m and proxy=100m.
func resized() *corev1.Pod {
	proxy := apiserver.Sidecar("proxy", "50m", "100m")
	app, free := apiserver.Container("app", "100m", "300m"), apiserver.Container("free", "", "")
	p := apiserver.RunningPod("shop", "web", app, free, proxy)
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[2:], p.Spec.Containers[:2]
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses[2:], p.Status.ContainerStatuses[:2]
	p.Generation, p.Status.ObservedGeneration = 5, 5
	return p
}

// TestCheck: how far the kubelet is, in every state that a pod's status can be in.
func TestCheck(t *testing.T) {
	type edit = func(*corev1.Pod)
	reports := func(limit string) edit {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources.Limits = cpuList(limit) }
	}
	seen := func(generation, observed int64) edit {
		return func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = generation, observed }
	}
	condition := func(t corev1.PodConditionType, reason string, observed int64) edit {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: "says the kubelet", ObservedGeneration: observed,
			})
		}
	}
	pending := func(reason string, observed int64) edit { return condition(corev1.PodResizePending, reason, observed) }
	progress := func(reason string, observed int64) edit {
		return condition(corev1.PodResizeInProgress, reason, observed)
	}
	const (
		done, inProgress    = actuator.Done, actuator.InProgress
		deferred, says      = actuator.Deferred, "says the kubelet"
		postponed, rejected = corev1.PodReasonDeferred, corev1.PodReasonInfeasible
	)
	noStatus := func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }
	noResources := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil }
	noLimit := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources.Limits = nil }
	crashed := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = nil }
	for reason, tt := range map[string]struct {
		generation int64
		edits      []edit
		want       actuator.Progress
		says       string
	}{
		"in force":                               {5, nil, done, ""},
		"this copy is older than the resize":     {6, nil, inProgress, "older than the resize"},
		"the kubelet has not looked":             {5, []edit{seen(5, 4)}, inProgress, "observed generation 4, not yet 5"},
		"a later change by another client, too":  {5, []edit{seen(7, 7)}, done, ""},
		"the status shows the old limit":         {5, []edit{reports("200m")}, inProgress, "app runs with 200m, not yet with 300m"},
		"one quantum below":                      {5, []edit{reports("290m")}, inProgress, ""},
		"one quantum above":                      {5, []edit{reports("310m")}, inProgress, ""},
		"rounded up by systemd":                  {5, []edit{reports("309m")}, done, ""},
		"no status yet":                          {5, []edit{noStatus}, inProgress, "app has no status yet"},
		"the status has no resources":            {5, []edit{noResources}, inProgress, "does not report"},
		"the status has no limit":                {5, []edit{noLimit}, inProgress, "without a CPU limit"},
		"a crashed container gets the new limit": {5, []edit{reports("200m"), crashed}, done, ""},
		"the sidecar lags": {5, []edit{func(p *corev1.Pod) {
			p.Status.InitContainerStatuses[0].Resources.Limits = cpuList("50m")
		}}, inProgress, "container proxy"},
		"a container that is not ours lags": {5, []edit{func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1].Resources.Limits = cpuList("2")
		}}, done, ""},

		"deferred":                     {5, []edit{pending(postponed, 5)}, deferred, says},
		"infeasible":                   {5, []edit{pending(rejected, 5)}, actuator.Infeasible, says},
		"pending for a reason unknown": {5, []edit{pending("Moonstruck", 5)}, deferred, "Moonstruck: " + says},
		"in progress":                  {5, []edit{progress("", 5)}, inProgress, ""},
		"in error":                     {5, []edit{progress(corev1.PodReasonError, 5)}, actuator.Errored, says},
		"the last one in progress, this one deferred": {5, []edit{progress("", 4), pending(postponed, 5)}, deferred, ""},
		"an error of the last resize":                 {5, []edit{progress(corev1.PodReasonError, 4), seen(5, 4)}, inProgress, ""},
		"the last resize was deferred":                {5, []edit{pending(postponed, 4), seen(5, 4)}, inProgress, ""},
		"a later resize is deferred":                  {5, []edit{pending(postponed, 6), seen(6, 5)}, deferred, ""},
		"a condition that is over": {5, []edit{pending(rejected, 5), func(p *corev1.Pod) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}}, done, ""},
		"infeasible, without generations":     {5, []edit{pending(rejected, 0), seen(5, 0)}, actuator.Infeasible, ""},
		"done, without generations":           {5, []edit{seen(5, 0)}, done, ""},
		"a server that counts no generations": {0, []edit{seen(0, 0)}, done, ""},
	} {
		t.Run(reason, func(t *testing.T) {
			p := resized()
			for _, edit := range tt.edits {
				edit(p)
			}
			before := p.DeepCopy()
			got, says := podresize.Check(p, map[string]cpu.Milli{"app": 300, "proxy": 100}, tt.generation)
			if got != tt.want || says == "" || !strings.Contains(says, tt.says) {
				t.Errorf("%v (%q), want %v (%q)", got, says, tt.want, tt.says)
			}
			if before.String() != p.String() {
				t.Errorf("Check changed the pod")
			}
		})
	}
}

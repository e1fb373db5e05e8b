package podresize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// whole is a pod with a CPU limit of its own, 400m, which its two containers share.
func whole() *corev1.Pod {
	pod := apiserver.Pod("", "web", apiserver.Container("app", "100m", ""), apiserver.Container("log", "50m", ""))
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: cpuList("150m"), Limits: cpuList("400m")}
	return pod
}

func ownMove(pod *corev1.Pod, from, to cpu.Milli) actuator.Move {
	return actuator.Move{UID: string(pod.UID), Changes: []actuator.Change{{Container: v1alpha1.PodLevel, From: from, To: to}}}
}

// TestPodLevelLimit: a pod's own CPU limit is changed and nothing else, where the API server resizes it, and is in force once
// the pod's status shows it. An API server that does not says so.
func TestPodLevelLimit(t *testing.T) {
	s := newFixtureOf(t, whole())
	got := s.resize.Apply(t.Context(), s.pod, ownMove(s.pod, 400, 300))
	if s.Minor(t) < 36 {
		s.expect("Apply", got, podresize.Invalid, "resize of pods with pod-level resources is forbidden")
		return
	}
	s.expect("Apply", got, podresize.Accepted, "")
	want := map[string]cpu.Milli{v1alpha1.PodLevel: 300}
	if p, why := podresize.Check(got.Pod, want, got.Pod.Generation); p != actuator.InProgress {
		t.Errorf("before the kubelet has seen it: %v (%s)", p, why)
	}
	pod := apiserver.WaitFor(t, s.Client, s.pod, "resized", func(p *corev1.Pod) bool {
		progress, _ := podresize.Check(p, want, got.Pod.Generation)
		return progress == actuator.Done
	})
	if r := pod.Spec.Resources; r.Limits.Cpu().MilliValue() != 300 || r.Requests.Cpu().MilliValue() != 150 {
		t.Errorf("the pod has %+v", r)
	}
	for name, tt := range map[string]struct {
		move actuator.Move
		want podresize.Outcome
		says string
	}{
		"below the request":                  {ownMove(pod, 300, 100), podresize.Invalid, "must be less than or equal to cpu limit"},
		"decided at another limit":           {ownMove(pod, 400, 200), podresize.Conflict, "the move was decided at 400m"},
		"no limit at all":                    {ownMove(pod, 300, 0), podresize.Invalid, "cannot be set"},
		"of a container that has no limit":   {actuator.Move{UID: string(pod.UID), Changes: []actuator.Change{{Container: "app", To: 100}}}, podresize.Invalid, "has no CPU limit"},
		"the same limit, which is no change": {ownMove(pod, 300, 300), podresize.NoChange, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			s.expect("Apply", s.resize.Apply(t.Context(), pod, tt.move), tt.want, tt.says)
		})
	}
}

// TestPodLevelOfOtherPods: there is no limit of its own to change in a pod without one.
func TestPodLevelOfOtherPods(t *testing.T) {
	s := newFixture(t)
	s.expect("Apply", s.resize.Apply(t.Context(), s.pod, ownMove(s.pod, 0, 300)), podresize.Invalid, "no container or sidecar is named")
	pod := apiserver.RunningPod("shop", "web", apiserver.Container("app", "100m", ""))
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: cpuList("150m")}
	s.expect("Apply", s.resize.Apply(t.Context(), pod, ownMove(pod, 0, 300)), podresize.Invalid, "has no CPU limit")
}

// TestProgressOfPodLevelLimits: what a status of the pod says of its own limit.
func TestProgressOfPodLevelLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.PodStatus)
		want   actuator.Progress
	}{
		"in force":              {func(*corev1.PodStatus) {}, actuator.Done},
		"rounded up by systemd": {func(s *corev1.PodStatus) { s.Resources.Limits = cpuList("409m") }, actuator.Done},
		"the limit before":      {func(s *corev1.PodStatus) { s.Resources.Limits = cpuList("200m") }, actuator.InProgress},
		"no limit":              {func(s *corev1.PodStatus) { s.Resources.Limits = nil }, actuator.InProgress},
		"not reported":          {func(s *corev1.PodStatus) { s.Resources = nil }, actuator.InProgress},
		"not started":           {func(s *corev1.PodStatus) { s.Resources, s.Phase = nil, corev1.PodPending }, actuator.Done},
	} {
		pod := whole()
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Resources: pod.Spec.Resources.DeepCopy()}
		tt.change(&pod.Status)
		if got, why := podresize.Check(pod, map[string]cpu.Milli{v1alpha1.PodLevel: 400}, 0); got != tt.want {
			t.Errorf("%s: %v (%s), want %v", name, got, why, tt.want)
		}
	}
}

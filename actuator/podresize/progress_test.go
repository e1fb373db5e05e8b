package podresize_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// resized is a running pod of generation 5 whose spec and status agree on app=300m and proxy=100m.
func resized() *corev1.Pod {
	p := apiserver.Pod("shop", "web", apiserver.Container("app", "100m", "300m"), apiserver.Container("free", "", ""))
	p.Spec.InitContainers = []corev1.Container{apiserver.Sidecar("proxy", "50m", "100m")}
	p.Generation, p.Status.ObservedGeneration = 5, 5
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: running, Resources: c.Resources.DeepCopy()})
	}
	c := p.Spec.InitContainers[0]
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, State: running, Resources: c.Resources.DeepCopy()}}
	return p
}

func setCondition(p *corev1.Pod, t corev1.PodConditionType, reason string, observed int64) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: "says the kubelet", ObservedGeneration: observed,
	})
}

// TestCheck: how far the kubelet is, in every state that a pod's status can be in.
func TestCheck(t *testing.T) {
	reports := func(p *corev1.Pod, limit string) { p.Status.ContainerStatuses[0].Resources.Limits = cpuList(limit) }
	for reason, tt := range map[string]struct {
		change     func(*corev1.Pod)
		generation int64 // default 5
		want       podresize.Progress
		says       string
	}{
		"in force":                           {want: podresize.Done},
		"this copy is older than the resize": {generation: 6, want: podresize.InProgress, says: "older than the resize"},
		"the kubelet has not looked": {
			change: func(p *corev1.Pod) { p.Status.ObservedGeneration = 4 },
			want:   podresize.InProgress, says: "observed generation 4, not yet 5",
		},
		"a later change by another client is in force as well": {
			change: func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = 7, 7 }, want: podresize.Done,
		},
		"the status shows the old limit": {
			change: func(p *corev1.Pod) { reports(p, "200m") }, want: podresize.InProgress, says: "container app runs with 200m, not yet with 300m",
		},
		"one quantum off is another limit": {
			change: func(p *corev1.Pod) { reports(p, "290m") }, want: podresize.InProgress,
		},
		"a limit that is being lowered by one quantum": {
			change: func(p *corev1.Pod) { reports(p, "310m") }, want: podresize.InProgress,
		},
		"rounded up by systemd": {change: func(p *corev1.Pod) { reports(p, "309m") }, want: podresize.Done},
		"the sidecar lags": {
			change: func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].Resources.Limits = cpuList("50m") },
			want:   podresize.InProgress, says: "container proxy",
		},
		"a container that is not ours lags": {
			change: func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Resources.Limits = cpuList("2") }, want: podresize.Done,
		},
		"no status yet": {
			change: func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, want: podresize.InProgress, says: "app has no status yet",
		},
		"the status has no resources": {
			change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil }, want: podresize.InProgress, says: "does not report",
		},
		"the status has no limit": {
			change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources.Limits = nil }, want: podresize.InProgress, says: "without a CPU limit",
		},
		"a crashed container starts with the new limit": {
			change: func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
				reports(p, "200m")
			}, want: podresize.Done,
		},

		"deferred": {
			change: func(p *corev1.Pod) { setCondition(p, corev1.PodResizePending, corev1.PodReasonDeferred, 5) },
			want:   podresize.Deferred, says: "says the kubelet",
		},
		"infeasible": {
			change: func(p *corev1.Pod) { setCondition(p, corev1.PodResizePending, corev1.PodReasonInfeasible, 5) },
			want:   podresize.Infeasible, says: "says the kubelet",
		},
		"pending for a reason unknown": {
			change: func(p *corev1.Pod) { setCondition(p, corev1.PodResizePending, "Moonstruck", 5) },
			want:   podresize.Deferred, says: "Moonstruck: says the kubelet",
		},
		"in progress": {
			change: func(p *corev1.Pod) { setCondition(p, corev1.PodResizeInProgress, "", 5) }, want: podresize.InProgress,
		},
		"in error": {
			change: func(p *corev1.Pod) { setCondition(p, corev1.PodResizeInProgress, corev1.PodReasonError, 5) },
			want:   podresize.Errored, says: "says the kubelet",
		},
		"the last one in progress, this one deferred": {
			change: func(p *corev1.Pod) {
				setCondition(p, corev1.PodResizeInProgress, "", 4)
				setCondition(p, corev1.PodResizePending, corev1.PodReasonDeferred, 5)
			}, want: podresize.Deferred,
		},
		"an error of the last resize": {
			change: func(p *corev1.Pod) {
				setCondition(p, corev1.PodResizeInProgress, corev1.PodReasonError, 4)
				p.Status.ObservedGeneration = 4
			}, want: podresize.InProgress,
		},
		"the last resize was deferred": {
			change: func(p *corev1.Pod) {
				setCondition(p, corev1.PodResizePending, corev1.PodReasonDeferred, 4)
				p.Status.ObservedGeneration = 4
			}, want: podresize.InProgress,
		},
		"a later resize is deferred": {
			change: func(p *corev1.Pod) {
				p.Generation = 6
				setCondition(p, corev1.PodResizePending, corev1.PodReasonDeferred, 6)
			}, want: podresize.Deferred,
		},
		"a condition that is over": {
			change: func(p *corev1.Pod) {
				setCondition(p, corev1.PodResizePending, corev1.PodReasonInfeasible, 5)
				p.Status.Conditions[0].Status = corev1.ConditionFalse
			}, want: podresize.Done,
		},
		"a kubelet that counts no generations is taken at its word": {
			change: func(p *corev1.Pod) {
				p.Status.ObservedGeneration = 0
				setCondition(p, corev1.PodResizePending, corev1.PodReasonInfeasible, 0)
			}, want: podresize.Infeasible,
		},
		"a kubelet that counts no generations, and is done": {
			change: func(p *corev1.Pod) { p.Status.ObservedGeneration = 0 }, want: podresize.Done,
		},
		"a server that counts no generations": {
			change: func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = 0, 0 }, generation: -1, want: podresize.Done,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			p := resized()
			if tt.change != nil {
				tt.change(p)
			}
			switch tt.generation {
			case 0:
				tt.generation = 5
			case -1:
				tt.generation = 0
			}
			before := p.DeepCopy()
			got, says := podresize.Check(p, map[string]cpu.Milli{"app": 300, "proxy": 100}, tt.generation)
			if got != tt.want || says == "" || !strings.Contains(says, tt.says) {
				t.Errorf("%v (%q), want %v (%q)", got, says, tt.want, tt.says)
			}
			if !sameStatus(before, p) {
				t.Errorf("Check changed the pod")
			}
		})
	}
}

func sameStatus(a, b *corev1.Pod) bool { return a.String() == b.String() }

// TestCheckOnServer: what is found on a pod that a kubelet answered for, through the API server.
func TestCheckOnServer(t *testing.T) {
	for answer, want := range map[apiserver.Answer]podresize.Progress{
		apiserver.Obey: podresize.Done, apiserver.Stall: podresize.InProgress, apiserver.Defer: podresize.Deferred,
		apiserver.Refuse: podresize.Infeasible, apiserver.Fail: podresize.Errored,
	} {
		t.Run(want.String(), func(t *testing.T) {
			s := newScene(t)
			s.kubelet.Answer(s.pod, answer)
			r := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
			s.expect("Apply", r, podresize.Accepted, "")
			if got, _ := podresize.Check(r.Pod, map[string]cpu.Milli{"app": 300}, r.Pod.Generation); got != podresize.InProgress {
				t.Errorf("right after the patch it is %v", got)
			}
			seen := apiserver.WaitFor(t, s.Client, s.pod, "looked at", func(p *corev1.Pod) bool { return p.Status.ObservedGeneration == r.Pod.Generation })
			if got, says := podresize.Check(seen, map[string]cpu.Milli{"app": 300}, r.Pod.Generation); got != want {
				t.Errorf("%v (%s), want %v", got, says, want)
			}
		})
	}
}

package podresize_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestOnlyCPULimits: a carried out move changes the CPU limits that it names, of containers and sidecars, up and
// down, and nothing else of the spec.
func TestOnlyCPULimits(t *testing.T) {
	app := apiserver.Container("app", "100m", "200m")
	app.Resources.Limits[corev1.ResourceMemory] = memory
	pod := apiserver.Pod("", "web", app, apiserver.Container("free", "100m", ""))
	pod.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "", "100m"), apiserver.Sidecar("proxy", "50m", "1")}
	s := newFixtureOf(t, pod)
	want := s.pod.Spec.DeepCopy()
	m := actuator.Move{UID: string(s.pod.UID), Changes: []actuator.Change{
		{Container: "proxy", From: 1000, To: 700}, {Container: "app", From: 200, To: 1500},
	}}

	expect(s.t, "DryRun", s.resize.DryRun(t.Context(), s.pod, m), podresize.Accepted, "")
	if got := s.stored(); !equality.Semantic.DeepEqual(got.Spec, *want) {
		t.Errorf("the dry run changed the pod")
	}
	r := s.resize.Apply(t.Context(), s.pod, m)
	expect(s.t, "Apply", r, podresize.Accepted, "")

	want.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1500m")
	want.InitContainers[1].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("700m")
	stored := s.stored()
	if !equality.Semantic.DeepEqual(stored.Spec, *want) {
		t.Errorf("spec:\n%+v\nwant\n%+v", stored.Spec, *want)
	}
	if r.Pod == nil || r.Pod.UID != s.pod.UID || r.Pod.Generation != s.pod.Generation+1 {
		t.Errorf("the returned pod is not the pod after the change: %+v", r.Pod)
	}
	owned := false
	for _, f := range stored.ManagedFields {
		owned = owned || (f.Manager == owner && f.Subresource == "resize")
	}
	if !owned {
		t.Errorf("no managed field of %s: %+v", owner, stored.ManagedFields)
	}

	s.pod = apiserver.WaitFor(t, s.Client, s.pod, "done", func(p *corev1.Pod) bool {
		progress, _ := podresize.Check(p, map[string]cpu.Milli{"app": 1500, "proxy": 700}, r.Pod.Generation)
		return progress == actuator.Done
	})
	// The limits that the pod already has are no change, and no write.
	r = s.resize.Apply(t.Context(), s.pod, s.move("app", 1500))
	expect(s.t, "Apply once more", r, podresize.NoChange, "")
	if r.Pod == nil || r.Pod.ResourceVersion != s.pod.ResourceVersion {
		t.Errorf("the pod was written: %+v", r.Pod)
	}
}

// TestNothingIsSent: what does not fit the pod is refused without asking the server.
func TestNothingIsSent(t *testing.T) {
	pod := apiserver.RunningPod("ns", "web", apiserver.Container("app", "100m", "200m"), apiserver.Container("free", "100m", ""))
	pod.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "", "100m")}
	pod.UID = "u1"
	change := func(name string, from, to cpu.Milli) []actuator.Change {
		return []actuator.Change{{Container: name, From: from, To: to}}
	}
	for reason, tt := range map[string]struct {
		uid     string // default: the pod's
		edit    func(*corev1.Pod)
		changes []actuator.Change
		want    podresize.Outcome
	}{
		"the move is for another pod":               {uid: "u0", changes: change("app", 200, 300), want: podresize.Replaced},
		"the owner changed the limit":               {changes: change("app", 250, 300), want: podresize.Conflict},
		"a limit would be added":                    {changes: change("free", 0, 300), want: podresize.Invalid},
		"a limit would become nothing":              {changes: change("app", 200, 0), want: podresize.Invalid},
		"a limit would become negative":             {changes: change("app", 200, -10), want: podresize.Invalid},
		"no such container":                         {changes: change("other", 200, 300), want: podresize.Invalid},
		"an init container that runs to completion": {changes: change("setup", 100, 300), want: podresize.Invalid},
		"no change at all":                          {want: podresize.Invalid},
		"twice the same container":                  {changes: append(change("app", 200, 300), change("app", 200, 400)...), want: podresize.Invalid},
		"a pod that was never read":                 {edit: func(p *corev1.Pod) { p.ResourceVersion = "" }, changes: change("app", 200, 300), want: podresize.Invalid},
		"a pod without uid":                         {edit: func(p *corev1.Pod) { p.UID = "" }, changes: change("app", 200, 300), want: podresize.Invalid},
	} {
		t.Run(reason, func(t *testing.T) {
			p := pod.DeepCopy()
			if tt.edit != nil {
				tt.edit(p)
			}
			if tt.uid == "" {
				tt.uid = "u1"
			}
			got := podresize.New(noServer{t}, owner).Apply(t.Context(), p, actuator.Move{UID: tt.uid, Changes: tt.changes})
			if got.Outcome != tt.want || got.Message == "" || got.Pod != nil {
				t.Errorf("got %+v, want %v with a message", got, tt.want)
			}
		})
	}
}

// TestRaisesOnlyWhatRuns: a raise of a container that the kubelet would pass over is not sent. Whatever its state, it may
// be lowered.
func TestRaisesOnlyWhatRuns(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	yes, no := true, false
	for name, tt := range map[string]struct {
		status  corev1.ContainerStatus
		sidecar bool
		raised  bool
	}{
		"runs":                    {status: corev1.ContainerStatus{Name: "app", State: running}, raised: true},
		"runs, not started":       {status: corev1.ContainerStatus{Name: "app", State: running, Started: &no}, raised: true},
		"waits":                   {status: corev1.ContainerStatus{Name: "app", State: waiting}},
		"has ended":               {status: corev1.ContainerStatus{Name: "app", State: ended}},
		"unseen by its kubelet":   {},
		"a sidecar":               {status: corev1.ContainerStatus{Name: "app", State: running, Started: &yes}, sidecar: true, raised: true},
		"a sidecar, not started":  {status: corev1.ContainerStatus{Name: "app", State: running, Started: &no}, sidecar: true},
		"a sidecar, not reported": {status: corev1.ContainerStatus{Name: "app", State: running}, sidecar: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := web("500m")
			pod.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{tt.status}}
			if tt.sidecar {
				pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
				pod.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				pod.Status = corev1.PodStatus{InitContainerStatuses: pod.Status.ContainerStatuses}
			}
			for to, wanted := range map[cpu.Milli]bool{600: tt.raised, 400: true} {
				var sent int
				move := actuator.Move{UID: "4f2e", Changes: []actuator.Change{{Container: "app", From: 500, To: to}}}
				got := podresize.New(counted{sent: &sent}, owner).Apply(t.Context(), pod, move)
				if sent > 0 != wanted || !wanted && got.Outcome != podresize.NotRunning {
					t.Errorf("to %v: sent %d, %v; want it sent: %v", to, sent, got, wanted)
				}
			}
		})
	}
}

// counted is an API server that counts requests and answers none.
type counted struct {
	client.SubResourceClient
	sent *int
}

func (c counted) SubResource(string) client.SubResourceClient { return c }

func (c counted) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	*c.sent++
	return errors.New("no answer")
}

// noServer fails the test when a request is sent.
type noServer struct{ t *testing.T }

func (n noServer) SubResource(name string) client.SubResourceClient {
	n.t.Fatalf("a request for the subresource %s is sent", name)
	return nil
}

// TestConcurrentWriters: several clients raise the same limit by one quantum at a time, each deciding afresh after a
// conflict. No step is lost and none is made twice.
func TestConcurrentWriters(t *testing.T) {
	const writers, steps = 4, 3
	s := newFixture(t)
	s.kubelet.Answer(s.pod, apiserver.Ignore)
	var writing, read sync.WaitGroup // read: each has read the pod before the first writes it
	read.Add(writers)
	var conflicts atomic.Int32
	for range writers {
		writing.Go(func() {
			first := sync.OnceFunc(func() { read.Done(); read.Wait() })
			defer first()
			for done := 0; done < steps; {
				pod := &corev1.Pod{}
				if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(s.pod), pod); err != nil {
					t.Error(err)
					return
				}
				first()
				from := cpu.Milli(pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue())
				step := actuator.Change{Container: "app", From: from, To: from + cpu.Quantum}
				r := s.resize.Apply(t.Context(), pod, actuator.Move{UID: string(pod.UID), Changes: []actuator.Change{step}})
				switch r.Outcome {
				case podresize.Accepted:
					done++
				case podresize.Conflict:
					conflicts.Add(1)
				default:
					t.Errorf("outcome %v: %s", r.Outcome, r.Message)
					return
				}
			}
		})
	}
	writing.Wait()
	if n := conflicts.Load(); n < writers-1 {
		t.Errorf("%d conflicts, want one for each writer but the first", n)
	}
	if got, want := s.stored().Spec.Containers[0].Resources.Limits.Cpu().MilliValue(), int64(200+writers*steps*10); got != want {
		t.Errorf("limit %dm after %d steps of 10m from 200m, want %dm", got, writers*steps, want)
	}
}

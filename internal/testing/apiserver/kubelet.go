package apiserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Answer is what a Kubelet does about resizes of a pod.
type Answer uint8

const (
	Obey   Answer = iota // carries them out
	Stall                // accepts them and never finishes
	Defer                // says that the node has no room at the moment
	Refuse               // says that the node never can
	Fail                 // accepts them and meets an error of the runtime
	Ignore               // does nothing
)

// Kubelet is a node and a stand-in for its kubelet: it starts pods, carries resizes out in the
// pods' status and confirms deletions, as far as the API server can tell. No container runs.
type Kubelet struct {
	Node string

	api    client.WithWatch
	poke   chan struct{}
	mu     sync.Mutex
	answer map[types.UID]Answer
	old    bool // cannot resize
}

// Kubelet makes a node of 4 CPUs, Ready for an hour, with a Kubelet of the API server's version
// that works until the test ends.
func (s *Server) Kubelet(t testing.TB, node string) *Kubelet {
	t.Helper()
	k := &Kubelet{Node: node, api: s.Client, poke: make(chan struct{}, 1), answer: map[types.UID]Answer{}}
	ctx, stop := context.WithCancel(context.Background())
	if err := k.register(ctx, s.Version(t)); err != nil {
		stop()
		t.Fatalf("make node %s: %v", node, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k.watchPods(ctx, t) {
		}
	}()
	t.Cleanup(func() {
		n := &corev1.Node{}
		n.Name = node
		if err := k.api.Delete(ctx, n); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete node %s: %v", node, err)
		}
		stop()
		<-done
	})
	return k
}

// Answer changes how resizes of the pod are handled, also one in flight. Every pod starts
// with Obey.
func (k *Kubelet) Answer(pod *corev1.Pod, a Answer) {
	k.mu.Lock()
	k.answer[pod.UID] = a
	k.mu.Unlock()
	k.trigger()
}

// SetVersion replaces the kubelet by one of another version. The pods go on, as they do where only
// the kubelet is restarted. One before 1.33 knows no resize: it reports no container's resources,
// observes no generation and never looks at a resize.
func (k *Kubelet) SetVersion(t testing.TB, version string) {
	t.Helper()
	node := &corev1.Node{}
	if err := k.api.Get(t.Context(), client.ObjectKey{Name: k.Node}, node); err != nil {
		t.Fatalf("replace the kubelet of %s: %v", k.Node, err)
	}
	before := node.DeepCopy()
	node.Status.NodeInfo.KubeletVersion = version
	if err := k.api.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatalf("replace the kubelet of %s: %v", k.Node, err)
	}
	k.mu.Lock()
	k.old = utilversion.MustParse(version).LessThan(utilversion.MajorMinor(1, 33))
	k.mu.Unlock()
	k.trigger()
}

// trigger has it look at all its pods.
func (k *Kubelet) trigger() {
	select {
	case k.poke <- struct{}{}:
	default: // it will look anyhow
	}
}

// Run creates the pod on this node and returns it, as stored, once it is running and Ready.
func (k *Kubelet) Run(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod.Spec.NodeName = k.Node
	if err := k.api.Create(t.Context(), pod); err != nil {
		t.Fatalf("create pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return WaitFor(t, k.api, pod, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

// WaitFor reads the pod until it is as wanted, and fails the test after a minute.
func WaitFor(t testing.TB, c client.Reader, pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var got *corev1.Pod
	Eventually(t, fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, what), func() (bool, any) {
		got = &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
			return false, err
		}
		return is(got), got.Status
	})
	return got
}

// Eventually asks until the answer is yes, and fails the test after a minute, with what was seen
// last.
func Eventually(t testing.TB, what string, ask func() (yes bool, seen any)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for {
		yes, seen := ask()
		if yes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute it is not true that %s; seen last: %+v", what, seen)
		}
		<-tick.C
	}
}

func (k *Kubelet) register(ctx context.Context, version string) error {
	node := &corev1.Node{}
	node.Name = k.Node
	node.Labels = map[string]string{corev1.LabelHostname: k.Node, corev1.LabelOSStable: "linux"}
	if err := k.api.Create(ctx, node); err != nil {
		return err
	}
	node.Spec.Taints = nil // admission gave it not-ready, as every new node
	if err := k.api.Update(ctx, node); err != nil {
		return err
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: resources, Allocatable: resources,
		DeclaredFeatures: []string{"InPlacePodLevelResourcesVerticalScaling"}, // older API servers drop it
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}},
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: version, ContainerRuntimeVersion: "containerd://2.1.0",
		},
	}
	return k.api.Status().Update(ctx, node)
}

// watchPods looks at each pod of the node, and again whenever one changes, until it is triggered. It
// says whether to go on.
func (k *Kubelet) watchPods(ctx context.Context, t testing.TB) bool {
	// It begins with every pod as it is.
	w, err := k.api.Watch(ctx, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": k.Node})
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("stand-in kubelet of %s: watch its pods: %v", k.Node, err)
		}
		return false
	}
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return ctx.Err() == nil
			}
			if pod, ok := e.Object.(*corev1.Pod); ok {
				k.reconcile(ctx, t, pod)
			}
		case <-k.poke:
			return true
		}
	}
}

func (k *Kubelet) reconcile(ctx context.Context, t testing.TB, pod *corev1.Pod) {
	k.mu.Lock()
	answer, old := k.answer[pod.UID], k.old
	k.mu.Unlock()
	next := Report
	if old {
		next = reportOld
	}
	var err error
	if pod.DeletionTimestamp != nil {
		err = k.api.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	} else if next := next(pod, answer, metav1.Now()); !equality.Semantic.DeepEqual(next, pod.Status) {
		before := pod.DeepCopy()
		pod.Status = next
		err = k.api.Status().Patch(ctx, pod, client.MergeFrom(before))
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		t.Errorf("stand-in kubelet of %s: pod %s/%s: %v", k.Node, pod.Namespace, pod.Name, err)
	}
}

// HoldKey as annotation of a pod has its Kubelet not start its containers yet or, with the value Unseen, not
// look at it.
const (
	HoldKey = "test/hold"
	Unseen  = "unseen"
)

// held is the status of a pod whose containers are about to be created.
func held(pod *corev1.Pod) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	wait := func(containers []corev1.Container) (list []corev1.ContainerStatus) {
		for _, c := range containers {
			waiting := &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
			list = append(list, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: waiting}})
		}
		return list
	}
	s.ContainerStatuses, s.InitContainerStatuses = wait(pod.Spec.Containers), wait(pod.Spec.InitContainers)
	s.ObservedGeneration = pod.Generation
	return s
}

// Report is the status that a kubelet writes next for a pod, where it handles resizes in that way.
func Report(pod *corev1.Pod, answer Answer, now metav1.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	if s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed {
		return s
	}
	if s.Phase != corev1.PodRunning {
		switch pod.Annotations[HoldKey] {
		case "":
		case Unseen:
			return s
		default:
			return held(pod)
		}
		return started(pod, now)
	}
	if inForce(pod) {
		setResize(&s, corev1.PodCondition{}, pod.Generation, now)
		s.ObservedGeneration = pod.Generation
		return s
	}
	condition := resizeConditions[answer]
	switch answer {
	case Obey:
		applySpec(s.ContainerStatuses, pod.Spec.Containers)
		applySpec(s.InitContainerStatuses, pod.Spec.InitContainers)
		s.Resources = pod.Spec.Resources.DeepCopy()
	case Ignore:
		return s
	}
	setResize(&s, condition, pod.Generation, now)
	s.ObservedGeneration = pod.Generation
	return s
}

// resizeConditions are what a Kubelet reports of a resize that is not in force.
var resizeConditions = map[Answer]corev1.PodCondition{
	Stall:  {Type: corev1.PodResizeInProgress},
	Defer:  {Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred, Message: "the node has no room at the moment"},
	Refuse: {Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible, Message: "the node never has that much"},
	Fail:   {Type: corev1.PodResizeInProgress, Reason: corev1.PodReasonError, Message: "the runtime returned an error"},
}

// reportOld is the same of a kubelet that cannot resize.
func reportOld(pod *corev1.Pod, _ Answer, now metav1.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	if s.Phase != corev1.PodRunning && s.Phase != corev1.PodSucceeded && s.Phase != corev1.PodFailed {
		s = started(pod, now)
	}
	setResize(&s, corev1.PodCondition{}, 0, now)
	s.ObservedGeneration, s.Resources = 0, nil
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = 0
	}
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			list[i].Resources, list[i].AllocatedResources = nil, nil
		}
	}
	return s
}

// started is the status of a pod whose containers all run, whose sidecars run, and whose other init
// containers have finished.
func started(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy() // the API server has set the QoS class
	s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &now, pod.Generation
	s.HostIP, s.PodIP = "192.0.2.1", "192.0.2.2"
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: s.HostIP}}, []corev1.PodIP{{IP: s.PodIP}}
	s.ContainerStatuses = containerStatuses(pod, pod.Spec.Containers, now)
	s.InitContainerStatuses = containerStatuses(pod, pod.Spec.InitContainers, now)
	s.Resources = pod.Spec.Resources.DeepCopy() // an API server that does not resize them drops these
	for i, c := range pod.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			s.InitContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
		}
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: pod.Generation})
	}
	return s
}

func containerStatuses(pod *corev1.Pod, containers []corev1.Container, now metav1.Time) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for _, c := range containers {
		started := true
		list = append(list, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Started: &started, Image: c.Image, ImageID: c.Image,
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			ContainerID: fmt.Sprintf("containerd://%x", sha256.Sum256([]byte(string(pod.UID)+c.Name))),
		})
	}
	applySpec(list, containers)
	return list
}

// applySpec makes the statuses report the resources of the spec.
func applySpec(statuses []corev1.ContainerStatus, containers []corev1.Container) {
	for i := range statuses {
		r := containers[i].Resources.DeepCopy()
		statuses[i].Resources, statuses[i].AllocatedResources = r, r.Requests
	}
}

// inForce says whether the status reports the resources of the spec.
func inForce(pod *corev1.Pod) bool {
	same := func(statuses []corev1.ContainerStatus, containers []corev1.Container) bool {
		for i := range statuses {
			if r := statuses[i].Resources; r == nil || !equality.Semantic.DeepEqual(*r, containers[i].Resources) {
				return false
			}
		}
		return true
	}
	if own := pod.Spec.Resources; own != nil && !equality.Semantic.DeepEqual(own, pod.Status.Resources) {
		return false
	}
	return same(pod.Status.ContainerStatuses, pod.Spec.Containers) && same(pod.Status.InitContainerStatuses, pod.Spec.InitContainers)
}

// setResize leaves the given resize condition, or none, as the only one.
func setResize(s *corev1.PodStatus, next corev1.PodCondition, generation int64, now metav1.Time) {
	next.Status, next.ObservedGeneration, next.LastTransitionTime = corev1.ConditionTrue, generation, now
	var kept []corev1.PodCondition
	for _, c := range s.Conditions {
		switch {
		case c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress:
			kept = append(kept, c)
		case c.Type == next.Type && c.Reason == next.Reason:
			next.LastTransitionTime = c.LastTransitionTime
		}
	}
	if next.Type != "" {
		kept = append(kept, next)
	}
	s.Conditions = kept
}

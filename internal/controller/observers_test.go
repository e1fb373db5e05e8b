package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// views are how others count a pod's requests: with Kubernetes' own helper and these options, from the default settings of the
// feature gates InPlacePodVerticalScaling and InPlacePodLevelResourcesVerticalScaling in 1.36 and 1.37. With
// UseStatusResources a container counts with the largest of what is asked for, allocated and in force.
var views = map[string]resourcehelper.PodResourcesOptions{
	// kubernetes pkg/scheduler/framework/types.go, CalculateResource: a pod on a node.
	"kube-scheduler": {UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true},
	// The same place, for scores. The amounts are of pkg/scheduler/util/pod_resources.go.
	"kube-scheduler, scores": {
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		NonMissingContainerRequests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("200Mi"),
		},
	},
	// kubernetes/autoscaler cluster-autoscaler/utils/pod/pod.go, PodRequests;
	// kubernetes-sigs/karpenter v1.15.0 pkg/utils/resources/resources.go, Ceiling.
	"Cluster Autoscaler and Karpenter": {UseStatusResources: true},
	// kubernetes-sigs/descheduler v0.36.0 pkg/utils/pod.go, PodRequestsAndLimits;
	// kubernetes pkg/scheduler/framework/plugins/noderesources/fit.go, computePodResourceRequest: a pod that is to be placed.
	"descheduler": {},
}

// observers follow every version of the pods of a namespace, and of their node, as those do that place and evict pods.
type observers struct {
	*rig
	mu     sync.Mutex
	first  map[types.UID]*corev1.Pod // as each pod was once it ran
	latest map[types.UID]string      // resource version
	node   *corev1.Node
	saw    []string // what has changed for them
}

// watchPods starts them. They stop with the test.
func (r *rig) watchPods() *observers {
	r.Helper()
	o := &observers{rig: r, first: map[types.UID]*corev1.Pod{}, latest: map[types.UID]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r.Cleanup(func() {
		cancel()
		running.Wait()
	})
	follow := func(list client.ObjectList, which client.ListOption, look func(runtime.Object)) {
		w, err := r.Client.Watch(ctx, list, which)
		r.must(err)
		running.Go(func() {
			for e := range w.ResultChan() { // where it ends too early, seen will wait in vain
				look(e.Object)
			}
		})
	}
	follow(&corev1.PodList{}, client.InNamespace(r.namespace), o.look)
	follow(&corev1.NodeList{}, client.MatchingFields{"metadata.name": r.kubelet.Node}, o.lookAtNode)
	return o
}

func (o *observers) look(object runtime.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest[pod.UID] = pod.ResourceVersion
	first := o.first[pod.UID]
	if first == nil {
		if pod.Status.Phase == corev1.PodRunning {
			o.first[pod.UID] = pod
		}
		return
	}
	for _, view := range slices.Sorted(maps.Keys(views)) {
		was, is := resourcehelper.PodRequests(first, views[view]), resourcehelper.PodRequests(pod, views[view])
		if d := cmp.Diff(was, is); d != "" {
			o.saw = append(o.saw, fmt.Sprintf("%s counts other requests of pod %s:\n%s", view, pod.Name, d))
		}
	}
	if d := cmp.Diff(withoutResize(first), withoutResize(pod)); d != "" {
		o.saw = append(o.saw, fmt.Sprintf("pod %s is another in more than its CPU limits:\n%s", pod.Name, d))
	}
}

func (o *observers) lookAtNode(object runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node, ok := object.(*corev1.Node); !ok {
		return
	} else if o.node == nil {
		o.node = node
	} else if d := cmp.Diff(o.node, node); d != "" {
		o.saw = append(o.saw, fmt.Sprintf("node %s has changed:\n%s", node.Name, d))
	}
}

// withoutResize is the pod without what a resize of CPU limits is: the limits themselves, asked for and in force, and the
// kubelet's conditions about it. Labels, annotations, owners, priority, QoS class, requests, restarts
// and all other conditions are part of it.
func withoutResize(pod *corev1.Pod) *corev1.Pod {
	p := pod.DeepCopy()
	p.ResourceVersion, p.Generation, p.ManagedFields, p.Status.ObservedGeneration = "", 0, nil, 0
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		delete(c.Resources.Limits, corev1.ResourceCPU)
	}
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if s.Resources != nil {
			delete(s.Resources.Limits, corev1.ResourceCPU)
		}
	}
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	return p
}

// seen waits until everything that has happened to the pods was looked at, and returns what has changed for the observers.
func (o *observers) seen(pods ...*corev1.Pod) string {
	o.Helper()
	for _, pod := range pods {
		o.until("pod "+pod.Name+" was looked at", func() (bool, any) {
			now := o.read(pod)
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.latest[pod.UID] == now.ResourceVersion, o.latest[pod.UID]
		})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.saw, "\n")
}

// requested is what a view counts for the node's pods together.
func (o *observers) requested(view string, pods ...*corev1.Pod) int64 {
	o.Helper()
	var sum int64
	for _, pod := range pods {
		requests := resourcehelper.PodRequests(o.read(pod), views[view])
		sum += requests.Cpu().MilliValue()
	}
	return sum
}

// richPod runs a pod with all that schedulers and autoscalers may look at, and a sidecar. Its requests are 170m.
func (r *rig) richPod(name string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "20m", ""))
	pod.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "10m", "10m"), apiserver.Sidecar("proxy", "50m", "200m")}
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
		corev1.PodDeletionCost: "7",
	}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-abc", UID: "rs-web", Controller: ptr.To(true)}}
	pod.Spec.PriorityClassName = r.namespace
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
	}}
	return r.kubelet.Run(r, pod)
}

// TestNoOtherComponentSeesIt: whatever becomes of our resizes (raised, lowered, deferred, refused, failed, never finished, restored), those that
// place and evict pods never see a pod, or a node's requested sum, change. They would see a change of requests, though.
func TestNoOtherComponentSeesIt(t *testing.T) {
	r := newRig(t)
	r.config.Backoff = time.Hour
	r.priorityClass(r.namespace, 1500, false)
	var ahead atomic.Int64
	var rec *Reconciler
	r.start(clockAhead(&ahead), func(re *Reconciler) { rec = re })
	var pods []*corev1.Pod
	kubelets := []struct {
		name   string
		answer apiserver.Answer
		phase  v1alpha1.Phase
		reason reasons.Reason
		limit  int64 // of app, in the end
	}{
		{"obeys", apiserver.Obey, v1alpha1.PhaseApplied, reasons.Settled, 2000},
		{"defers", apiserver.Defer, v1alpha1.PhaseFailed, reasons.ResizeDeferred, 500},
		{"refuses", apiserver.Refuse, v1alpha1.PhaseFailed, reasons.ResizeInfeasible, 500},
		{"fails", apiserver.Fail, v1alpha1.PhaseFailed, reasons.ResizeError, 500},
		{"stalls", apiserver.Stall, v1alpha1.PhaseFailed, reasons.ResizeTimedOut, 2000},
	}
	for _, k := range kubelets {
		pod := r.richPod(k.name)
		r.allocation(pod, "made", recorded)
		pods = append(pods, pod)
	}
	o := r.watchPods()
	before := map[string]int64{}
	for view := range views {
		before[view] = o.requested(view, pods...)
	}
	if before["kube-scheduler"] != 5*170 {
		t.Fatalf("the scheduler counts %dm, want 5 x 170m", before["kube-scheduler"])
	}
	proxy := func(m cpu.Milli) v1alpha1.ContainerLimit { return v1alpha1.ContainerLimit{Name: "proxy", CPULimit: m} }
	for i, k := range kubelets {
		r.kubelet.Answer(pods[i], k.answer)
		decide := func() { r.decideUpTo(pods[i], 2400, app(2000), proxy(400)) }
		if decide(); k.answer == apiserver.Fail || k.answer == apiserver.Stall { // its kubelet is given its time
			r.allocation(pods[i], "in flight", stands(v1alpha1.PhasePending, reasons.ResizeInFlight))
			apiserver.WaitFor(r, rec.Client, pods[i], "observed, in the cache of the controller", func(p *corev1.Pod) bool {
				return p.Generation > pods[i].Generation && p.Status.ObservedGeneration == p.Generation
			})
			ahead.Add(int64(r.config.ActuationTimeout))
			decide()
		}
		r.allocation(pods[i], k.name, stands(k.phase, k.reason))
		r.until("app is at its limit", func() (bool, any) {
			got := r.appLimit(pods[i])
			return got == k.limit, got
		})
	}
	r.publish(pods[0], "2.000", app(600), proxy(100))
	r.allocation(pods[0], "lowered in steps", stands(v1alpha1.PhaseApplied, reasons.Settled))
	for _, pod := range pods {
		r.kubelet.Answer(pod, apiserver.Obey)
	}
	r.mode(r.namespace, kube.ModeRestore)
	for _, pod := range pods {
		r.until("restored", func() (bool, any) { got := r.appLimit(pod); return got == 500, got })
	}

	if saw := o.seen(pods...); saw != "" {
		t.Errorf("it is seen:\n%s", saw)
	}
	for view, was := range before {
		if is := o.requested(view, pods...); is != was {
			t.Errorf("%s counts %dm on the node, and %dm before", view, is, was)
		}
	}
	o.seesChanges(pods[1])
}

// seesChanges is the other side of the test: a raise of requests is seen, by all, also while the kubelet defers it, and so is
// any other change of the pod.
func (o *observers) seesChanges(pod *corev1.Pod) {
	o.Helper()
	o.mode(o.namespace, kube.ModeOff) // the controller leaves it alone
	o.annotate(pod.DeepCopy(), "example.com/note", "changed")
	o.kubelet.Answer(pod, apiserver.Defer)
	patch := `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"300m"}}}]}}`
	o.must(o.Client.SubResource("resize").Patch(o.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", []byte(patch))))
	saw := o.seen(pod)
	for view := range views {
		if !strings.Contains(saw, view+" counts other requests of pod "+pod.Name) {
			o.Errorf("%s does not see requests that change", view)
		}
	}
	if !strings.Contains(saw, `"changed"`) {
		o.Error("no annotation is seen that changes")
	}
}

func (r *rig) appLimit(pod *corev1.Pod) int64 {
	r.Helper()
	return r.read(pod).Spec.Containers[0].Resources.Limits.Cpu().MilliValue()
}

// TestTheSchedulerDoesNotMind has the real kube-scheduler place pods on a node whose limits add up to five times its CPUs, and
// after they were lowered again: it counts requests in both cases.
func TestTheSchedulerDoesNotMind(t *testing.T) {
	r := newRig(t)
	r.Scheduler(t)
	r.start()
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pod := r.pod(name, "600m", "700m") // 3 of the node's 4 CPUs
		r.allocation(pod, "made", recorded)
		pods = append(pods, pod)
	}
	all := func(limit cpu.Milli) {
		t.Helper()
		for _, pod := range pods {
			r.publish(pod, "0.000", app(limit))
		}
		for _, pod := range pods {
			r.until("limits are in force", func() (bool, any) {
				return r.limit(pod) == limit && stands(v1alpha1.PhaseApplied, reasons.Settled)(r.stored(pod)), r.stored(pod).Status
			})
		}
	}
	all(4000) // 20 CPUs
	r.placed("first", "500m")
	r.unplaced("second", "600m")
	all(700)
	r.placed("third", "500m") // now all 4 are requested
	r.unplaced("fourth", "10m")
	all(4000)
	for _, pod := range pods {
		got := r.read(pod)
		if got.UID != pod.UID || got.DeletionTimestamp != nil {
			t.Errorf("pod %s was evicted", pod.Name)
		}
	}
}

// unbound makes a pod for the scheduler to place on the rig's node.
func (r *rig) unbound(name, request string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", request, ""))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: r.kubelet.Node}
	r.must(r.Client.Create(r.Context(), pod))
	return pod
}

func (r *rig) placed(name, request string) {
	r.Helper()
	apiserver.WaitFor(r, r.Client, r.unbound(name, request), "placed", func(p *corev1.Pod) bool { return p.Spec.NodeName == r.kubelet.Node })
}

// unplaced checks that the scheduler finds too little CPU, and takes the pod away again.
func (r *rig) unplaced(name, request string) {
	r.Helper()
	pod := apiserver.WaitFor(r, r.Client, r.unbound(name, request), "refused a place", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return true
			}
		}
		return false
	})
	if said := pod.Status.Conditions[0].Message; !strings.Contains(said, "Insufficient cpu") {
		r.Errorf("pod %s is not placed, because of %q", name, said)
	}
	r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
}

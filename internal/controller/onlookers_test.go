package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// onlookers follow every version of the pods of a namespace, and of their node, as those do that place and evict pods.
type onlookers struct {
	*rig
	mu     sync.Mutex
	first  map[types.UID]*corev1.Pod // as each pod was once it ran
	latest map[types.UID]string      // resource version
	node   *corev1.Node
	saw    []string // what has changed for them
}

// onlook starts them. They stop with the test.
func (r *rig) onlook() *onlookers {
	r.Helper()
	o := &onlookers{rig: r, first: map[types.UID]*corev1.Pod{}, latest: map[types.UID]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	pods, err := r.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(r.namespace))
	r.must(err)
	nodes, err := r.Client.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": r.kubelet.Node})
	r.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-pods.ResultChan():
				if !open {
					return // seen will wait in vain
				}
				if pod, ok := e.Object.(*corev1.Pod); ok {
					o.look(pod)
				}
			case e, open := <-nodes.ResultChan():
				if !open {
					return
				}
				if node, ok := e.Object.(*corev1.Node); ok {
					o.lookAtNode(node)
				}
			}
		}
	}()
	r.Cleanup(func() {
		cancel()
		pods.Stop()
		nodes.Stop()
		<-done
	})
	return o
}

func (o *onlookers) look(pod *corev1.Pod) {
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

func (o *onlookers) lookAtNode(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.node == nil {
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
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			delete(list[i].Resources.Limits, corev1.ResourceCPU)
		}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			delete(list[i].Resources.Limits, corev1.ResourceCPU)
		}
	}
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	return p
}

// seen waits until everything that has happened to the pods was looked at, and returns what has changed for the onlookers.
func (o *onlookers) seen(pods ...*corev1.Pod) string {
	o.Helper()
	for _, pod := range pods {
		o.until("pod "+pod.Name+" was looked at", func() (bool, any) {
			now := &corev1.Pod{}
			o.must(o.Client.Get(o.Context(), client.ObjectKeyFromObject(pod), now))
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
func (o *onlookers) requested(view string, pods ...*corev1.Pod) int64 {
	o.Helper()
	var sum int64
	for _, pod := range pods {
		now := &corev1.Pod{}
		o.must(o.Client.Get(o.Context(), client.ObjectKeyFromObject(pod), now))
		requests := resourcehelper.PodRequests(now, views[view])
		sum += requests.Cpu().MilliValue()
	}
	return sum
}

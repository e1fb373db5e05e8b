// Package fakekubelet stands in for the kubelets of all nodes of a simulated cluster, in one
// process: pods start, resizes are carried out in their status after a drawn delay, and deletions
// are confirmed. It also builds nodes and pods as large as those of production clusters. No
// container runs. It is for tests and measurements only.
package fakekubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Delay is drawn evenly between two bounds.
type Delay struct{ Min, Max time.Duration }

func (d Delay) draw() time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + rand.N(d.Max-d.Min)
}

// Config is how the kubelets behave.
type Config struct {
	Client kubernetes.Interface
	// Start and Resize are how long a pod takes to run, and a resize to be in force.
	Start, Resize Delay
	// Workers is how many writes are in flight at once.
	Workers int
	// Changed is called, in order and by one goroutine, when a pod is seen to change; before is nil
	// for a new pod and after for one that is gone.
	Changed func(before, after *corev1.Pod)
}

// Kubelets are those of all nodes.
type Kubelets struct {
	cfg    Config
	queue  workqueue.TypedDelayingInterface[types.UID]
	synced atomic.Bool
	errors atomic.Int64

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod // as seen last, trimmed
	// limits are those in force, by container ID: *atomic.Int64.
	limits sync.Map
}

// New is the kubelets of a cluster. Run starts them.
func New(cfg Config) *Kubelets {
	return &Kubelets{
		cfg: cfg, pods: map[types.UID]*corev1.Pod{}, queue: workqueue.NewTypedDelayingQueue[types.UID](),
	}
}

// Run works until ctx ends.
func (k *Kubelets) Run(ctx context.Context) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(
			k.cfg.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything()),
		ObjectType: &corev1.Pod{},
		Transform:  trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.see(o.(*corev1.Pod)) },
			UpdateFunc: func(_, o any) { k.see(o.(*corev1.Pod)) },
			DeleteFunc: k.forget,
		},
	})
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		k.synced.Store(cache.WaitFor(ctx, "", informer.HasSyncedChecker()))
	})
	for range max(1, k.cfg.Workers) {
		running.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	running.Wait()
}

// Synced says whether all pods have been listed.
func (k *Kubelets) Synced() bool { return k.synced.Load() }

// Errors is how many writes failed and were tried again.
func (k *Kubelets) Errors() int64 { return k.errors.Load() }

// Pods are all pods as seen last; nothing may change them.
func (k *Kubelets) Pods() []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]*corev1.Pod, 0, len(k.pods))
	for _, p := range k.pods {
		list = append(list, p)
	}
	return list
}

// Limit is the CPU limit that is in force for a container; 0: none. The returned value follows
// later changes. It is nil for a container that does not run.
func (k *Kubelets) Limit(containerID string) *atomic.Int64 {
	if v, ok := k.limits.Load(containerID); ok {
		return v.(*atomic.Int64)
	}
	return nil
}

// trim keeps what a kubelet here looks at.
func trim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	p.ManagedFields, p.Annotations = nil, nil
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{
			Name: c.Name, Image: c.Image, Resources: c.Resources, VolumeMounts: c.VolumeMounts,
		})
	}
	p.Spec = spec
	return p, nil
}

// see takes a pod in as it is now, and has it dealt with after a delay where there is something to
// do.
func (k *Kubelets) see(pod *corev1.Pod) {
	k.mu.Lock()
	before := k.pods[pod.UID]
	k.pods[pod.UID] = pod
	k.mu.Unlock()
	if before == nil && pod.Status.Phase == corev1.PodRunning {
		k.enforce(pod, pod.Status.ContainerStatuses)
	}
	switch due(pod) {
	case toStart:
		k.queue.AddAfter(pod.UID, k.cfg.Start.draw())
	case toResize:
		k.queue.AddAfter(pod.UID, k.cfg.Resize.draw())
	case toEnd:
		k.queue.Add(pod.UID)
	}
	if k.cfg.Changed != nil {
		k.cfg.Changed(before, pod)
	}
}

// forget drops a pod that is gone.
func (k *Kubelets) forget(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	delete(k.pods, pod.UID)
	k.mu.Unlock()
	for _, c := range pod.Spec.Containers {
		k.limits.Delete(ContainerID(pod.UID, c.Name))
	}
	if k.cfg.Changed != nil {
		k.cfg.Changed(pod, nil)
	}
}

// enforce puts the limits of the statuses into force.
func (k *Kubelets) enforce(pod *corev1.Pod, statuses []corev1.ContainerStatus) {
	for i := range statuses {
		limit := cpu.Milli(0)
		if r := statuses[i].Resources; r != nil {
			limit = kube.Milli(r.Limits[corev1.ResourceCPU])
		}
		v, _ := k.limits.LoadOrStore(ContainerID(pod.UID, statuses[i].Name), new(atomic.Int64))
		v.(*atomic.Int64).Store(int64(limit))
	}
}

// action is what a kubelet has to do about a pod.
type action uint8

const (
	nothing action = iota
	toStart
	toResize
	toEnd
)

func due(pod *corev1.Pod) action {
	switch {
	case pod.DeletionTimestamp != nil:
		return toEnd
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nothing
	case pod.Status.Phase != corev1.PodRunning:
		return toStart
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for j := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[j]
			if s.Name == c.Name && (s.Resources == nil || !equality.Semantic.DeepEqual(*s.Resources, c.Resources)) {
				return toResize
			}
		}
	}
	return nothing
}

// next deals with one pod; false once the queue is shut down.
func (k *Kubelets) next(ctx context.Context) bool {
	uid, shutdown := k.queue.Get()
	if shutdown {
		return false
	}
	defer k.queue.Done(uid)
	k.mu.Lock()
	pod := k.pods[uid]
	k.mu.Unlock()
	if pod == nil {
		return true
	}
	err := k.act(ctx, pod)
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		k.errors.Add(1)
		k.queue.AddAfter(uid, time.Second)
	}
	return true
}

func (k *Kubelets) act(ctx context.Context, pod *corev1.Pod) error {
	pods := k.cfg.Client.CoreV1().Pods(pod.Namespace)
	status := map[string]any{"observedGeneration": pod.Generation}
	var statuses []corev1.ContainerStatus
	switch due(pod) {
	case nothing:
		return nil
	case toEnd:
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	case toStart:
		s := Running(pod, metav1.Now())
		statuses = s.ContainerStatuses
		status["phase"], status["conditions"], status["startTime"] = s.Phase, s.Conditions, s.StartTime
		status["hostIP"], status["hostIPs"], status["podIP"], status["podIPs"] = s.HostIP, s.HostIPs, s.PodIP, s.PodIPs
	case toResize:
		for i := range pod.Status.ContainerStatuses {
			s := *pod.Status.ContainerStatuses[i].DeepCopy()
			s.Resources = resourcesOf(pod, s.Name)
			s.AllocatedResources = s.Resources.Requests
			statuses = append(statuses, s)
		}
	}
	status["containerStatuses"] = statuses
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	k.enforce(pod, statuses)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	return err
}

func resourcesOf(pod *corev1.Pod, container string) *corev1.ResourceRequirements {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			return pod.Spec.Containers[i].Resources.DeepCopy()
		}
	}
	return &corev1.ResourceRequirements{}
}

package kube

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/market"
)

// Milli is a quantity in thousandths of a core, rounded up as Kubernetes does.
func Milli(q resource.Quantity) cpu.Milli {
	if q.Cmp(largest) >= 0 {
		return math.MaxInt32
	}
	return cpu.Milli(q.MilliValue())
}

var largest = resource.MustParse("2147483")

// Quantity is an amount as Kubernetes writes it, canonical in milli form below a core.
func Quantity(m cpu.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(m), resource.DecimalSI)
}

// container is one container or sidecar of a pod with its status.
type container struct {
	spec   *corev1.Container
	status *corev1.ContainerStatus // nil: none yet
}

// containers are the pod's containers and then its sidecars: everything that runs beside each other.
// Init containers that run to completion and ephemeral containers never have a part in the market.
func containers(pod *corev1.Pod) []container {
	list := make([]container, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		list = append(list, container{c, statusOf(pod.Status.ContainerStatuses, c.Name)})
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, container{c, statusOf(pod.Status.InitContainerStatuses, c.Name)})
		}
	}
	return list
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func (c container) limit() cpu.Milli {
	return Milli(c.spec.Resources.Limits[corev1.ResourceCPU])
}

func (c container) request() cpu.Milli {
	return Milli(c.spec.Resources.Requests[corev1.ResourceCPU])
}

// id is the runtime's ID without its scheme, while the container runs.
func (c container) id() string {
	if c.status == nil || c.status.State.Running == nil {
		return ""
	}
	_, id, _ := strings.Cut(c.status.ContainerID, "://")
	return id
}

// Limits are the CPU limits in a pod's spec, of the containers that have one, in the pod's order.
func Limits(pod *corev1.Pod) []v1alpha1.ContainerLimit {
	var limits []v1alpha1.ContainerLimit
	for _, c := range containers(pod) {
		if l := c.limit(); l > 0 {
			limits = append(limits, v1alpha1.ContainerLimit{Name: c.spec.Name, CPULimit: l})
		}
	}
	return limits
}

// Total is the sum of limits.
func Total(limits []v1alpha1.ContainerLimit) (sum cpu.Milli) {
	for _, l := range limits {
		sum += l.CPULimit
	}
	return sum
}

// SameLimits says whether two sets of limits are equal, whatever their order.
func SameLimits(a, b []v1alpha1.ContainerLimit) bool {
	if len(a) != len(b) {
		return false
	}
	m := byName(a)
	for _, l := range b {
		if v, ok := m[l.Name]; !ok || v != l.CPULimit {
			return false
		}
	}
	return true
}

func byName(limits []v1alpha1.ContainerLimit) map[string]cpu.Milli {
	m := make(map[string]cpu.Milli, len(limits))
	for _, l := range limits {
		m[l.Name] = l.CPULimit
	}
	return m
}

// Facts are what a pod's eligibility depends on. mode is its namespace's, system our own namespace.
func Facts(pod *corev1.Pod, mode Mode, system string) eligibility.Facts {
	f := eligibility.Facts{
		SystemNamespace: AlwaysOut(pod.Namespace, system),
		NamespaceOff:    mode == ModeOff,
		OptedOut:        pod.Labels[ManagedKey] == "false" || pod.Annotations[ManagedKey] == "false",
		Running:         pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil,
		QOS:             eligibility.QOS(pod.Status.QOSClass),
		Static:          pod.Annotations[corev1.MirrorPodAnnotationKey] != "",
		Windows:         pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows,
		PodResources:    pod.Spec.Resources != nil,
		RuntimeClass:    pod.Spec.RuntimeClassName != nil && *pod.Spec.RuntimeClassName != "",
	}
	_, err := maxCPU(pod)
	f.InvalidAnnotation = err != nil
	running := false
	for _, c := range containers(pod) {
		f.Containers = append(f.Containers, eligibility.ContainerFacts{Limited: c.limit() > 0, Restarts: restarts(c.spec)})
		// The API server looks at the first running container only, and so do we.
		if !running && c.status != nil && c.status.State.Running != nil {
			running = true
			f.StatusWithoutResources = c.status.Resources == nil
		}
	}
	return f
}

func restarts(c *corev1.Container) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer {
			return true
		}
	}
	return false
}

// maxCPU is the pod's own bound on its total limit; 0 where it sets none.
func maxCPU(pod *corev1.Pod) (cpu.Milli, error) {
	s, ok := pod.Annotations[MaxCPUKey]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 {
		return 0, fmt.Errorf("pod %s/%s: annotation %s is %q: want a positive CPU quantity such as \"2\" or \"1500m\"", pod.Namespace, pod.Name, MaxCPUKey, s)
	}
	return Milli(q), nil
}

// CgroupPod is the UID that the kubelet puts in the pod's cgroup path: its config hash for a static pod.
func CgroupPod(pod *corev1.Pod) string {
	// Anybody can write the hash on an ordinary pod; only the kubelet makes mirror pods.
	if h := pod.Annotations["kubernetes.io/config.hash"]; h != "" && pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return h
	}
	return string(pod.UID)
}

// Bidder is the pod in the market's words. Without a PodAllocation, or with one whose declared limits
// are not recorded, it is a shadow: it takes part with its use and is never resized.
func Bidder(pod *corev1.Pod, pa *v1alpha1.PodAllocation, allocatable cpu.Milli) demand.Pod {
	p := demand.Pod{UID: string(pod.UID), Unmanaged: true}
	p.PriorityPercent = int32(math.Round(100 * demand.PriorityMultiplier(priority(pod))))
	var declared map[string]cpu.Milli
	var bounds Bounds
	if pa != nil && pa.Spec.PodRef.UID == pod.UID && len(pa.Status.DeclaredLimits) > 0 {
		p.Unmanaged = false
		declared = byName(pa.Status.DeclaredLimits)
		bounds = BoundsOf(pod, pa.Status.DeclaredLimits, allocatable, pa.Status.Terms)
		p.Ceiling = bounds.Ceiling
		if t := pa.Status.Terms; t != nil {
			p.RaiseOnNeed = t.RaiseOnNeed
			p.FairnessPercent, p.DemandPercent = value(t.FairnessPercent), value(t.DemandPercent)
		}
	}
	var requests cpu.Milli
	for _, c := range containers(pod) {
		p.Containers = append(p.Containers, demand.Container{
			Name: c.spec.Name, ID: c.id(), Request: c.request(),
			Declared: declared[c.spec.Name], Limit: c.limit(),
			Ceiling: bounds.Containers[c.spec.Name].Ceiling, Floor: bounds.Containers[c.spec.Name].Floor,
		})
		requests += c.request()
	}
	p.Budget = p.Weights.Budget(requests)
	return p
}

// BudgetOf is what the pod bids with where no coordinator adds anything: for the requests of its containers with a limit, as its
// priority counts.
func BudgetOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) market.Budget {
	limited, requests := byName(declared), cpu.Milli(0)
	for _, c := range containers(pod) {
		if limited[c.spec.Name] > 0 {
			requests += c.request()
		}
	}
	return demand.Budget(requests, priority(pod))
}

// value is what p points to; 0 where it points to nothing.
func value(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// PodRef names the pod for good.
func PodRef(pod *corev1.Pod) v1alpha1.PodRef {
	return v1alpha1.PodRef{Name: pod.Name, UID: pod.UID}
}

// WithLimits is a copy of the pod with other CPU limits in its spec, by container.
func WithLimits(pod *corev1.Pod, limits map[string]cpu.Milli) *corev1.Pod {
	p := pod.DeepCopy()
	for _, c := range containers(p) {
		if l, ok := limits[c.spec.Name]; ok {
			c.spec.Resources.Limits[corev1.ResourceCPU] = Quantity(l)
		}
	}
	return p
}

package kube

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
)

// Container is one container or sidecar of a pod with its status.
type Container struct {
	Spec    *corev1.Container
	Status  *corev1.ContainerStatus // nil: none yet
	Sidecar bool                    // an init container that runs beside the others
}

// Containers are the pod's containers and then its sidecars: everything that runs beside each
// other. Init containers that run to completion and ephemeral containers take no part in the
// market.
func Containers(pod *corev1.Pod) []Container {
	list := make([]Container, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		list = append(list, Container{c, statusOf(pod.Status.ContainerStatuses, c.Name), false})
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, Container{c, statusOf(pod.Status.InitContainerStatuses, c.Name), true})
		}
	}
	return list
}

// Find is the container or sidecar of that name; found is false where the pod has none.
func Find(pod *corev1.Pod, name string) (c Container, found bool) {
	list := Containers(pod)
	if i := slices.IndexFunc(list, func(c Container) bool { return c.Spec.Name == name }); i >= 0 {
		return list[i], true
	}
	return Container{}, false
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// Limit is the CPU limit in the pod's spec; 0: none.
func (c Container) Limit() cpu.Milli {
	return Milli(c.Spec.Resources.Limits[corev1.ResourceCPU])
}

// Request is the CPU request; 0: none.
func (c Container) Request() cpu.Milli {
	return Milli(c.Spec.Resources.Requests[corev1.ResourceCPU])
}

// InForce is the CPU limit that the kubelet reports; 0: none.
func (c Container) InForce() cpu.Milli {
	if c.Status == nil || c.Status.Resources == nil {
		return 0
	}
	return Milli(c.Status.Resources.Limits[corev1.ResourceCPU])
}

// RestartsOnResize says whether the container's resizePolicy restarts it when its CPU changes.
func (c Container) RestartsOnResize() bool {
	return slices.ContainsFunc(c.Spec.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer
	})
}

// RuntimeID is the runtime's ID without its scheme, while the container runs.
func (c Container) RuntimeID() string {
	if c.Status == nil || c.Status.State.Running == nil {
		return ""
	}
	_, id, _ := strings.Cut(c.Status.ContainerID, "://")
	return id
}

// Runs says whether the kubelet carries out a resize of the container now: it runs and, if it is a sidecar, has
// started. A resize that is accepted before changes the container's next start and leaves the CPU quota of the pod's
// cgroup as it was. On cgroup v1 the kernel then refuses the container's quota, and it never starts; on v2 it starts,
// throttled at the pod's (computePodResizeAction in pkg/kubelet/kuberuntime of Kubernetes 1.36).
func (c Container) Runs() bool {
	return c.Status != nil && c.Status.State.Running != nil && (!c.Sidecar || ptr.Deref(c.Status.Started, false))
}

// Completed says whether the container has ended, and its restart policy does not start it again. The policy of the
// pod holds for containers without their own (KEP-5307).
func (c Container) Completed(policy corev1.RestartPolicy) bool {
	if c.Status == nil || c.Status.State.Terminated == nil {
		return false
	}
	policy = corev1.RestartPolicy(ptr.Deref(c.Spec.RestartPolicy, corev1.ContainerRestartPolicy(policy)))
	code := c.Status.State.Terminated.ExitCode
	restarts := slices.ContainsFunc(c.Spec.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		e := r.ExitCodes
		return e == nil || slices.Contains(e.Values, code) == (e.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
	})
	return !restarts && (policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0)
}

// FailedStart says whether the runtime could not start the container when it tried last. The kubelet gives the error as
// a reason to wait, and during the back-off after it as the end of the container: containerd fails to start it, CRI-O to
// create it.
func (c Container) FailedStart() bool {
	return c.Status != nil && c.Status.State.Waiting != nil &&
		(slices.Contains(startErrors, c.Status.State.Waiting.Reason) || c.failedEnd() != nil)
}

// FailedAt is when the last start of a container that waits failed, to the second; zero: none has, or it is not dated.
func (c Container) FailedAt() time.Time {
	if end := c.failedEnd(); end != nil {
		return end.FinishedAt.Time
	}
	return time.Time{}
}

// failedEnd is the end of a container that waits, and of which the last start failed; nil: there is none.
func (c Container) failedEnd() *corev1.ContainerStateTerminated {
	if c.Status == nil || c.Status.State.Waiting == nil {
		return nil
	}
	if end := c.Status.LastTerminationState.Terminated; end != nil && end.Reason == startError {
		return end
	}
	return nil
}

const startError = "StartError"

var startErrors = []string{"RunContainerError", "CreateContainerError"}

// PodQuota is the CPU quota of the pod's own cgroup as the kubelet computes it from the spec, in thousandths of a core: at
// least that of each phase of its init containers (ResourceConfigForPod in pkg/kubelet/cm of Kubernetes 1.36). 0: none,
// as a container has no limit; or not known, as what devices add to it stands in claims.
func PodQuota(pod *corev1.Pod) cpu.Milli {
	if len(pod.Spec.ResourceClaims) > 0 {
		return 0
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Resources.Limits.Cpu().IsZero() {
				return 0
			}
		}
	}
	return Milli(resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceCPU])
}

// Settled says whether the kubelet has nothing to do about the limits of the pod. Kubelets before 1.34 do not say which
// generation they have observed.
func Settled(pod *corev1.Pod) bool {
	observed := pod.Status.ObservedGeneration
	return (observed == 0 || observed >= pod.Generation) && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.Status == corev1.ConditionTrue
	})
}

// Limits are the CPU limits in a pod's spec, of the containers that have one, in the pod's order.
func Limits(pod *corev1.Pod) []v1alpha1.ContainerLimit {
	var limits []v1alpha1.ContainerLimit
	for _, c := range Containers(pod) {
		if l := c.Limit(); l > 0 {
			limits = append(limits, v1alpha1.ContainerLimit{Name: c.Spec.Name, CPULimit: l})
		}
	}
	return limits
}

// TooLarge says whether no object of MBCAS can hold these limits of a pod.
func TooLarge(limits []v1alpha1.ContainerLimit) bool {
	return len(limits) > v1alpha1.MaxContainers || Total(limits) > cpu.Largest
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
	return len(a) == len(b) && maps.Equal(ByName(a), ByName(b))
}

// ByName are limits by container.
func ByName(limits []v1alpha1.ContainerLimit) map[string]cpu.Milli {
	m := make(map[string]cpu.Milli, len(limits))
	for _, l := range limits {
		m[l.Name] = l.CPULimit
	}
	return m
}

// longExponent is one of three digits or more: of 1e-1000000000 ParseQuantity computes every digit, see Compare.
var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// MaxCPU is the pod's own bound on its total limit; 0 where it sets none.
func MaxCPU(pod *corev1.Pod) (cpu.Milli, error) {
	s, ok := pod.Annotations[MaxCPUKey]
	if !ok {
		return 0, nil
	}
	var q resource.Quantity
	if len(s) <= 32 && !longExponent.MatchString(s) {
		q, _ = resource.ParseQuantity(s) // what is no quantity is 0
	}
	if q.Sign() <= 0 {
		return 0, fmt.Errorf("pod %s/%s: annotation %s is %.64q: want a positive CPU quantity such as \"2\" or \"1500m\"", pod.Namespace, pod.Name, MaxCPUKey, s)
	}
	return Milli(q), nil
}

// MaxRaise is the value of MaxRaiseKey on a pod or a namespace, an annotation before a label, and otherwise where there
// is none, or none that can be read. fault is what is wrong with it; "": nothing.
func MaxRaise(o metav1.Object, otherwise int) (raise int, fault string) {
	text, ok := textOf(o, MaxRaiseKey)
	if !ok {
		return otherwise, ""
	}
	raise, err := strconv.Atoi(text)
	if err != nil || raise < 1 || raise > HighestMaxRaise {
		return otherwise, fmt.Sprintf("%s is %.64q: want a whole number of 1 to %d, such as \"8\"", MaxRaiseKey, text, HighestMaxRaise)
	}
	return raise, ""
}

// CgroupUID is the UID that the kubelet puts in the pod's cgroup path: its config hash for a static
// pod.
func CgroupUID(pod *corev1.Pod) string {
	// Any user can set the annotation on an ordinary pod; only the kubelet creates mirror pods.
	if h := pod.Annotations["kubernetes.io/config.hash"]; h != "" && pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return h
	}
	return string(pod.UID)
}

// Priority is that of the pod's PriorityClass; 0: it has none.
func Priority(pod *corev1.Pod) int32 {
	return ptr.Deref(pod.Spec.Priority, 0)
}

// PodRef names the pod for good.
func PodRef(pod *corev1.Pod) v1alpha1.PodRef {
	return v1alpha1.PodRef{Name: pod.Name, UID: pod.UID}
}

// WithLimits is a copy of the pod with other CPU limits in its spec, by container.
func WithLimits(pod *corev1.Pod, limits map[string]cpu.Milli) *corev1.Pod {
	p := pod.DeepCopy()
	for _, c := range Containers(p) {
		if l, ok := limits[c.Spec.Name]; ok {
			c.Spec.Resources.Limits[corev1.ResourceCPU] = Quantity(l)
		}
	}
	return p
}

// RestoreFloors are the lowest limits that a restore can set where a container's CPU request was
// raised above its declared limit: the API server takes no limit below the request. They are higher
// by a quantum where a limit equal to the request would make the pod Guaranteed, which no resize may.
func RestoreFloors(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) map[string]cpu.Milli {
	floors, limits, known := map[string]cpu.Milli{}, map[string]cpu.Milli{}, ByName(declared)
	for _, c := range Containers(pod) {
		name, request := c.Spec.Name, c.Request()
		limit, ok := known[name]
		if !ok || c.Limit() == 0 {
			continue
		}
		if limits[name] = max(limit, request); request > limit {
			floors[name] = request
		}
	}
	if len(floors) > 0 && guaranteed(WithLimits(pod, limits)) {
		for name := range floors {
			floors[name] += cpu.Quantum
		}
	}
	return floors
}

// guaranteed says whether the pod's resources make it Guaranteed: every limit is its request.
func guaranteed(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			if request := c.Resources.Requests[name]; !ok || Compare(limit, request) != 0 {
				return false
			}
		}
	}
	return true
}

// LimitsText is limits in words: app=500m, proxy=100m.
func LimitsText(limits []v1alpha1.ContainerLimit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.Name + "=" + l.CPULimit.String()
	}
	return strings.Join(parts, ", ")
}

// MaxStartupBoost is the highest factor of StartupBoostKey.
const MaxStartupBoost = 10

// StartupBoost is the factor on the limit of a pod while it starts; 0: none. The pod's own comes before that of
// its namespace, and an annotation before a label. fault is what is wrong with it; "": nothing.
func StartupBoost(pod *corev1.Pod, namespace metav1.Object) (factor float64, fault string) {
	about := "pod " + pod.Namespace + "/" + pod.Name
	text, ok := textOf(pod, StartupBoostKey)
	if !ok {
		about = "namespace " + pod.Namespace
		text, ok = textOf(namespace, StartupBoostKey)
	}
	if !ok || text == "off" {
		return 0, ""
	}
	err := errors.New("too long") // an annotation may have 256 KiB
	if len(text) <= 32 {
		factor, err = strconv.ParseFloat(text, 64)
	}
	if err != nil || !(factor > 1 && factor <= MaxStartupBoost) {
		return 0, fmt.Sprintf("%s: %s is %.64q: want a factor such as \"3\", more than 1 and at most %d, or \"off\"",
			about, StartupBoostKey, text, MaxStartupBoost)
	}
	return factor, ""
}

// textOf is the value of an object's annotation or, without one, of its label.
func textOf(o metav1.Object, key string) (text string, ok bool) {
	if text, ok = o.GetAnnotations()[key]; !ok {
		text, ok = o.GetLabels()[key]
	}
	return text, ok
}

// Starting says whether the kubelet of the pod is about to start its containers. A pod of which a container
// cannot be started, such as for want of an image, is not: it may never run. Nor is one of which a container has
// failed, while it is tried again as well: it would be in and out with each attempt.
func Starting(pod *corev1.Pod) bool {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName == "" || len(statuses) == 0 {
		return false
	}
	return !slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		w := s.State.Waiting
		return s.RestartCount > 0 || w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
	})
}

// Ended says whether the pod has ended or is being deleted, so that its limits no longer matter.
func Ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// FullySpecified says whether every container has each request and limit for which a LimitRange can
// give a default.
func FullySpecified(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			_, request := c.Resources.Requests[name]
			_, limit := c.Resources.Limits[name]
			if !request || !limit {
				return false
			}
		}
	}
	return true
}

// NotServed says whether an error means that the API server does not serve the kind itself, because
// its CRD is missing.
func NotServed(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Kind != "namespaces"
}

// LimitsOf are the limits in the pod's spec, of the containers whose declared limits are known.
func LimitsOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) (limits []v1alpha1.ContainerLimit) {
	known := ByName(declared)
	for _, l := range Limits(pod) {
		if _, ok := known[l.Name]; ok {
			limits = append(limits, l)
		}
	}
	return limits
}

// BeingEvicted says whether a pod is being evicted. Pods end, and are deleted, for many other reasons, on
// cordoned nodes, too. One that has ended is no sign of a drain either: an evicted pod stays behind
// with its condition until it is deleted.
func BeingEvicted(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

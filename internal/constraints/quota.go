package constraints

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// CPUQuota is the bound of a ResourceQuota on the sum of CPU limits, and the current sum.
type CPUQuota struct {
	Name       string
	Hard, Used cpu.Milli
	// Known is false until the quota controller has counted for the first time; the API server then
	// refuses every increase.
	Known bool
}

// CPUQuotaOf reads the bound on CPU limits; false for a quota without one.
func CPUQuotaOf(q *corev1.ResourceQuota) (CPUQuota, bool) {
	spec, ok := q.Spec.Hard[corev1.ResourceLimitsCPU]
	if !ok {
		return CPUQuota{}, false
	}
	quota := CPUQuota{Name: q.Name, Hard: kube.MilliRoundedDown(spec)}
	hard, enforced := q.Status.Hard[corev1.ResourceLimitsCPU]
	used, counted := q.Status.Used[corev1.ResourceLimitsCPU]
	quota.Used, quota.Known = kube.Milli(used), enforced && counted
	if quota.Known { // admission goes by the status, which follows the spec
		quota.Hard = min(quota.Hard, kube.MilliRoundedDown(hard))
	}
	return quota, true
}

// QuotaSelects says whether the scopes of the quota select the pod. It follows the evaluator of the
// API server (pkg/quota/v1/evaluator/core/pods.go and pkg/apis/core/v1/helper of Kubernetes). An
// unknown scope selects every pod, so that no increase is tried that the API server might refuse.
func QuotaSelects(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	var required []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		required = append(required, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		required = append(required, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return !slices.ContainsFunc(required, func(r corev1.ScopedResourceSelectorRequirement) bool { return !scopeMatches(r, pod) })
}

// CountsAgainstQuota says whether quotas count the pod at all: not after it has ended, nor after
// its grace period of deletion. It follows QuotaV1Pod of the same evaluator.
func CountsAgainstQuota(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	return !now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

func scopeMatches(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return pod.Status.QOSClass != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return kube.CrossesNamespaces(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch r.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class)
		}
	}
	return true
}

// MissingValue is a container that lacks a value which the quota requires of every container, and
// the name of the value; "" where there is none. The API server refuses every resize of such a pod.
func MissingValue(q *corev1.ResourceQuota, pod *corev1.Pod) (container, value string) {
	if resourcehelper.IsPodLevelResourcesSet(pod) { // then nothing is required of its containers
		return "", ""
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, w := range []struct {
			prefix corev1.ResourceName
			has    corev1.ResourceList
		}{{"limits.", c.Resources.Limits}, {"requests.", c.Resources.Requests}, {"", c.Resources.Requests}} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				_, required := q.Spec.Hard[w.prefix+name]
				if _, ok := w.has[name]; required && !ok {
					return c.Name, string(w.prefix + name)
				}
			}
		}
	}
	return "", ""
}

// QuotaUsage is what a pod counts against a quota on CPU limits: of each running container the
// higher of the limit in its spec and the one that the kubelet reports, and the pod's overhead. Where
// the pod has a limit of its own, that counts instead of those. The API server's sum with init
// containers can be higher, never lower.
func QuotaUsage(pod *corev1.Pod) cpu.Milli {
	sum := kube.Milli(pod.Spec.Overhead[corev1.ResourceCPU])
	own := kube.HasPodLimit(pod)
	for _, c := range kube.Containers(pod) {
		if !own || c.Spec.Name == v1alpha1.PodLevel {
			sum += max(c.Limit(), c.InForce())
		}
	}
	return sum
}

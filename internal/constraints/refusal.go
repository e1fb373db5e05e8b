package constraints

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// LimitRangeRefusal is the reason why no resize of the pod can pass the LimitRanges of its
// namespace, whatever its limit, with a message; "" where some can. A resize runs the LimitRanger
// over the whole pod, not over the change (plugin/pkg/admission/limitranger of Kubernetes): it
// writes defaults for missing values, which can never be taken back, and refuses a pod of which any
// part is out of range.
func LimitRangeRefusal(pod *corev1.Pod, ranges []corev1.LimitRange) (reasons.Reason, string) {
	if len(ranges) == 0 {
		return "", ""
	}
	each, whole := subjectsOf(pod)
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			var parts []subject
			switch item.Type {
			case corev1.LimitTypeContainer:
				parts = each
			case corev1.LimitTypePod:
				parts = []subject{whole}
			}
			for _, s := range parts {
				if what := s.missingDefault(item); what != "" {
					return reasons.AdmissionWouldMutate, fmt.Sprintf("LimitRange %s would give %s a %s", r.Name, s.name, what)
				}
				if what := s.violation(item); what != "" {
					return reasons.LimitRangeRefused, fmt.Sprintf("%s: %s of LimitRange %s", s.name, what, r.Name)
				}
			}
		}
	}
	return "", ""
}

// subject is what a LimitRange is applied to: a container, or the whole pod.
type subject struct {
	name             string // in a sentence
	requests, limits corev1.ResourceList
	lowestCPULimit   cpu.Milli // the lowest CPU limit that a resize can give it; 0: it has none
}

// subjectsOf are the containers of a pod, in the order of the LimitRanger, and the pod itself.
func subjectsOf(pod *corev1.Pod) (each []subject, whole subject) {
	lowest := kube.ByName(kube.Limits(pod))
	for _, c := range kube.Containers(pod) {
		if limit, limited := lowest[c.Spec.Name]; limited {
			lowest[c.Spec.Name] = min(limit, demand.Settable(c.Request()))
		}
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		limit, resizable := lowest[c.Name]
		if !resizable { // no resize changes an init container that runs to completion
			limit = kube.Milli(c.Resources.Limits[corev1.ResourceCPU])
		}
		each = append(each, subject{"container " + c.Name, c.Resources.Requests, c.Resources.Limits, limit})
	}
	return each, subject{"the whole pod", totalRequests(pod), totalLimits(pod),
		kube.Milli(totalLimits(kube.WithLimits(pod, lowest))[corev1.ResourceCPU])}
}

// totalRequests and totalLimits are those of a pod as Kubernetes counts them: the sum over the
// containers that run at the same time, or what an init container has beside the sidecars before
// it, if that is more.
func totalRequests(pod *corev1.Pod) corev1.ResourceList {
	return resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
}

func totalLimits(pod *corev1.Pod) corev1.ResourceList {
	return resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
}

// missingDefault is a value that the subject lacks and the LimitRange has a default for; "" for
// none.
func (s subject) missingDefault(item corev1.LimitRangeItem) string {
	for _, d := range []struct {
		what          string
		has, defaults corev1.ResourceList
	}{
		{"limit", s.limits, item.Default}, {"request", s.requests, item.DefaultRequest},
	} {
		for _, name := range sortedNames(d.defaults) {
			if _, ok := d.has[name]; !ok {
				return fmt.Sprintf("%s %s", name, d.what)
			}
		}
	}
	return ""
}

// violation describes a value that is out of range and that no resize can bring into range; "" for
// none. A CPU limit above a maximum counts only if the lowest limit that a resize can set is above
// it, too.
func (s subject) violation(item corev1.LimitRangeItem) string {
	if what := s.minViolation(item.Min); what != "" {
		return what
	}
	for _, name := range sortedNames(item.Max) {
		maximum := item.Max[name]
		request, requested := s.requests[name]
		limit, limited := s.limits[name]
		switch {
		case requested && kube.Compare(request, maximum) > 0:
			return fmt.Sprintf("its %s request is above the maximum %s", name, maximum.String())
		case !limited:
			return fmt.Sprintf("it has no %s limit, and there is a maximum", name)
		case kube.Compare(limit, maximum) > 0 && (name != corev1.ResourceCPU || s.lowestCPULimit > kube.MilliRoundedDown(maximum).RoundDown(cpu.Quantum)):
			return fmt.Sprintf("its %s limit is above the maximum %s", name, maximum.String())
		}
	}
	for _, name := range sortedNames(item.MaxLimitRequestRatio) {
		ratio := item.MaxLimitRequestRatio[name]
		request, limit := s.requests[name], s.limits[name]
		switch {
		case request.IsZero():
			return fmt.Sprintf("it has no %s request, and there is a maximum ratio", name)
		case limit.IsZero():
			return fmt.Sprintf("it has no %s limit, and there is a maximum ratio", name)
		case maxRatioLimit(request, ratio) >= thousandths(limit):
		case name != corev1.ResourceCPU || s.lowestCPULimit > cpu.Milli(min(maxRatioLimit(request, ratio), math.MaxInt32)).RoundDown(cpu.Quantum):
			return fmt.Sprintf("its %s limit is above the maximum ratio %s", name, ratio.String())
		}
	}
	return ""
}

// minViolation describes a value below its minimum; "" for none. A CPU limit is above its request,
// which has to meet the minimum.
func (s subject) minViolation(minimum corev1.ResourceList) string {
	for _, name := range sortedNames(minimum) {
		bound := minimum[name]
		if q, ok := s.requests[name]; !ok || kube.Compare(q, bound) < 0 {
			return fmt.Sprintf("its %s request is below the minimum %s", name, bound.String())
		}
		if q, ok := s.limits[name]; ok && name != corev1.ResourceCPU && kube.Compare(q, bound) < 0 {
			return fmt.Sprintf("its %s limit is below the minimum %s", name, bound.String())
		}
	}
	return ""
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

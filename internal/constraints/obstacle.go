package constraints

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// A resize runs the LimitRanger over the whole pod, not over the change (plugin/pkg/admission/limitranger of Kubernetes): it gives
// defaults to containers that lack a value, which can never be taken back, and refuses a pod of which any part is out of range.

// Obstacle says why no resize of the pod can pass the LimitRanges of its namespace, whatever limit is asked for, in a word and
// with what stands in the way; "" where nothing does.
func LimitRangeRefusal(pod *corev1.Pod, ranges []corev1.LimitRange) (reasons.Reason, string) {
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
			for _, j := range parts {
				if what := j.missingDefault(item); what != "" {
					return reasons.AdmissionWouldMutate, fmt.Sprintf("LimitRange %s would give %s a %s", r.Name, j.name, what)
				}
				if what := j.violation(item); what != "" {
					return reasons.LimitRangeRefused, fmt.Sprintf("%s: %s of LimitRange %s", j.name, what, r.Name)
				}
			}
		}
	}
	return "", ""
}

// judged is what a LimitRange judges: a container, or the whole pod.
type subject struct {
	name             string // in a sentence
	requests, limits corev1.ResourceList
	lowestCPULimit   cpu.Milli // the lowest CPU limit that a resize can give it; 0: it has none
}

// judgedParts are the containers of a pod, in the order in which they are judged, and the pod itself.
func subjectsOf(pod *corev1.Pod) (each []subject, whole subject) {
	running := map[*corev1.Container]bool{}
	for _, c := range kube.Containers(pod) {
		running[c.Spec] = true
	}
	least := func(c *corev1.Container) cpu.Milli {
		limit := kube.Milli(c.Resources.Limits[corev1.ResourceCPU])
		if !running[c] {
			return limit // of those that run to completion nothing is changed
		}
		return min(limit, demand.Settable(kube.Milli(c.Resources.Requests[corev1.ResourceCPU])))
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			c := &list[i]
			each = append(each, subject{"container " + c.Name, c.Resources.Requests, c.Resources.Limits, least(c)})
		}
	}
	lowest := podTotal(pod, func(c *corev1.Container) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(least(c))}
	})
	return each, subject{"the whole pod", podTotal(pod, requestsOf), podTotal(pod, limitsListOf), kube.Milli(lowest[corev1.ResourceCPU])}
}

func requestsOf(c *corev1.Container) corev1.ResourceList   { return c.Resources.Requests }
func limitsListOf(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }

// together is what the containers of a pod count as one: the sum over those that run beside each other, or what an init container
// needs beside the sidecars before it, where that is more.
func podTotal(pod *corev1.Pod, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		addQuantities(sum, of(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addQuantities(sum, of(c))
			addQuantities(sidecars, of(c))
			continue
		}
		turn := sidecars.DeepCopy()
		addQuantities(turn, of(c))
		raiseQuantities(most, turn)
	}
	raiseQuantities(sum, most)
	return sum
}

// add adds to quantities of its own: a copy of a Quantity shares amounts beyond 64 bits with the cached object.
func addQuantities(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := q.DeepCopy()
		total.Add(sum[name])
		sum[name] = total
	}
}

// raise takes over what is more, or missing.
func raiseQuantities(list, to corev1.ResourceList) {
	for name, q := range to {
		if has, ok := list[name]; !ok || has.Cmp(q) < 0 {
			list[name] = q
		}
	}
}

// given names a value that the LimitRange gives to it; "" for none.
func (j subject) missingDefault(item corev1.LimitRangeItem) string {
	for _, d := range []struct {
		what     string
		has, got corev1.ResourceList
	}{
		{"limit", j.limits, item.Default}, {"request", j.requests, item.DefaultRequest},
	} {
		for _, name := range sortedNames(d.got) {
			if _, ok := d.has[name]; !ok {
				return fmt.Sprintf("%s %s", name, d.what)
			}
		}
	}
	return ""
}

// outside says which value is out of range. A CPU limit above a bound is not one that a resize has to leave as it is, so it is
// none, unless what it can be lowered to is above the bound, too.
func (j subject) violation(item corev1.LimitRangeItem) string {
	if what := j.minViolation(item.Min); what != "" {
		return what
	}
	for _, name := range sortedNames(item.Max) {
		most := item.Max[name]
		request, asked := j.requests[name]
		limit, bounded := j.limits[name]
		switch {
		case asked && request.Cmp(most) > 0:
			return fmt.Sprintf("its %s request is above the maximum %s", name, most.String())
		case !bounded:
			return fmt.Sprintf("it has no %s limit, and there is a maximum", name)
		case limit.Cmp(most) > 0 && (name != corev1.ResourceCPU || j.lowestCPULimit > kube.MilliRoundedDown(most).RoundDown(cpu.Quantum)):
			return fmt.Sprintf("its %s limit is above the maximum %s", name, most.String())
		}
	}
	for _, name := range sortedNames(item.MaxLimitRequestRatio) {
		ratio := item.MaxLimitRequestRatio[name]
		request, limit := j.requests[name], j.limits[name]
		switch {
		case request.IsZero():
			return fmt.Sprintf("it has no %s request, and there is a maximum ratio", name)
		case limit.IsZero():
			return fmt.Sprintf("it has no %s limit, and there is a maximum ratio", name)
		case maxRatioLimit(request, ratio) >= float64(limit.MilliValue()):
		case name != corev1.ResourceCPU || j.lowestCPULimit > cpu.Milli(maxRatioLimit(request, ratio)).RoundDown(cpu.Quantum):
			return fmt.Sprintf("its %s limit is above the maximum ratio %s", name, ratio.String())
		}
	}
	return ""
}

// below says which value is below its minimum. A CPU limit is not below the request, which no resize changes.
func (j subject) minViolation(least corev1.ResourceList) string {
	for _, name := range sortedNames(least) {
		bound := least[name]
		if q, ok := j.requests[name]; !ok || q.Cmp(bound) < 0 {
			return fmt.Sprintf("its %s request is below the minimum %s", name, bound.String())
		}
		if q, ok := j.limits[name]; ok && name != corev1.ResourceCPU && q.Cmp(bound) < 0 {
			return fmt.Sprintf("its %s limit is below the minimum %s", name, bound.String())
		}
	}
	return ""
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

package constraints

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// rangeTerms are the bounds that a LimitRange sets for the CPU limits of a pod: by container, and for all together.
type limitRangeBounds struct {
	floors, ceilings map[string]cpu.Milli
	ceiling          cpu.Milli // 0: none
	floor            cpu.Milli
}

// rangeTermsOf are the bounds of one LimitRange. Those of containers that no resize changes are no bounds but an Obstacle.
func limitRangeBoundsOf(pod *corev1.Pod, r *corev1.LimitRange) limitRangeBounds {
	t := limitRangeBounds{floors: map[string]cpu.Milli{}, ceilings: map[string]cpu.Milli{}}
	requests := podTotal(pod, requestsOf)[corev1.ResourceCPU]
	for _, item := range r.Spec.Limits {
		least, most, ratio := item.Min[corev1.ResourceCPU], item.Max[corev1.ResourceCPU], item.MaxLimitRequestRatio[corev1.ResourceCPU]
		switch item.Type {
		case corev1.LimitTypePod:
			t.ceiling = lowerCeiling(t.ceiling, lowerCeiling(kube.MilliRoundedDown(most), cpu.Milli(maxRatioLimit(requests, ratio))))
			t.floor = max(t.floor, kube.Milli(least))
		case corev1.LimitTypeContainer:
			for _, c := range kube.Containers(pod) {
				if c.Limit() == 0 {
					continue
				}
				name := c.Spec.Name
				if m := kube.Milli(least); m > 0 {
					t.floors[name] = max(t.floors[name], m)
				}
				if m := lowerCeiling(kube.MilliRoundedDown(most), cpu.Milli(maxRatioLimit(c.Spec.Resources.Requests[corev1.ResourceCPU], ratio))); m > 0 {
					t.ceilings[name] = lowerCeiling(t.ceilings[name], m)
				}
			}
		}
	}
	return t
}

// times is a request times a ratio, in thousandths; 0 where there is none of either.
func maxRatioLimit(request, ratio resource.Quantity) float64 {
	return float64(request.MilliValue())*ratio.AsApproximateFloat64() + 1e-6
}

// lower is the lower of two bounds of which 0 means none.
func lowerCeiling(a, b cpu.Milli) cpu.Milli {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

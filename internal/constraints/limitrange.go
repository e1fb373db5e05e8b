package constraints

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// limitRangeBounds are the bounds that a LimitRange sets for the CPU limits of a pod: by container,
// and for all of them together.
type limitRangeBounds struct {
	floors, ceilings map[string]cpu.Milli
	floor, ceiling   cpu.Milli // of the pod; 0: none
}

// limitRangeBoundsOf are the bounds of one LimitRange. For containers that no resize changes, see
// LimitRangeRefusal.
func limitRangeBoundsOf(pod *corev1.Pod, r *corev1.LimitRange) limitRangeBounds {
	b := limitRangeBounds{floors: map[string]cpu.Milli{}, ceilings: map[string]cpu.Milli{}}
	requests := totalRequests(pod)[corev1.ResourceCPU]
	for _, item := range r.Spec.Limits {
		minimum, ratio := kube.Milli(item.Min[corev1.ResourceCPU]), item.MaxLimitRequestRatio[corev1.ResourceCPU]
		maximum := kube.MilliRoundedDown(item.Max[corev1.ResourceCPU])
		switch item.Type {
		case corev1.LimitTypePod:
			b.ceiling = lowerCeiling(b.ceiling, lowerCeiling(maximum, cpu.Milli(maxRatioLimit(requests, ratio))))
			b.floor = max(b.floor, minimum)
		case corev1.LimitTypeContainer:
			for _, c := range kube.EachContainer(pod) {
				if c.Limit() == 0 {
					continue
				}
				name := c.Spec.Name
				if minimum > 0 {
					b.floors[name] = max(b.floors[name], minimum)
				}
				byRatio := cpu.Milli(maxRatioLimit(c.Spec.Resources.Requests[corev1.ResourceCPU], ratio))
				if m := lowerCeiling(maximum, byRatio); m > 0 {
					b.ceilings[name] = lowerCeiling(b.ceilings[name], m)
				}
			}
		}
	}
	return b
}

// maxRatioLimit is the highest limit that a ratio allows beside this request, in thousandths; less
// than 1 without a ratio or request.
func maxRatioLimit(request, ratio resource.Quantity) float64 {
	return float64(request.MilliValue())*ratio.AsApproximateFloat64() + 1e-6
}

// lowerCeiling is the lower of two ceilings, of which 0 means none.
func lowerCeiling(a, b cpu.Milli) cpu.Milli {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

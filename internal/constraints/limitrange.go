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
		maximum := reachable(float64(kube.MilliRoundedDown(item.Max[corev1.ResourceCPU])))
		switch item.Type {
		case corev1.LimitTypePod:
			byRatio := reachable(maxRatioLimit(requests, ratio))
			b.ceiling = lowerCeiling(b.ceiling, lowerCeiling(maximum, byRatio))
			b.floor = max(b.floor, minimum)
		case corev1.LimitTypeContainer:
			for _, c := range kube.Containers(pod) {
				if c.Limit() == 0 {
					continue
				}
				name := c.Spec.Name
				if minimum > 0 {
					b.floors[name] = max(b.floors[name], minimum)
				}
				byRatio := reachable(maxRatioLimit(c.Spec.Resources.Requests[corev1.ResourceCPU], ratio))
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
	return thousandths(request)*ratio.AsApproximateFloat64()*(1+1e-12) + 1e-6 // what floating point loses
}

// thousandths is an amount of any size, approximately.
func thousandths(q resource.Quantity) float64 { return 1000 * q.AsApproximateFloat64() }

// reachable is a ceiling; 0 where no object of MBCAS can hold it, as no node reaches it.
func reachable(ceiling float64) cpu.Milli {
	if !(ceiling <= float64(cpu.Largest)) { // or no number
		return 0
	}
	return cpu.Milli(ceiling)
}

// lowerCeiling is the lower of two ceilings, of which 0 means none.
func lowerCeiling(a, b cpu.Milli) cpu.Milli {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

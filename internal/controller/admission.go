package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/constraints"
)

// admission are the objects of a namespace by which the API server refuses a resize of a pod.
type admission struct {
	ranges string                 // the LimitRanges, in their versions; "" for none
	quotas []constraints.CPUQuota // of the ResourceQuotas that count the pod
}

// admission are the objects that concern the pod.
func (n *neighbourhood) admission(pod *corev1.Pod) admission {
	return admission{ranges: versions(n.LimitRanges), quotas: quotaRooms(n.Quotas, pod)}
}

// versions names the versions of LimitRanges; "" where there are none.
func versions(ranges []corev1.LimitRange) string {
	names := make([]string, len(ranges))
	for i, l := range ranges {
		names[i] = l.Name + "=" + l.ResourceVersion
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// quotaRooms are those of the quotas that bound the CPU limits of the pod.
func quotaRooms(quotas []corev1.ResourceQuota, pod *corev1.Pod) (list []constraints.CPUQuota) {
	for i := range quotas {
		if room, ok := constraints.CPUQuotaOf(&quotas[i]); ok && constraints.QuotaSelects(&quotas[i], pod) {
			list = append(list, room)
		}
	}
	return list
}

// eased says whether one of the quotas has become larger, is used less, or does not count any more.
func eased(before, now []constraints.CPUQuota) bool {
	return slices.ContainsFunc(before, func(b constraints.CPUQuota) bool {
		i := slices.IndexFunc(now, func(q constraints.CPUQuota) bool { return q.Name == b.Name })
		return i < 0 || now[i].Hard > b.Hard || now[i].Used < b.Used
	})
}

// byNamespace says whether a resize is refused for this reason by an object of the namespace.
func byNamespace(r reasons.Reason) bool {
	switch r {
	case reasons.LimitRangeRefused, reasons.AdmissionWouldMutate, reasons.QuotaExceeded, reasons.QuotaNeedsLimits:
		return true
	}
	return false
}

// resolved says whether the objects by which the pod's last resize was refused have changed since,
// so that it need not wait to be tried again. Of a refusal from before our start only later changes
// are known.
func (r *Reconciler) resolved(node string, p *podState, rec record) bool {
	if rec.refused != nil {
		return rec.refused.ranges != p.admission.ranges || eased(rec.refused.quotas, p.admission.quotas)
	}
	if p.pa != nil && p.pa.Status.Retry.Time != nil && byNamespace(reasons.Reason(p.pa.Status.Reason)) {
		r.memory.change(node, p.pod.UID, func(rec *record) { rec.refused = &p.admission })
	}
	return false
}

package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/constraints"
)

// laws are the objects of a namespace for whose sake the API server refuses a resize of a pod.
type laws struct {
	ranges string                  // the LimitRanges, in their versions; "" for none
	rooms  []constraints.QuotaRoom // of the ResourceQuotas that count the pod
}

// laws are those for the pod.
func (n *neighbourhood) laws(pod *corev1.Pod) laws {
	return laws{ranges: versions(n.LimitRanges), rooms: rooms(n.Quotas, pod)}
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

// rooms are those of the quotas that bound the CPU limits of the pod.
func rooms(quotas []corev1.ResourceQuota, pod *corev1.Pod) (list []constraints.QuotaRoom) {
	for i := range quotas {
		if room, ok := constraints.QuotaRoomOf(&quotas[i]); ok && constraints.QuotaCounts(&quotas[i], pod) {
			list = append(list, room)
		}
	}
	return list
}

// eased says whether one of the quotas has become larger, is used less, or does not count any more.
func eased(before, now []constraints.QuotaRoom) bool {
	return slices.ContainsFunc(before, func(b constraints.QuotaRoom) bool {
		i := slices.IndexFunc(now, func(q constraints.QuotaRoom) bool { return q.Name == b.Name })
		return i < 0 || now[i].Hard > b.Hard || now[i].Used < b.Used
	})
}

// lawful says whether it is for the laws of the namespace that a resize is refused for this reason.
func lawful(r reasons.Reason) bool {
	switch r {
	case reasons.LimitRangeRefused, reasons.AdmissionWouldMutate, reasons.QuotaExceeded, reasons.QuotaNeedsLimits:
		return true
	}
	return false
}

// mended says whether what the pod's last resize was refused for has changed since, so that it need not wait to be tried again. Of
// a refusal from before our start we know only what has changed since then.
func (r *Reconciler) mended(node string, p Pod, rec record) bool {
	if rec.refused != nil {
		return rec.refused.ranges != p.Laws.ranges || eased(rec.refused.rooms, p.Laws.rooms)
	}
	if p.PA != nil && p.PA.Status.Retry.Time != nil && lawful(reasons.Reason(p.PA.Status.Reason)) {
		laws := p.Laws
		r.memory.change(node, p.Pod.UID, func(rec *record) { rec.refused = &laws })
	}
	return false
}

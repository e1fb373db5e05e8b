package controller

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// quiet is how long an event of the same reason is not repeated for a pod.
const quiet = 10 * time.Minute

// reported are the reasons to skip a resize that get an event, and its type.
var reported = map[reasons.Reason]string{
	reasons.ExternalChange: corev1.EventTypeNormal, reasons.WaitingForQuota: corev1.EventTypeNormal,
	reasons.ConflictingWriter: corev1.EventTypeWarning, reasons.DeclaredLimitUnknown: corev1.EventTypeWarning,
	reasons.LimitRangeRefused: corev1.EventTypeWarning, reasons.AdmissionWouldMutate: corev1.EventTypeWarning,
	reasons.QuotaNeedsLimits: corev1.EventTypeWarning,
}

// observe sends an event where the pod's owner may ask what happened, and measures a resize that
// was carried out.
func (r *Reconciler) observe(s *snapshot, t *task) {
	before := t.facts.Status
	rec := r.memory.of(s.node.name, t.pod.UID)
	if t.Done && !rec.decidedAt.IsZero() {
		r.Metrics.done.Observe(s.now.Sub(rec.decidedAt).Seconds())
		r.memory.change(s.node.name, t.pod.UID, func(rec *record) { rec.decidedAt = time.Time{} })
	}
	if harm := t.Status.LastHarmfulDecrease; !harm.IsZero() && !harm.Equal(before.LastHarmfulDecrease) {
		why := reasons.UnhealthyAfterDecrease
		r.event(s, t, corev1.EventTypeWarning, string(why), "Rollback", why.Sentence())
	}
	switch reason := t.Status.Reason; {
	case t.Done && len(t.facts.Declared) > 0:
		r.event(s, t, corev1.EventTypeNormal, "CPUResized", "Resize", "CPU limits are "+t.facts.Current().String())
	case t.Status.Phase == lifecycle.PhaseFailed && (before.Reason != reason || before.Phase != lifecycle.PhaseFailed):
		r.event(s, t, corev1.EventTypeWarning, string(reason), "Resize", t.Status.Message)
	case before.Reason != reason && reported[reason] != "":
		r.event(s, t, reported[reason], string(reason), "SkipResize", t.Status.Message)
	}
	if vpa := t.facts.Excluded; vpa.Reason == reasons.ManagedByVPA && t.pa != nil {
		r.event(s, t, corev1.EventTypeNormal, string(vpa.Reason), "SkipResize", lifecycle.Sentence(vpa.Reason, vpa.Detail))
	}
	stored := ""
	if t.pa != nil && t.pa.Status.Constraints != nil {
		stored = t.pa.Status.Constraints.NoDecrease
	}
	if why := t.NoDecrease; why != "" && stored != string(why) {
		kind := corev1.EventTypeNormal
		if why == reasons.UnhealthyAfterDecrease {
			kind = corev1.EventTypeWarning
		}
		r.event(s, t, kind, string(why), "SkipResize", why.Sentence())
	}
}

func (r *Reconciler) event(s *snapshot, t *task, kind, reason, action, note string) {
	if last := r.memory.of(s.node.name, t.pod.UID).events[reason]; !last.IsZero() && s.now.Sub(last) < quiet {
		return
	}
	r.memory.change(s.node.name, t.pod.UID, func(rec *record) {
		sent := map[string]time.Time{reason: s.now}
		for k, at := range rec.events {
			if k != reason {
				sent[k] = at
			}
		}
		rec.events = sent
	})
	if most := 1000; len(note) > most {
		note = strings.ToValidUTF8(note[:most], "")
	}
	if t.pa == nil {
		r.Events.Eventf(t.pod, nil, kind, reason, action, "%s", note)
		return
	}
	related := t.pa.DeepCopy()
	related.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodAllocation"))
	r.Events.Eventf(t.pod, related, kind, reason, action, "%s", note)
}

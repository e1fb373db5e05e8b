package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// consequence is what follows the outcome of a resize.
type consequence int

const (
	stored   consequence = iota // the kubelet carries it out
	refused                     // it is tried again after a back-off that doubles
	noAnswer                    // the same, with a shorter back-off: the server may answer soon
	unknown                     // the pod is read again; if it was not changed, as noAnswer
	conflict                    // the pod is read again, and decided anew at once
	gone                        // the PodAllocation goes with its pod
	blocked                     // nothing is resized anywhere
)

// consequences are those of all outcomes, with the reason that status gets.
var consequences = map[podresize.Outcome]struct {
	consequence
	reason reasons.Reason
}{
	podresize.Accepted:          {stored, reasons.ResizeInFlight},
	podresize.NoChange:          {stored, reasons.ResizeInFlight},
	podresize.WouldMutate:       {refused, reasons.AdmissionWouldMutate},
	podresize.QuotaExceeded:     {refused, reasons.QuotaExceeded},
	podresize.QuotaNeedsLimits:  {refused, reasons.QuotaNeedsLimits},
	podresize.LimitRangeRefused: {refused, reasons.LimitRangeRefused},
	podresize.NodeRefused:       {refused, reasons.NodeRefused},
	podresize.PolicyRefused:     {refused, reasons.PolicyRefused},
	podresize.NoDryRun:          {refused, reasons.PolicyRefused},
	podresize.Invalid:           {refused, reasons.InvalidResize},
	podresize.NotYet:            {noAnswer, reasons.ServerUnavailable},
	podresize.Unavailable:       {noAnswer, reasons.ServerUnavailable},
	podresize.Unknown:           {unknown, reasons.OutcomeUnknown},
	podresize.Conflict:          {conflict, reasons.WriteConflict},
	podresize.PodGone:           {consequence: gone},
	podresize.Replaced:          {consequence: gone},
	podresize.NotServed:         {blocked, reasons.ResizeNotServed},
	podresize.NotAllowed:        {blocked, reasons.PermissionMissing},
}

// conclude draws the consequence of an outcome, and says whether the pod should be decided anew at
// once.
func (r *Reconciler) conclude(ctx context.Context, s *snapshot, t *task, result podresize.Result, last bool) (again bool) {
	r.settleQuota(t, result.Outcome)
	c, ok := consequences[result.Outcome]
	if !ok {
		panic(fmt.Sprintf("outcome %v of a resize has no consequence", result.Outcome))
	}
	if result.Pod != nil && c.consequence == refused { // admission changed more than was asked for, and it is stored
		r.resized(s, t, result.Pod)
	}
	switch c.consequence {
	case stored:
		r.resized(s, t, result.Pod)
	case refused:
		r.refused(s, t, c.reason, result.Message)
	case noAnswer:
		r.unanswered(s, t, lifecycle.Answer{Reason: c.reason, RetryAfter: result.RetryAfter})
	case unknown:
		r.lookUp(ctx, s, t, lifecycle.Answer{Reason: c.reason})
	case conflict:
		return r.readAgain(ctx, s, t, c.reason, last)
	case gone:
		t.Status = t.facts.Status
	case blocked:
		r.close(c.reason, result.Message)
	}
	return false
}

// settleQuota tells the reservations of quotas what came of a resize.
func (r *Reconciler) settleQuota(t *task, o podresize.Outcome) {
	now := r.Now()
	switch o {
	case podresize.Accepted:
		if t.Move.Raises() {
			r.purse.taken(t.pod.Namespace, now)
		}
	case podresize.Unknown: // it may have been charged
	default:
		r.purse.back(t.pod.UID)
	}
	if o == podresize.QuotaExceeded {
		r.purse.refused(t.pod.Namespace, r.Config, now, t.admission.quotas)
	}
}

// resized records a resize that the API server stored.
func (r *Reconciler) resized(s *snapshot, t *task, pod *corev1.Pod) {
	declared := allocation.ContainerLimits(t.facts.Declared)
	from, to := limitsOf(t.pod, declared), limitsOf(pod, declared)
	t.pod = pod
	r.remember(s.node.name, pod)
	r.memory.change(s.node.name, pod.UID, func(rec *record) {
		t.Resized(r.Config.Config, r.Now(), allocation.LimitsOf(from), allocation.LimitsOf(to), &rec.Memory)
		rec.decidedAt, rec.refused = s.now, nil
	})
}

// refused sets the back-off of a pod whose resize was refused.
func (r *Reconciler) refused(s *snapshot, t *task, reason reasons.Reason, message string) {
	t.Refused(r.Config.Config, r.Now(), reason, message)
	r.memory.change(s.node.name, t.pod.UID, func(rec *record) {
		rec.RestoreRefused, rec.Troubles, rec.refused = t.Purpose == lifecycle.Restore, 0, nil
		if byNamespace(reason) {
			rec.refused = &t.admission
		}
		if reason == reasons.AdmissionWouldMutate {
			rec.checked = nil
		}
	})
}

// unanswered has the resize tried again later.
func (r *Reconciler) unanswered(s *snapshot, t *task, a lifecycle.Answer) {
	r.memory.change(s.node.name, t.pod.UID, func(rec *record) {
		t.Unanswered(r.Config.Config, r.Now(), a, r.jitter, &rec.Memory)
	})
}

// lookUp reads whether the resize was made.
func (r *Reconciler) lookUp(ctx context.Context, s *snapshot, t *task, a lifecycle.Answer) {
	before := t.pod
	if err := r.reread(ctx, s.node.name, t.podState); err == nil && carriedOut(*t.Move, t.pod) {
		after := t.pod
		t.pod = before
		r.resized(s, t, after)
		return
	}
	r.unanswered(s, t, a)
}

// readAgain reads a pod that has changed, and says whether the node should be decided anew at once.
func (r *Reconciler) readAgain(ctx context.Context, s *snapshot, t *task, reason reasons.Reason, last bool) bool {
	if err := r.reread(ctx, s.node.name, t.podState); client.IgnoreNotFound(err) != nil {
		r.unanswered(s, t, lifecycle.Answer{Reason: reason})
		return false
	}
	if last {
		at := r.Now().Add(time.Second)
		t.Postpone(reason, "", at)
		r.memory.change(s.node.name, t.pod.UID, func(rec *record) { rec.RetryAt = at })
	}
	return true
}

// carriedOut says whether the pod has the limits of the move.
func carriedOut(m actuator.Move, pod *corev1.Pod) bool {
	limits := kube.ByName(kube.Limits(pod))
	return !slices.ContainsFunc(m.Changes, func(c actuator.Change) bool { return limits[c.Container] != c.To })
}

package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// refusals are the outcomes after which a resize is tried again after a back-off that doubles, with
// the reason that status gets.
var refusals = map[podresize.Outcome]reasons.Reason{
	podresize.WouldMutate:       reasons.AdmissionWouldMutate,
	podresize.QuotaExceeded:     reasons.QuotaExceeded,
	podresize.QuotaNeedsLimits:  reasons.QuotaNeedsLimits,
	podresize.LimitRangeRefused: reasons.LimitRangeRefused,
	podresize.NotRunning:        reasons.ContainerNotRunning,
	podresize.NodeRefused:       reasons.NodeRefused,
	podresize.PolicyRefused:     reasons.PolicyRefused,
	podresize.NoDryRun:          reasons.PolicyRefused,
	podresize.Invalid:           reasons.InvalidResize,
}

// conclude takes in what came of a resize. What it says about the pod counts until it is in the status.
func (r *Reconciler) conclude(rec *record, z *dispatch.Resize) {
	a := z.Answer
	if a == nil { // nothing was sent
		return
	}
	if rec.checked = z.Checked; a.Sent {
		rec.Send(*z.Move)
	}
	if a.Outcome != podresize.Conflict {
		rec.conflicts = 0
	}
	switch a.Outcome {
	case podresize.Accepted, podresize.NoChange:
		r.resized(rec, z, a.Pod)
	case podresize.NotYet, podresize.Unavailable:
		r.unanswered(rec, z, lifecycle.Answer{Reason: reasons.ServerUnavailable, RetryAfter: a.RetryAfter})
	case podresize.Unknown:
		if a.Err == nil && z.Made(a.Found) {
			r.resized(rec, z, a.Found)
		} else {
			r.unanswered(rec, z, lifecycle.Answer{Reason: reasons.OutcomeUnknown})
		}
	case podresize.Conflict:
		r.decideAnew(rec, z)
	case podresize.PodGone, podresize.Replaced, podresize.NotServed, podresize.NotAllowed:
		z.Leave(r.Config.Config, r.Now(), r.jitter, &rec.Memory)
	default:
		reason, ok := refusals[a.Outcome]
		if !ok {
			panic(fmt.Sprintf("outcome %v of a resize has no consequence", a.Outcome))
		}
		if a.Pod != nil { // admission changed more than was asked for, and it is stored
			r.resized(rec, z, a.Pod)
		}
		r.refused(rec, z, reason)
	}
}

// resized records a resize that the API server stored.
func (r *Reconciler) resized(rec *record, z *dispatch.Resize, pod *corev1.Pod) {
	now, declared := r.Now(), allocation.ContainerLimits(z.Declared)
	from, to := kube.LimitsOf(z.Pod, declared), kube.LimitsOf(pod, declared)
	rec.pod, rec.podAt = pod, now
	z.Resized(r.Config.Config, now, allocation.LimitsOf(from), allocation.LimitsOf(to), &rec.Memory)
	// Copies, as a pointer into the resize would keep it alive with its pods.
	rec.decidedAt, rec.refused, rec.status = z.At, nil, ptr.To(z.Status)
	rec.dates.Looked(now) // the pod as it was answered shows nothing yet
}

// refused sets the back-off of a pod whose resize was refused. A refused revert has its own back-off, because a
// revert is due during the back-off of the resize; so has an increase that was to supersede a decrease, which
// is still in flight.
func (r *Reconciler) refused(rec *record, z *dispatch.Resize, reason reasons.Reason) {
	if z.Purpose == lifecycle.Revert || z.Supersedes {
		r.unanswered(rec, z, lifecycle.Answer{Reason: reason, Detail: z.Answer.Message})
		return
	}
	cause := lifecycle.Cause{Reason: reason, Detail: z.Answer.Message}
	if z.Purpose == lifecycle.Repair || z.Purpose == lifecycle.StepBack {
		z.RepairRefused(r.Config.Config, r.Now(), cause, r.jitter, &rec.Memory)
		rec.status = ptr.To(z.Status)
		return
	}
	z.Refused(r.Config.Config, r.Now(), cause, r.jitter)
	rec.RestoreRefused, rec.Troubles, rec.refused, rec.status = z.Purpose == lifecycle.Restore, 0, nil, ptr.To(z.Status)
	if dispatch.ByAdmission(reason) {
		rec.refused = ptr.To(z.Admission)
	}
}

// unanswered has the resize tried again later.
func (r *Reconciler) unanswered(rec *record, z *dispatch.Resize, a lifecycle.Answer) {
	z.Unanswered(r.Config.Config, r.Now(), a, r.jitter, &rec.Memory)
	rec.status = ptr.To(z.Status)
}

// conflictsAtOnce is how often in a row a pod that has changed since the decision is decided anew at
// once.
const conflictsAtOnce = 3

// decideAnew has a pod that has changed since the decision decided anew, as it is now.
func (r *Reconciler) decideAnew(rec *record, z *dispatch.Resize) {
	switch a := z.Answer; {
	case apierrors.IsNotFound(a.Err):
		z.Leave(r.Config.Config, r.Now(), r.jitter, &rec.Memory)
		return
	case a.Err == nil:
		rec.pod, rec.podAt = a.Found, r.Now()
		if rec.conflicts++; rec.conflicts < conflictsAtOnce {
			return
		}
	}
	rec.conflicts = 0
	r.unanswered(rec, z, lifecycle.Answer{Reason: reasons.WriteConflict})
}

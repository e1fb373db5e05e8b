package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// act carries tasks out: the resizes in the order of the plan, then the rest. last says that the node
// is not decided anew at once, whatever has changed.
func (r *Reconciler) act(ctx context.Context, s *snapshot, tasks []*task, last bool) {
	var moves, rest []*task
	for _, t := range tasks {
		if t.Move != nil {
			moves = append(moves, t)
		} else {
			rest = append(rest, t)
		}
	}
	r.forEach(ctx, acting, moves, func(t *task) error { return r.resize(ctx, s, t, last) })
	awaitDecreases(moves, rest)
	r.forEach(ctx, acting, rest, func(t *task) error {
		switch {
		case t.Delete:
			return r.drop(ctx, t)
		case t.Create:
			return r.create(ctx, s, t)
		}
		return nil
	})
}

// What is done about a pod, each with a back-off of its own. A pod about which either fails waits:
// what is done to it has to be recorded.
const acting, reporting = "act ", "report "

// forEach runs f on every task that no earlier failure holds off: the others do not wait for those.
func (r *Reconciler) forEach(ctx context.Context, what string, tasks []*task, f func(*task) error) {
	_ = each(r.Config.Pods, tasks, func(t *task) error { // never fails
		key := allocationOf(t.pod).String()
		until := r.backoffs.Waits(r.Now(), acting+key, reporting+key)
		if until.IsZero() {
			until = r.done(ctx, t.pod, what+key, f(t))
		}
		t.Recheck(until)
		return nil
	})
}

// drop deletes a PodAllocation that is not needed any more. That of a pod that the cache does not show
// is kept if the pod exists: the two caches of a new leader are not of the same moment.
func (r *Reconciler) drop(ctx context.Context, t *task) error {
	if t.stray {
		pod := &corev1.Pod{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(t.pod), pod)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read pod %s/%s of PodAllocation %s: %w", t.pod.Namespace, t.pod.Name, t.pa.Name, err)
		}
		if err == nil && allocationOf(pod) == client.ObjectKeyFromObject(t.pa) &&
			pod.UID == t.pa.Spec.PodRef.UID && pod.Spec.NodeName == t.pa.Spec.NodeName {
			t.Recheck(r.Now().Add(lag))
			return nil
		}
	}
	err := r.Client.Delete(ctx, t.pa, client.Preconditions{UID: &t.pa.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodAllocation %s/%s: %w", t.pa.Namespace, t.pa.Name, err)
	}
	t.rec.pa = nil
	return nil
}

// create creates the PodAllocation of a pod.
func (r *Reconciler) create(ctx context.Context, s *snapshot, t *task) error {
	pa := allocation.New(t.pod)
	err := r.Client.Create(ctx, pa, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(pa), pa)
	}
	if kube.NotServed(err) {
		r.Gate.Set(reasons.CRDNotInstalled, reasons.CRDNotInstalled.Sentence())
		r.Gate.Recheck()
		return nil
	}
	if err == nil && pa.Spec.NodeName != s.node.name { // a forgery: it goes when its alleged node is reconciled
		err = fmt.Errorf("one for node %s is in the way", pa.Spec.NodeName)
	}
	if err != nil {
		return fmt.Errorf("create PodAllocation %s/%s for pod %s: %w", pa.Namespace, pa.Name, t.pod.Name, err)
	}
	t.keep(s, pa)
	return nil
}

// keep remembers a PodAllocation as the API server returned it, until the cache shows it too.
func (p *podState) keep(s *snapshot, pa *v1alpha1.PodAllocation) {
	pa.ManagedFields = nil // as in the cache
	p.pa, p.rec.pa, p.rec.paAt = pa, pa, s.now
}

// resize carries one resize out and records what came of it in the task's status.
func (r *Reconciler) resize(ctx context.Context, s *snapshot, t *task, last bool) error {
	if t.Create {
		if err := r.create(ctx, s, t); err != nil {
			return err
		}
	}
	if t.Record != nil || t.Create {
		// The declared limits are in the PodAllocation before the first resize.
		if err := r.write(ctx, s, t); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.Gate.InFlight.Add(1)
	defer r.Gate.InFlight.Add(-1)
	now := r.Now()
	if blocked, err := r.blocked(ctx); err != nil || blocked != "" {
		return err
	}
	if admitted, err := r.admit(ctx, s, t, now); err != nil || !admitted {
		return err
	}
	result := r.attempt(ctx, t)
	r.account(t, result)
	r.audit(s, t, result, r.Now().Sub(now))
	r.conclude(ctx, s, t, result, last)
	return nil
}

// admit asks everything that bounds resizes whether this one may be made now. Where it may not, the
// task waits.
func (r *Reconciler) admit(ctx context.Context, s *snapshot, t *task, now time.Time) (bool, error) {
	if !now.Before(s.deadline) { // the others of the node have used it up
		t.Recheck(now.Add(time.Second))
		if t.Purpose != lifecycle.Revert { // whose failure says more
			t.Status = t.facts.Status
		}
		return false, nil
	}
	if until, admitted := r.breakers.Admit(t.pod.Namespace, now, false); !admitted {
		t.awaitWebhooks(until)
		return false, nil
	}
	if turn, waits := r.limiter.Waiting(t.pod.UID, now); waits {
		t.awaitToken(turn)
		return false, nil
	}
	if reason, err := r.reserve(ctx, t); err != nil || reason != "" {
		if reason != "" && t.Purpose != lifecycle.Revert { // whose failure says more
			t.Report(lifecycle.PhaseNotApplied, reason, "")
		}
		return false, err
	}
	if turn, ok := r.limiter.Take(t.pod.UID, now); !ok {
		r.quotas.release(t)
		t.awaitToken(turn)
		return false, nil
	}
	if until, admitted := r.breakers.Admit(t.pod.Namespace, now, true); !admitted {
		r.limiter.GiveBack()
		r.quotas.release(t)
		t.awaitWebhooks(until)
		return false, nil
	}
	return true, nil
}

// awaitWebhooks has the task wait until the breaker of its namespace admits it.
func (t *task) awaitWebhooks(until time.Time) {
	t.Postpone(reasons.ServerUnavailable, "the admission webhooks of namespace "+t.pod.Namespace+" do not answer", until)
}

// awaitToken has the task wait for its turn. Only a long wait is reported, which spares a write for
// every pod that waits.
func (t *task) awaitToken(turn flowcontrol.Turn) {
	t.turn = turn.At
	t.Recheck(turn.At)
	if t.Purpose == lifecycle.Revert { // whose failure says more
		return
	}
	if turn.At.Sub(turn.Since) > unreportedWait || !reflect.DeepEqual(t.Status, t.facts.Status) {
		t.Report(lifecycle.PhaseNotApplied, reasons.RateLimited, "")
	}
}

// unreportedWait is for how long a pod may wait for a token without a report. A user asks after
// some seconds why a pod is not resized; at the usual rate of ten a second fifty pods are resized
// in that time, so common bursts pass without a write.
const unreportedWait = 5 * time.Second

// awaitDecreases puts the next look at pods that wait for decreases off where these wait for a
// token: nothing comes of it before.
func awaitDecreases(moves, rest []*task) {
	var turn time.Time
	for _, t := range moves {
		if t.Move.Delta() < 0 {
			turn = lifecycle.Earlier(turn, t.turn)
		}
	}
	for _, t := range rest {
		if t.Status.Reason == reasons.WaitingForDecreases && t.RecheckAt.Before(turn) {
			t.RecheckAt = turn
		}
	}
}

// attempt resizes. Before the first resize of a pod, and the first one under other LimitRanges, it
// asks what admission would make of it, because what that adds to a pod can never be removed.
func (r *Reconciler) attempt(ctx context.Context, t *task) podresize.Result {
	ranges := t.admission.ranges
	under := fmt.Sprint(r.mutations.Load(), " ", ranges)
	if t.rec.checked == nil || *t.rec.checked != under {
		result := r.Resize.DryRun(ctx, t.pod, *t.Move)
		// Where a webhook refuses dry runs, no LimitRange gives anything to a pod that lacks
		// nothing.
		if result.Outcome != podresize.Accepted &&
			!(result.Outcome == podresize.NoDryRun && (ranges == "" || kube.FullySpecified(t.pod))) {
			if result.Outcome == podresize.Unknown { // a dry run changes nothing
				result.Outcome, result.WebhookFailed = podresize.Unavailable, true
			}
			return result
		}
		t.rec.checked = &under
	}
	t.rec.Send(*t.Move)
	result := r.Resize.Apply(ctx, t.pod, *t.Move)
	if result.Outcome == podresize.WouldMutate { // admission changed since the dry runs: none counts any more
		r.mutations.Add(1)
	}
	return result
}

// account tells everything that bounds resizes what came of one: a resize that changed nothing gives
// its token back.
func (r *Reconciler) account(t *task, result podresize.Result) {
	now := r.Now()
	if !result.MayHaveChanged() {
		r.limiter.GiveBack()
	}
	switch result.Outcome {
	case podresize.Unknown:
		r.breakers.Failed(t.pod.Namespace, now)
	case podresize.Unavailable:
		if result.WebhookFailed {
			r.breakers.Failed(t.pod.Namespace, now)
		}
	case podresize.Accepted, podresize.WouldMutate, podresize.PolicyRefused, podresize.NoDryRun, podresize.QuotaExceeded:
		r.breakers.Answered(t.pod.Namespace)
	}
	r.quotas.settle(t, result.Outcome, now)
}

// refusals are the outcomes after which a resize is tried again after a back-off that doubles, with
// the reason that status gets.
var refusals = map[podresize.Outcome]reasons.Reason{
	podresize.WouldMutate:       reasons.AdmissionWouldMutate,
	podresize.QuotaExceeded:     reasons.QuotaExceeded,
	podresize.QuotaNeedsLimits:  reasons.QuotaNeedsLimits,
	podresize.LimitRangeRefused: reasons.LimitRangeRefused,
	podresize.NodeRefused:       reasons.NodeRefused,
	podresize.PolicyRefused:     reasons.PolicyRefused,
	podresize.NoDryRun:          reasons.PolicyRefused,
	podresize.Invalid:           reasons.InvalidResize,
}

// conclude draws the consequence of an outcome.
func (r *Reconciler) conclude(ctx context.Context, s *snapshot, t *task, result podresize.Result, last bool) {
	switch result.Outcome {
	case podresize.Accepted, podresize.NoChange:
		r.resized(s, t, result.Pod)
	case podresize.NotYet, podresize.Unavailable:
		r.unanswered(t, lifecycle.Answer{Reason: reasons.ServerUnavailable, RetryAfter: result.RetryAfter})
	case podresize.Unknown:
		before := t.pod
		if err := r.reread(ctx, t.podState); err == nil && carriedOut(*t.Move, t.pod) {
			after := t.pod
			t.pod = before
			r.resized(s, t, after)
			return
		}
		r.unanswered(t, lifecycle.Answer{Reason: reasons.OutcomeUnknown})
	case podresize.Conflict:
		r.readAgain(ctx, t, last)
	case podresize.PodGone, podresize.Replaced: // the PodAllocation goes with its pod
		t.Status = t.facts.Status
	case podresize.NotServed:
		r.Gate.Set(reasons.ResizeNotServed, result.Message)
	case podresize.NotAllowed:
		r.Gate.Set(reasons.PermissionMissing, result.Message)
	default:
		reason, ok := refusals[result.Outcome]
		if !ok {
			panic(fmt.Sprintf("outcome %v of a resize has no consequence", result.Outcome))
		}
		if result.Pod != nil { // admission changed more than was asked for, and it is stored
			r.resized(s, t, result.Pod)
		}
		r.refused(t, reason, result.Message)
	}
}

// resized records a resize that the API server stored.
func (r *Reconciler) resized(s *snapshot, t *task, pod *corev1.Pod) {
	declared := allocation.ContainerLimits(t.facts.Declared)
	from, to := limitsOf(t.pod, declared), limitsOf(pod, declared)
	t.became(pod, r.Now())
	t.Resized(r.Config.Config, r.Now(), allocation.LimitsOf(from), allocation.LimitsOf(to), &t.rec.Memory)
	t.rec.decidedAt, t.rec.refused = s.now, nil
	t.rec.dates.Looked(r.Now()) // the pod as it was answered shows nothing yet
}

// refused sets the back-off of a pod whose resize was refused.
func (r *Reconciler) refused(t *task, reason reasons.Reason, message string) {
	t.Refused(r.Config.Config, r.Now(), reason, message)
	rec := t.rec
	rec.RestoreRefused, rec.Troubles, rec.refused = t.Purpose == lifecycle.Restore, 0, nil
	if byNamespace(reason) {
		rec.refused = &t.admission
	}
	if reason == reasons.AdmissionWouldMutate {
		rec.checked = nil
	}
}

// unanswered has the resize tried again later.
func (r *Reconciler) unanswered(t *task, a lifecycle.Answer) {
	t.Unanswered(r.Config.Config, r.Now(), a, r.jitter, &t.rec.Memory)
}

// readAgain reads a pod that has changed, to be decided anew at once, or later if this is the last
// pass.
func (r *Reconciler) readAgain(ctx context.Context, t *task, last bool) {
	if err := r.reread(ctx, t.podState); client.IgnoreNotFound(err) != nil {
		r.unanswered(t, lifecycle.Answer{Reason: reasons.WriteConflict})
		return
	}
	t.conflict = true
	if last {
		t.rec.RetryAt = r.Now().Add(time.Second)
		t.Postpone(reasons.WriteConflict, "", t.rec.RetryAt)
	}
}

// carriedOut says whether the pod has the limits of the move.
func carriedOut(m actuator.Move, pod *corev1.Pod) bool {
	limits := kube.ByName(kube.Limits(pod))
	return !slices.ContainsFunc(m.Changes, func(c actuator.Change) bool { return limits[c.Container] != c.To })
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// act carries tasks out: it moves in the order of the plan, and then does the rest. It says whether a
// pod turned out to have changed since the decision, so that the node should be decided anew at once; last says
// that it will not be. The plan has held back the raises that must wait for others to be lowered. failed says that the
// API server did not let a pod be dealt with.
func (r *Reconciler) act(ctx context.Context, s scene, tasks []Task, last bool) (stale, failed bool) {
	var moves, rest []*Task
	for i := range tasks {
		if t := &tasks[i]; t.Move != nil {
			moves = append(moves, t)
		} else {
			rest = append(rest, t)
		}
	}
	var again atomic.Bool
	failed = r.forEach(ctx, moves, func(t *Task) error {
		changed, err := r.move(ctx, s, t, last)
		if changed {
			again.Store(true)
		}
		return err
	})
	giversWait(moves, rest)
	failed = r.forEach(ctx, rest, func(t *Task) error { return r.keep(ctx, s, t) }) || failed
	return again.Load(), failed
}

// forEach runs f on every task, and says whether it failed on any: the others do not wait for that one.
func (r *Reconciler) forEach(ctx context.Context, tasks []*Task, f func(*Task) error) bool {
	var failed atomic.Bool
	_ = each(r.Config.Pods, tasks, func(t *Task) error {
		if r.failed(ctx, t.pod(), f(t)) {
			failed.Store(true)
		}
		return nil
	})
	return failed.Load()
}

// each runs f on every item, at most n at a time, and waits for all.
func each[T any](n int, items []T, f func(T) error) error {
	errs := make([]error, len(items))
	slots := make(chan struct{}, n)
	var wg sync.WaitGroup
	for i, t := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(t)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// record writes newly found declared limits to the ledger, before anything else happens.
func (r *Reconciler) record(ctx context.Context, s scene, tasks []Task) error {
	entries := map[types.UID]restore.Entry{}
	for _, t := range tasks {
		if pod := t.Pod.Pod; t.Record != nil {
			entries[pod.UID] = restore.Entry{Namespace: pod.Namespace, Pod: pod.Name, Limits: t.Record}
		}
	}
	key := types.NamespacedName{Namespace: r.Config.Namespace, Name: restore.LedgerName(s.Node.Name)}
	if err := restore.WriteLedger(ctx, r.Client, key, entries, s.ledger, s.exists); err != nil {
		return err
	}
	for uid, e := range entries {
		r.memory.change(s.Node.Name, uid, func(rec *record) {
			rec.declared, rec.ledgered, rec.ledgeredAt = e.Limits, e.Limits, s.Now
		})
	}
	return nil
}

// keep creates and deletes allocations.
func (r *Reconciler) keep(ctx context.Context, s scene, t *Task) error {
	switch {
	case t.Delete:
		pa := t.Pod.PA
		err := r.Client.Delete(ctx, pa, client.Preconditions{UID: &pa.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
		}
		r.memory.change(s.Node.Name, pa.Spec.PodRef.UID, func(rec *record) { rec.pa = nil })
	case t.Create:
		return r.create(ctx, s, t)
	}
	return nil
}

// create makes the pod's allocation.
func (r *Reconciler) create(ctx context.Context, s scene, t *Task) error {
	pa := allocation.New(t.Pod.Pod)
	err := r.Client.Create(ctx, pa, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(pa), pa)
	}
	if kube.NotServed(err) {
		r.close(reasons.CRDNotInstalled, reasons.CRDNotInstalled.Sentence())
		r.Gate.Recheck()
		return nil
	}
	if err != nil {
		return fmt.Errorf("create PodAllocation %s/%s for pod %s: %w", pa.Namespace, pa.Name, t.Pod.Pod.Name, err)
	}
	if pa.Spec.NodeName != s.Node.Name { // a forgery: it goes when its alleged node is looked at
		return fmt.Errorf("create PodAllocation %s/%s for pod %s: one for node %s is in the way", pa.Namespace, pa.Name, t.Pod.Pod.Name, pa.Spec.NodeName)
	}
	t.Status.ObservedGeneration = pa.Generation
	r.hold(s, t, pa)
	return nil
}

// hold keeps an allocation as the API server returned it, until the cache shows it too.
func (r *Reconciler) hold(s scene, t *Task, pa *v1alpha1.PodAllocation) {
	pa.ManagedFields = nil // as in the cache
	t.Pod.PA = pa
	r.memory.change(s.Node.Name, pa.Spec.PodRef.UID, func(rec *record) { rec.pa, rec.paAt = pa, s.Now })
}

// move carries one move out and writes what came of it into the task's status.
func (r *Reconciler) move(ctx context.Context, s scene, t *Task, last bool) (stale bool, err error) {
	if t.Record != nil || t.Create {
		// The declared limits stand in the allocation before the first resize.
		if err := r.keep(ctx, s, t); err != nil {
			return false, err
		}
		if err := r.write(ctx, s, t); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	r.Gate.flying.Add(1)
	defer r.Gate.flying.Add(-1)
	now := r.Now()
	reason, err := r.blocked(ctx)
	if err != nil {
		return false, err
	}
	stopped := reason != ""
	if !stopped {
		if !now.Before(s.deadline) { // the others of the node have used it up
			t.postpone(now.Add(time.Second))
			return false, nil
		}
		if until, open := r.breakers.open(t.Pod.Pod.Namespace, now); open {
			t.awaitWebhooks(until)
			return false, nil
		}
		if p, waits := r.limiter.waiting(t.Pod.Pod.UID, now); waits {
			t.queue(p)
			return false, nil
		}
		if reason, err = r.afford(ctx, t); err != nil {
			return false, err
		}
	}
	if reason != "" {
		switch {
		case stopped:
			t.leaveStatus()
		case t.Purpose != Revert: // whose failure says more
			t.hold(v1alpha1.PhaseNotApplied, reason)
		}
		return false, nil
	}
	if p, ok := r.limiter.take(t.Pod.Pod.UID, now); !ok {
		r.purse.back(t.Pod.Pod.UID)
		t.queue(p)
		return false, nil
	}
	if until, admitted := r.breakers.admit(t.Pod.Pod.Namespace, now); !admitted {
		r.limiter.giveBack()
		r.purse.back(t.Pod.Pod.UID)
		t.awaitWebhooks(until)
		return false, nil
	}
	result := r.attempt(ctx, s, t)
	r.account(t, result)
	r.audit(s, t, result, r.Now().Sub(now))
	return r.conclude(ctx, s, t, result, last), nil
}

// account gives the token of a resize back that changed nothing, and tells the breaker of the namespace whether its webhooks answered.
func (r *Reconciler) account(t *Task, result podresize.Result) {
	if !result.MayHaveChanged() {
		r.limiter.giveBack()
	}
	namespace := t.Pod.Pod.Namespace
	switch result.Outcome {
	case podresize.Unknown:
		r.breakers.failed(namespace, r.Now())
	case podresize.Unavailable:
		if result.WebhookFailed {
			r.breakers.failed(namespace, r.Now())
		}
	case podresize.Accepted, podresize.WouldMutate, podresize.PolicyRefused, podresize.NoDryRun, podresize.QuotaExceeded:
		r.breakers.answered(namespace)
	}
}

// postpone leaves the task for a later look, and its allocation as it is.
func (t *Task) postpone(at time.Time) {
	t.sooner(at)
	if t.Purpose != Revert { // whose failure says more
		t.Status = statusOf(t.Pod.PA)
	}
}

// awaitWebhooks has the task wait until the breaker of its namespace lets it try.
func (t *Task) awaitWebhooks(until time.Time) {
	t.sooner(until)
	if t.Status.Phase != v1alpha1.PhaseFailed {
		t.say(v1alpha1.PhaseNotApplied, reasons.ServerUnavailable, "the admission webhooks of namespace "+t.Pod.Pod.Namespace+" do not answer")
	}
}

// queue has the task wait for its turn. That is told where it takes long; else the allocation stays as it is, which spares a write
// for every pod that waits, and says by its observed generation that the decision is yet to be dealt with.
func (t *Task) queue(p turn) {
	t.turn = p.at
	t.sooner(p.at)
	if t.Purpose == Revert { // whose failure says more
		return
	}
	stored := statusOf(t.Pod.PA)
	told := t.Status
	told.ObservedGeneration = stored.ObservedGeneration
	if p.at.Sub(p.since) <= untoldWait && equality.Semantic.DeepEqual(told, stored) {
		t.Status = stored
		return
	}
	t.hold(v1alpha1.PhaseNotApplied, reasons.RateLimited)
}

// giversWait puts the next look at pods that wait for givers off where these wait for their turn: nothing comes of it before.
func giversWait(moves, rest []*Task) {
	var turn time.Time
	for _, t := range moves {
		if t.Move.Delta() < 0 {
			turn = earlier(turn, t.turn)
		}
	}
	for _, t := range rest {
		if t.Status.Reason == string(reasons.WaitingForDecreases) && t.Again.Before(turn) {
			t.Again = turn
		}
	}
}

// untoldWait is for how long a pod may wait for the budget of resizes without a word. Whoever looks at a pod asks after some seconds why it does
// not move; at the usual rate of ten a second fifty pods are resized in that time, so that common bursts pass without a write.
const untoldWait = 5 * time.Second

// attempt resizes. Before the first resize of a pod, and the first one under other LimitRanges, it asks what admission would make of
// it, because what that adds to a pod can never be removed.
func (r *Reconciler) attempt(ctx context.Context, s scene, t *Task) podresize.Result {
	pod, ranges := t.Pod.Pod, t.Pod.Laws.ranges
	if checked := r.memory.of(s.Node.Name, pod.UID).checked; checked == nil || *checked != ranges {
		result := r.Resize.DryRun(ctx, pod, *t.Move)
		// Where a webhook refuses dry runs, no LimitRange gives anything to a pod that lacks nothing.
		if result.Outcome != podresize.Accepted && !(result.Outcome == podresize.NoDryRun && (ranges == "" || kube.FullySpecified(pod))) {
			if result.Outcome == podresize.Unknown { // a dry run changes nothing
				result.Outcome, result.WebhookFailed = podresize.Unavailable, true
			}
			return result
		}
		r.memory.change(s.Node.Name, pod.UID, func(rec *record) { rec.checked = &ranges })
	}
	return r.Resize.Apply(ctx, pod, *t.Move)
}

// conclude draws the consequences of an outcome, and says whether the pod should be decided anew at once.
func (r *Reconciler) conclude(ctx context.Context, s scene, t *Task, result podresize.Result, last bool) (stale bool) {
	now := r.Now()
	node, uid, laws := s.Node.Name, t.Pod.Pod.UID, t.Pod.Laws
	switch result.Outcome {
	case podresize.Accepted:
		if t.Move.Raises() {
			r.purse.taken(t.Pod.Pod.Namespace, now)
		}
	case podresize.Unknown: // it may have been charged
	default:
		r.purse.back(uid)
	}
	refuse := func(reason reasons.Reason) {
		failed(&t.Status, r.Config, now, reason, result.Message)
		t.sooner(t.Status.Retry.Time.Time)
		r.memory.change(node, uid, func(rec *record) {
			rec.restoreRefused, rec.refused, rec.troubles = t.Purpose == Restore, nil, 0
			if lawful(reason) {
				rec.refused = &laws
			}
			if reason == reasons.AdmissionWouldMutate {
				rec.checked = nil
			}
		})
	}
	later := func(reason reasons.Reason, wait time.Duration) {
		at := now.Add(max(wait, time.Second))
		if t.Status.Phase != v1alpha1.PhaseFailed {
			t.hold(v1alpha1.PhaseNotApplied, reason)
		}
		t.sooner(at)
		r.memory.change(node, uid, func(rec *record) { rec.retryAt = at })
	}
	trouble := func(reason reasons.Reason) {
		wait := r.jitter(doubled(serverRetry, serverRetryMost, r.memory.of(node, uid).troubles))
		later(reason, max(wait, result.RetryAfter))
		r.memory.change(node, uid, func(rec *record) { rec.troubles++ })
	}
	again := func(reason reasons.Reason) bool {
		if err := r.reread(ctx, node, &t.Pod); client.IgnoreNotFound(err) != nil {
			later(reason, serverRetry)
			return false
		}
		if last {
			later(reason, time.Second)
		}
		return true
	}
	switch result.Outcome {
	case podresize.Accepted, podresize.NoChange:
		r.took(s, t, result.Pod, now)
	case podresize.WouldMutate:
		if result.Pod != nil { // it is done all the same
			r.took(s, t, result.Pod, now)
		}
		refuse(reasons.AdmissionWouldMutate)
	case podresize.Conflict:
		return again(reasons.WriteConflict)
	case podresize.Unknown:
		before := t.Pod.Pod
		if err := r.reread(ctx, node, &t.Pod); err == nil && carriedOut(*t.Move, t.Pod.Pod) {
			stored := t.Pod.Pod
			t.Pod.Pod = before
			r.took(s, t, stored, now)
			return false
		}
		trouble(reasons.OutcomeUnknown)
	case podresize.PodGone, podresize.Replaced:
		t.Status = statusOf(t.Pod.PA) // the allocation goes with its pod
	case podresize.NotServed:
		r.close(reasons.ResizeNotServed, result.Message)
		t.leaveStatus()
	case podresize.NotAllowed:
		r.close(reasons.PermissionMissing, result.Message)
		t.leaveStatus()
	case podresize.QuotaExceeded:
		r.purse.refused(t.Pod.Pod.Namespace, r.Config, now, laws.rooms)
		refuse(reasons.QuotaExceeded)
	case podresize.QuotaNeedsLimits:
		refuse(reasons.QuotaNeedsLimits)
	case podresize.LimitRangeRefused:
		refuse(reasons.LimitRangeRefused)
	case podresize.NodeRefused:
		refuse(reasons.NodeRefused)
	case podresize.PolicyRefused, podresize.NoDryRun:
		refuse(reasons.PolicyRefused)
	case podresize.Invalid:
		refuse(reasons.InvalidResize)
	case podresize.NotYet, podresize.Unavailable:
		trouble(reasons.ServerUnavailable)
	default:
		panic(fmt.Sprintf("outcome %v of a resize is not dealt with", result.Outcome))
	}
	return false
}

// serverRetry is how soon a resize is tried again that the API server could not answer; it doubles with each failure in a row up to
// serverRetryMost.
const (
	serverRetry     = 5 * time.Second
	serverRetryMost = 5 * time.Minute
)

// carriedOut says whether the pod has the limits of the move.
func carriedOut(m actuator.Move, pod *corev1.Pod) bool {
	limits := byName(kube.Limits(pod))
	return !slices.ContainsFunc(m.Changes, func(c actuator.Change) bool { return limits[c.Container] != c.To })
}

// took notes a resize that the API server stored.
func (r *Reconciler) took(s scene, t *Task, pod *corev1.Pod, now time.Time) {
	before := current(t.Pod)
	t.Pod.Pod = pod
	r.remember(s.Node.Name, pod)
	r.memory.change(s.Node.Name, pod.UID, func(rec *record) {
		rec.decidedAt, rec.retryAt, rec.troubles, rec.refused = s.Now, time.Time{}, 0, nil
		if t.Purpose != Revert { // a revert belongs to the resize that it takes back
			rec.restoreRefused = t.Purpose == Restore
		}
	})
	t.moved(r.Config, now, t.Purpose, before, current(t.Pod))
	t.sooner(now.Add(r.Config.ActuationTimeout))
}

// close stops all resizes until the gate is found open again.
func (r *Reconciler) close(reason reasons.Reason, why string) {
	if r.Gate.Set(reason, why) {
		r.blockedChanged(reason, why)
	}
}

func statusOf(pa *v1alpha1.PodAllocation) v1alpha1.PodAllocationStatus {
	if pa == nil {
		return v1alpha1.PodAllocationStatus{}
	}
	return *pa.Status.DeepCopy()
}

package controller

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// act carries tasks out: the moves in the order of the plan, then the rest. conflict says that a
// pod turned out to have changed since the decision, so that the node should be decided anew at
// once; last says that it will not be. failed says that the API server did not let a pod be dealt
// with.
func (r *Reconciler) act(ctx context.Context, s *snapshot, tasks []*task, last bool) (conflict, failed bool) {
	var moves, rest []*task
	for _, t := range tasks {
		if t.Move != nil {
			moves = append(moves, t)
		} else {
			rest = append(rest, t)
		}
	}
	var again atomic.Bool
	failed = r.forEach(ctx, moves, func(t *task) error {
		changed, err := r.resize(ctx, s, t, last)
		if changed {
			again.Store(true)
		}
		return err
	})
	awaitDecreases(moves, rest)
	failed = r.forEach(ctx, rest, func(t *task) error {
		switch {
		case t.Delete:
			return r.drop(ctx, s, t.pa)
		case t.Create:
			return r.create(ctx, s, t)
		}
		return nil
	}) || failed
	for _, pa := range s.strays {
		failed = r.failed(ctx, reference(pa), r.drop(ctx, s, pa)) || failed
	}
	return again.Load(), failed
}

// forEach runs f on every task, and says whether it failed on any: the others do not wait for that
// one.
func (r *Reconciler) forEach(ctx context.Context, tasks []*task, f func(*task) error) bool {
	var failed atomic.Bool
	_ = each(r.Config.Pods, tasks, func(t *task) error {
		if r.failed(ctx, t.pod, f(t)) {
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

// resize carries one move out and records what came of it in the task's status.
func (r *Reconciler) resize(ctx context.Context, s *snapshot, t *task, last bool) (conflict bool, err error) {
	if t.Record != nil || t.Create {
		// The declared limits are in the PodAllocation before the first resize.
		if t.Create {
			if err := r.create(ctx, s, t); err != nil {
				return false, err
			}
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
	if blocked, err := r.blocked(ctx); err != nil || blocked != "" {
		return false, err
	}
	if admitted, err := r.admit(ctx, s, t, now); err != nil || !admitted {
		return false, err
	}
	result := r.attempt(ctx, s, t)
	r.account(t, result)
	r.audit(s, t, result, r.Now().Sub(now))
	return r.conclude(ctx, s, t, result, last), nil
}

// admit asks everything that bounds resizes whether this one may be made now. Where it may not, the
// task waits.
func (r *Reconciler) admit(ctx context.Context, s *snapshot, t *task, now time.Time) (bool, error) {
	if !now.Before(s.deadline) { // the others of the node have used it up
		t.postpone(now.Add(time.Second))
		return false, nil
	}
	if until, open := r.breakers.open(t.pod.Namespace, now); open {
		t.awaitWebhooks(until)
		return false, nil
	}
	if turn, waits := r.limiter.waiting(t.pod.UID, now); waits {
		t.awaitToken(turn)
		return false, nil
	}
	if reason, err := r.afford(ctx, t); err != nil || reason != "" {
		if reason != "" && t.Purpose != lifecycle.Revert { // whose failure says more
			t.Report(lifecycle.PhaseNotApplied, reason, "")
		}
		return false, err
	}
	if turn, ok := r.limiter.take(t.pod.UID, now); !ok {
		r.purse.back(t.pod.UID)
		t.awaitToken(turn)
		return false, nil
	}
	if until, admitted := r.breakers.admit(t.pod.Namespace, now); !admitted {
		r.limiter.giveBack()
		r.purse.back(t.pod.UID)
		t.awaitWebhooks(until)
		return false, nil
	}
	return true, nil
}

// postpone leaves the task for a later reconcile, and its status as it is.
func (t *task) postpone(at time.Time) {
	t.Recheck(at)
	if t.Purpose != lifecycle.Revert { // whose failure says more
		t.Status = t.facts.Status
	}
}

// awaitWebhooks has the task wait until the breaker of its namespace admits it.
func (t *task) awaitWebhooks(until time.Time) {
	t.Postpone(reasons.ServerUnavailable, "the admission webhooks of namespace "+t.pod.Namespace+" do not answer", until)
}

// awaitToken has the task wait for its turn. Only a long wait is reported, which spares a write for
// every pod that waits.
func (t *task) awaitToken(turn turn) {
	t.turn = turn.at
	t.Recheck(turn.at)
	if t.Purpose == lifecycle.Revert { // whose failure says more
		return
	}
	if turn.at.Sub(turn.since) > unreportedWait || !reflect.DeepEqual(t.Status, t.facts.Status) {
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
func (r *Reconciler) attempt(ctx context.Context, s *snapshot, t *task) podresize.Result {
	ranges := t.admission.ranges
	if checked := r.memory.of(s.node.name, t.pod.UID).checked; checked == nil || *checked != ranges {
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
		r.memory.change(s.node.name, t.pod.UID, func(rec *record) { rec.checked = &ranges })
	}
	return r.Resize.Apply(ctx, t.pod, *t.Move)
}

// account gives the token of a resize back that changed nothing, and tells the breaker of the
// namespace whether its webhooks answered.
func (r *Reconciler) account(t *task, result podresize.Result) {
	if !result.MayHaveChanged() {
		r.limiter.giveBack()
	}
	switch result.Outcome {
	case podresize.Unknown:
		r.breakers.failed(t.pod.Namespace, r.Now())
	case podresize.Unavailable:
		if result.WebhookFailed {
			r.breakers.failed(t.pod.Namespace, r.Now())
		}
	case podresize.Accepted, podresize.WouldMutate, podresize.PolicyRefused, podresize.NoDryRun, podresize.QuotaExceeded:
		r.breakers.answered(t.pod.Namespace)
	}
}

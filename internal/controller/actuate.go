package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// act carries tasks out. Resizes are handed to the dispatcher, in the place of those of the look before.
func (r *Reconciler) act(ctx context.Context, s *snapshot, tasks []*task) {
	for _, t := range tasks {
		t.rec.WaitsSince = t.WaitsSince
	}
	r.forEach(ctx, acting, tasks, func(t *task) error {
		switch {
		case t.Move != nil:
			return r.prepare(ctx, s, t)
		case t.Delete:
			return r.drop(ctx, t)
		case t.Create:
			return r.create(ctx, s, t)
		}
		return nil
	})
	var requests []dispatch.Request
	for _, t := range tasks {
		if t.request != nil {
			requests = append(requests, *t.request)
		}
	}
	r.resizes.Replace(s.node.name, r.liveness.Nodes(), requests, func(pod types.UID) bool { return s.exists[pod] })
}

// What is done about a pod, each with a back-off of its own. A pod about which either fails waits:
// what is done to it has to be recorded.
const acting, reporting = "act ", "report "

// forEach runs f on every task that no earlier failure holds off: the others do not wait for those.
func (r *Reconciler) forEach(ctx context.Context, what string, tasks []*task, f func(*task) error) {
	_ = flowcontrol.Each(r.Config.Pods, tasks, func(t *task) error { // never fails
		key := allocation.Key(t.pod).String()
		until := r.backoffs.Waits(r.Now(), acting+key, reporting+key)
		if until.IsZero() {
			until = r.done(ctx, t.pod, what+key, flowcontrol.Guard(func() error { return f(t) }))
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
		if err == nil && allocation.Key(pod) == client.ObjectKeyFromObject(t.pa) &&
			pod.UID == t.pa.Spec.PodRef.UID && pod.Spec.NodeName == t.pa.Spec.NodeName {
			t.Recheck(r.Now().Add(kube.CacheLag))
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
	if pa.Status.Phase != "" { // It was not an input of this decision, so it is kept until the next look.
		t.pa, t.unseen = nil, true
		t.Recheck(s.now.Add(time.Second))
	}
	return nil
}

// keep remembers a PodAllocation as the API server returned it, until the cache shows it too.
func (p *podState) keep(s *snapshot, pa *v1alpha1.PodAllocation) {
	pa.ManagedFields, pa.OwnerReferences = nil, nil // as in the cache
	p.pa, p.rec.pa, p.rec.paAt = pa, pa, s.now
}

// prepare writes what has to be recorded before a resize, and requests it where nothing is known to be
// in its way.
func (r *Reconciler) prepare(ctx context.Context, s *snapshot, t *task) error {
	if t.Create {
		if err := r.create(ctx, s, t); err != nil {
			return err
		}
	}
	if t.Record != nil || t.Create {
		// The declared limits are in the PodAllocation before the first resize.
		if stored, err := r.write(ctx, s, t); err != nil || !stored {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if why, until, admitted := r.resizes.Breakers.Admit(t.pod.Namespace, s.now, false); !admitted {
		t.Postpone(why.Reason, why.Detail(), until)
		return nil
	}
	z := t.resize(s.now)
	z.Tenure = s.memory.tenure
	again, fits, err := r.resizes.Quotas.Fits(ctx, z, s.now)
	if err != nil {
		return err
	}
	if !fits && t.Purpose == lifecycle.Repair {
		t.RepairRefused(r.Config.Config, s.now, lifecycle.Cause{Reason: reasons.WaitingForQuota}, r.jitter, &t.rec.Memory)
		return nil
	}
	if !fits {
		t.Recheck(lifecycle.Earlier(again, r.quotas.Await(s.namespaces[t.pod.Namespace].look, s.now)))
		t.ReportWait(reasons.WaitingForQuota, "")
		return nil
	}
	t.request = &dispatch.Request{
		Pod: t.pod.UID, Namespace: t.pod.Namespace, Node: t.pod.Spec.NodeName, Priority: t.priority(), Value: z,
	}
	_, since, _ := r.resizes.Standing(t.pod.UID)
	t.awaitTurn(since, s.now)
	return nil
}

// resize is the resize of a task as it is now: what happens to the task from here on is its report.
func (t *task) resize(now time.Time) *dispatch.Resize {
	pod := *t.pod // of a list, which a pointer into it would keep alive
	z := &dispatch.Resize{
		Task: t.Task, Pod: &pod, Mode: kube.Mode(t.facts.Mode), Declared: t.facts.Declared, Admission: t.admission,
		At: now, Checked: t.rec.checked, Reason: string(t.Why),
	}
	if t.pa != nil {
		z.Generation = t.pa.Generation
	}
	if t.pa != nil && t.pa.Spec.Decision != nil && t.facts.Decision != nil {
		d := t.pa.Spec.Decision
		z.ObservedAt, z.Age = d.ObservedAt.Time, t.facts.Decision.Age
		z.Evidence = audit.Evidence{
			Price: d.Price.String(), Budget: d.Budget, Usage: d.Usage, Demand: d.Demand, ThrottledPercent: d.ThrottledPercent,
		}
		if t.Purpose == lifecycle.Allocate {
			z.Reason = "BoundBy" + string(d.BoundBy)
		}
	}
	if t.Purpose == lifecycle.Revert {
		z.Reason = string(t.Status.Reason)
	}
	return z
}

// priority is how urgent the resize is.
func (t *task) priority() flowcontrol.Priority {
	optsOut := t.Purpose == lifecycle.Restore && t.facts.Excluded.Reason == reasons.OptedOut
	switch {
	case optsOut || t.Purpose == lifecycle.Rollback || t.Purpose == lifecycle.Revert || t.Purpose == lifecycle.StepBack:
		return flowcontrol.Urgent
	case t.Move.Delta() < 0:
		return flowcontrol.Decrease
	case t.Purpose == lifecycle.Restore || t.Purpose == lifecycle.Startup || t.facts.Throttled() || t.facts.Quota.Low():
		return flowcontrol.Needed
	}
	return flowcontrol.Idle
}

// awaitTurn has the task wait for its turn, for which it has waited since then; zero: it has not. Only a
// long wait is reported, which spares a write for every pod that waits.
func (t *task) awaitTurn(since, now time.Time) {
	if since.IsZero() {
		since = now
	}
	if now.Sub(since) < unreportedWait {
		t.Recheck(since.Add(unreportedWait))
	} else {
		t.ReportWait(reasons.RateLimited, "")
	}
}

// unreportedWait is for how long a pod may wait for its turn without a report. Shorter writes more
// statuses when the load of the whole cluster shifts; longer leaves users without an answer.
const unreportedWait = time.Minute

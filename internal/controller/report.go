package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/nodeallocation"
)

// report writes what changed: statuses, events and metrics. It returns false where it stopped because what it
// reports was overtaken by newer decisions: what it has not written then is found again by the next look.
func (r *Reconciler) report(ctx context.Context, s *snapshot, tasks []*task, overtaken func() bool) bool {
	if overtaken() {
		return false
	}
	var kept []*task
	for _, t := range tasks {
		if !t.Delete && !t.unseen {
			r.observe(s, t)
			kept = append(kept, t)
		}
	}
	r.Metrics.Allocations(s.node.name, states(kept))
	var due, waiting []*task
	for _, t := range kept {
		if t.canWait(s.now) {
			waiting = append(waiting, t)
		} else {
			due = append(due, t)
		}
	}
	write := func(t *task) error {
		_, err := r.write(ctx, s, t)
		return err
	}
	for some := range slices.Chunk(due, r.Config.Pods) {
		if r.forEach(ctx, reporting, some, write); overtaken() {
			return false
		}
	}
	return r.writeSlowly(ctx, waiting, write, overtaken)
}

// writeSlowly writes statuses that can wait, one after the other and for statusTime, if no more than
// statusNodes do so; the others when the node is looked at again. It returns false where it was overtaken.
func (r *Reconciler) writeSlowly(
	ctx context.Context, waiting []*task, write func(*task) error, overtaken func() bool,
) bool {
	leave, may := r.statuses.Enter()
	defer leave()
	end, wait := r.Now().Add(statusTime), r.jitter(statusWait)
	for i := range waiting {
		wrote := false
		r.forEach(ctx, reporting, waiting[i:i+1], func(t *task) (err error) {
			if !may || r.Now().After(end) || !r.statuses.Try(r.Now, func() { wrote, err = true, write(t) }) {
				t.Recheck(r.Now().Add(wait))
			}
			return err
		})
		if wrote && overtaken() {
			return false
		}
	}
	return true
}

// When many pods change at once, statuses that only tell so are written as the API server has time, and for
// so many nodes at the same time, each for statusTime. Workers go on to other nodes, where pods may be
// throttled; the node is looked at again after about statusWait.
const (
	statusNodes = 4
	statusTime  = time.Second
	statusWait  = 20 * time.Second
)

// canWait says whether the status changes only in what it tells a reader: between phases in which no resize is
// under way or has failed, or for some time, that one was carried out, as the pod shows itself.
func (t *task) canWait(now time.Time) bool {
	if t.pa == nil || t.rec.status != nil {
		return false
	}
	before, after := &t.pa.Status, t.pa.Status.DeepCopy()
	t.setStatus(after, now)
	told := before.Phase != after.Phase || before.Reason != after.Reason || before.Message != after.Message
	ended := t.Done && before.Phase == v1alpha1.PhasePending && now.Sub(t.Status.LastApplied) < unreportedWait
	if !told || !ended && !atRest(before.Phase) || !atRest(after.Phase) {
		return false
	}
	after.Phase, after.Reason, after.Message = before.Phase, before.Reason, before.Message
	after.Conditions, after.ObservedGeneration = before.Conditions, before.ObservedGeneration
	return equality.Semantic.DeepEqual(before, after)
}

func atRest(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseApplied || p == v1alpha1.PhaseNotApplied || p == v1alpha1.PhaseRestored
}

// states counts the pods with a PodAllocation by its phase and reason.
func states(tasks []*task) map[metrics.State]float64 {
	n := map[metrics.State]float64{}
	for _, t := range tasks {
		if t.pa != nil {
			n[metrics.State{Phase: string(t.Status.Phase), Reason: string(t.Status.Reason)}]++
		}
	}
	return n
}

// tell tells the agent of the node what to decide about. What it is told of a pod that was left out, or
// whose PodAllocation was not known, stays. While another controller tells otherwise, it is told what is tighter.
func (r *Reconciler) tell(ctx context.Context, s *snapshot, tasks []*task) {
	key, contest := "tell "+s.node.name, "contest "+s.node.name
	until := r.backoffs.Waits(s.now, key)
	if s.recheckAt = lifecycle.Earlier(s.recheckAt, until); !until.IsZero() {
		return
	}
	pods := s.told.Of(s.leftOut)
	for _, t := range tasks {
		switch {
		case t.unseen:
			pods = append(pods, s.told.Of([]types.UID{t.pod.UID})...)
		case t.pa != nil && !t.Delete && len(t.Status.Declared) > 0 && !t.facts.Ended && !t.facts.TooLarge:
			t.constraints.NoDecrease = string(t.NoDecrease)
			pods = append(pods, allocation.NodePod(t.pa, t.Status.Declared, t.constraints))
		}
	}
	tell, until := r.memory.told.Tell, r.backoffs.Waits(s.now, contest)
	if !until.IsZero() {
		tell = r.memory.told.Tighten
	}
	again, err := tell(ctx, s.node.name, s.node.uid, pods)
	var refused *nodeallocation.Refused
	if errors.As(err, &refused) { // the others of the node do not wait for them
		r.done(ctx, &corev1.Pod{Spec: corev1.PodSpec{NodeName: s.node.name}}, "refused "+s.node.name, refused)
		err = refused.Rest
	}
	if s.recheckAt = lifecycle.Earlier(lifecycle.Earlier(s.recheckAt, again), until); errors.Is(err, kube.ErrContested) {
		key = contest // which a success does not end
	}
	until = r.done(ctx, &corev1.Pod{Spec: corev1.PodSpec{NodeName: s.node.name}}, key, err)
	s.recheckAt = lifecycle.Earlier(s.recheckAt, until)
}

// write stores the task's status if it differs from the stored one, and says whether it is stored: not
// where another controller has written, or the PodAllocation is gone.
func (r *Reconciler) write(ctx context.Context, s *snapshot, t *task) (stored bool, err error) {
	pa := t.pa
	if pa == nil {
		return false, nil
	}
	changed := pa.DeepCopy()
	t.setStatus(&changed.Status, r.Now())
	if equality.Semantic.DeepEqual(pa.Status, changed.Status) {
		t.rec.status = nil
		return true, nil
	}
	if !allocation.Records(&pa.Status, &changed.Status) && r.yields(ctx, t) {
		return false, nil
	}
	patch, err := client.MergeFrom(pa).Data(changed)
	if err != nil {
		return false, fmt.Errorf("write the status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	answer, err := r.patchStatus(ctx, pa, patch)
	if apierrors.IsConflict(err) {
		now := &v1alpha1.PodAllocation{}
		switch err = r.Live.Get(ctx, client.ObjectKeyFromObject(pa), now); {
		case err != nil:
		case now.UID == pa.UID && equality.Semantic.DeepEqual(now.Status, pa.Status): // only the agent wrote
			answer, err = r.patchStatus(ctx, now, patch)
		default: // another controller wrote, and may know better: look again
			t.rec.declared, t.rec.status = nil, nil
			t.keep(s, now)
			t.Recheck(r.Now().Add(time.Second))
			return false, nil
		}
	}
	if t.rec.wrote = (kube.Stamp{}); err != nil {
		if client.IgnoreNotFound(err) != nil {
			err = fmt.Errorf("write the status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
		}
		return false, client.IgnoreNotFound(err)
	}
	t.keep(s, answer)
	t.rec.status, t.rec.wrote = nil, kube.StampOf(answer, answer.Status)
	return true, nil
}

// yields says whether a status is left for a while to another controller that has changed it: two that see things
// otherwise would write as fast as watches tell them. What came of a resize, and declared limits, are always written.
func (r *Reconciler) yields(ctx context.Context, t *task) bool {
	if t.rec.status != nil || t.Record != nil {
		return false
	}
	key := "contest " + allocation.Key(t.pod).String()
	until := r.backoffs.Waits(r.Now(), key)
	if until.IsZero() && t.rec.wrote.Contested(kube.StampOf(t.pa, t.pa.Status)) {
		until, t.rec.wrote = r.done(ctx, t.pod, key, kube.ErrContested), kube.Stamp{}
	}
	t.Recheck(until)
	return !until.IsZero()
}

// patchStatus changes the status of this version of a PodAllocation, and of no later one: a leader that
// was frozen must not overwrite what its successor has recorded.
func (r *Reconciler) patchStatus(
	ctx context.Context, pa *v1alpha1.PodAllocation, patch []byte,
) (*v1alpha1.PodAllocation, error) {
	patch, err := kube.ForVersion(patch, pa)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Name}}
	raw := client.RawPatch(types.MergePatchType, patch)
	return answer, r.Client.Status().Patch(ctx, answer, raw, client.FieldOwner(kube.FieldManager))
}

// setStatus puts what the task changes into a status. A newer generation of spec that changes nothing
// else is not worth a write for each pod and decision: the next change carries it.
func (t *task) setStatus(s *v1alpha1.PodAllocationStatus, now time.Time) {
	allocation.SetStatus(s, t.Status)
	allocation.SetConditions(s, now)
	allocation.SetBoostFault(s, t.boostFault, now)
	if !equality.Semantic.DeepEqual(t.pa.Status, *s) {
		s.ObservedGeneration = t.pa.Generation
		allocation.SetConditions(s, now)
		allocation.SetBoostFault(s, t.boostFault, now)
	}
}

// skips are the reasons to skip a resize that get an event, and its type.
var skips = map[reasons.Reason]string{
	reasons.ExternalChange: corev1.EventTypeNormal, reasons.WaitingForQuota: corev1.EventTypeNormal,
	reasons.ConflictingWriter: corev1.EventTypeWarning, reasons.DeclaredLimitUnknown: corev1.EventTypeWarning,
	reasons.LimitRangeRefused: corev1.EventTypeWarning, reasons.AdmissionWouldMutate: corev1.EventTypeWarning,
	reasons.QuotaNeedsLimits: corev1.EventTypeWarning,
}

// observe sends an event where the pod's owner may ask what happened, and measures a resize that took place.
func (r *Reconciler) observe(s *snapshot, t *task) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	state := string(t.Status.Reason)
	tell := func(kind string, reason reasons.Reason, action, note string) {
		r.event(s, t, events.Event{Type: kind, Reason: string(reason), Action: action, Note: note, State: state})
	}
	for _, e := range t.rec.events.Unsent(state) {
		r.event(s, t, e)
	}
	before := lifecycle.Status{}
	if t.pa != nil {
		before = allocation.StatusOf(&t.pa.Status)
	}
	if t.Done && !t.rec.decidedAt.IsZero() {
		r.Metrics.Done.Observe(s.now.Sub(t.rec.decidedAt).Seconds())
		t.rec.decidedAt = time.Time{}
	}
	if t.Harm != "" {
		r.Metrics.Harmful.WithLabelValues(string(t.Harm)).Inc()
	}
	if harm := t.Status.LastHarmfulDecrease; !harm.IsZero() && !harm.Equal(before.LastHarmfulDecrease) {
		why := reasons.UnhealthyAfterDecrease
		tell(warning, why, "Rollback", why.Sentence())
	}
	switch reason := t.Status.Reason; {
	case t.Done && len(t.facts.Declared) > 0:
		tell(normal, "CPUResized", "Resize", "CPU limits are "+t.facts.Current().String())
	case t.Status.Phase == lifecycle.PhaseFailed && (before.Reason != reason || before.Phase != lifecycle.PhaseFailed):
		tell(warning, reason, "Resize", t.Status.Message)
	case before.Reason != reason && (reason == reasons.StartFailed || reason == reasons.PodQuotaDiffers):
		tell(warning, reason, "Resize", t.Status.Message)
	case before.Reason != reason && skips[reason] != "":
		tell(skips[reason], reason, "SkipResize", t.Status.Message)
	}
	if why := reasons.InvalidStartupBoost; t.Create && t.boostFault != "" {
		tell(warning, why, "SkipResize", lifecycle.Sentence(why, t.boostFault))
	}
	if vpa := t.facts.Excluded; vpa.Reason == reasons.ManagedByVPA && t.pa != nil {
		tell(normal, vpa.Reason, "SkipResize", lifecycle.Sentence(vpa.Reason, vpa.Detail))
	}
	told := s.told.Constraints(t.pod.UID)
	if why := t.NoDecrease; why != "" && (told == nil || told.NoDecrease != string(why)) {
		kind := normal
		if why == reasons.UnhealthyAfterDecrease {
			kind = warning
		}
		tell(kind, why, "SkipResize", why.Sentence())
	}
}

// event sends an event, unless one of the same reason was sent just now. One that was dropped is sent at
// a later look, if the pod is still in the state that it tells of.
func (r *Reconciler) event(s *snapshot, t *task, e events.Event) {
	if !t.rec.events.Due(e.Reason, s.now) {
		return
	}
	about := events.About{Pod: t.pod}
	if t.pa != nil {
		pa := t.pa.DeepCopy()
		pa.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodAllocation"))
		about.Related = pa
	}
	if !t.rec.events.Send(r.Events, about, e, s.now) {
		t.Recheck(s.now.Add(r.jitter(events.SendAgain)))
	}
}

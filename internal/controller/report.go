package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// report writes what changed: statuses, events and metrics. It says whether a status could not be written.
func (r *Reconciler) report(ctx context.Context, s scene, tasks []Task) (failed bool) {
	written := make([]*Task, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Pod.Pod == nil || t.Delete {
			continue
		}
		r.tell(s, t)
		written = append(written, t)
	}
	r.Metrics.node(s.Node.Name, tasks)
	return r.forEach(ctx, written, func(t *Task) error { return r.write(ctx, s, t) })
}

// write stores the task's status if it differs from what the allocation says. A newer generation of spec that changes nothing else
// is not worth a write for each pod and decision: the next change carries it.
func (r *Reconciler) write(ctx context.Context, s scene, t *Task) error {
	pa := t.Pod.PA
	if pa == nil {
		return nil
	}
	observed := t.Status.ObservedGeneration
	if t.Status.Reason != string(reasons.DecisionTooOld) { // a question to the agent, about the generation that it names
		t.Status.ObservedGeneration = pa.Status.ObservedGeneration
	}
	conditions(&t.Status, r.Now())
	if equality.Semantic.DeepEqual(pa.Status, t.Status) {
		return nil
	}
	t.Status.ObservedGeneration = observed
	conditions(&t.Status, r.Now())
	changed := pa.DeepCopy()
	changed.Status = *t.Status.DeepCopy()
	patch, err := statusPatch("PodAllocation", pa, changed)
	if err != nil {
		return err
	}
	answer := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Name}}
	err = r.Client.Status().Patch(ctx, answer, patch, client.FieldOwner(kube.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	if err == nil {
		r.hold(s, t, answer)
	}
	return nil
}

// statusPatch changes the status and nothing else, of this very object: its UID guards against one
// that was made anew, while the agent may write the spec at the same time.
func statusPatch(kind string, from, to client.Object) (client.Patch, error) {
	data, err := client.MergeFrom(from).Data(to)
	if err != nil {
		return nil, fmt.Errorf("status of %s %s/%s: %w", kind, from.GetNamespace(), from.GetName(), err)
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("status of %s %s/%s: %w", kind, from.GetNamespace(), from.GetName(), err)
	}
	patch["metadata"] = map[string]any{"uid": from.GetUID()}
	if data, err = json.Marshal(patch); err != nil {
		return nil, fmt.Errorf("status of %s %s/%s: %w", kind, from.GetNamespace(), from.GetName(), err)
	}
	return client.RawPatch(types.MergePatchType, data), nil
}

// conditions says the same as phase and reason in the form that generic tools read.
func conditions(s *v1alpha1.PodAllocationStatus, now time.Time) {
	set := func(kind string, status metav1.ConditionStatus) {
		reason := s.Reason
		if reason == "" {
			reason = string(reasons.NoDecisionYet)
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: s.Message,
			ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
		})
	}
	ready := metav1.ConditionFalse
	if s.Phase == v1alpha1.PhaseApplied || s.Phase == v1alpha1.PhaseRestored {
		ready = metav1.ConditionTrue
	}
	set("Ready", ready)
	switch {
	case s.LastAppliedTime == nil:
	case ready == metav1.ConditionTrue:
		set("Actuated", metav1.ConditionTrue)
	case s.Phase == v1alpha1.PhaseFailed, s.Phase == v1alpha1.PhasePending:
		set("Actuated", metav1.ConditionFalse)
	}
}

// quiet is how long an event of the same reason is not repeated for a pod.
const quiet = 10 * time.Minute

// tell sends an event where the pod's owner may ask what happened, and observes a resize that was carried out.
func (r *Reconciler) tell(s scene, t *Task) {
	before := statusOf(t.Pod.PA)
	rec := r.memory.of(s.Node.Name, t.Pod.Pod.UID)
	if t.Done && !rec.decidedAt.IsZero() {
		r.Metrics.done.Observe(s.Now.Sub(rec.decidedAt).Seconds())
		r.memory.change(s.Node.Name, t.Pod.Pod.UID, func(rec *record) { rec.decidedAt = time.Time{} })
	}
	if hurt := t.Status.Rollback.LastHarmfulDecreaseTime; hurt != nil && !hurt.Equal(before.Rollback.LastHarmfulDecreaseTime) {
		r.event(s, t, corev1.EventTypeWarning, string(reasons.UnhealthyAfterDecrease), "Undo", sentence(reasons.UnhealthyAfterDecrease, ""))
	}
	switch reason := t.Status.Reason; {
	case t.Done && len(t.Pod.Declared) > 0:
		r.event(s, t, corev1.EventTypeNormal, "CPUResized", "Resize", "CPU limits are "+kube.LimitsText(current(t.Pod)))
	case t.Status.Phase == v1alpha1.PhaseFailed && (before.Reason != reason || before.Phase != v1alpha1.PhaseFailed):
		r.event(s, t, corev1.EventTypeWarning, reason, "Resize", t.Status.Message)
	case before.Reason != reason && telling[reasons.Reason(reason)] != "":
		r.event(s, t, telling[reasons.Reason(reason)], reason, "SkipResize", t.Status.Message)
	}
	if t.Pod.VPA != "" && t.Pod.PA != nil {
		r.event(s, t, corev1.EventTypeNormal, string(reasons.ManagedByVPA), "SkipResize", sentence(reasons.ManagedByVPA, t.Pod.VPA))
	}
	if why := noDecreaseOf(t.Status); why != "" && why != noDecreaseOf(before) {
		kind := corev1.EventTypeNormal
		if why == reasons.UnhealthyAfterDecrease {
			kind = corev1.EventTypeWarning
		}
		r.event(s, t, kind, string(why), "SkipResize", why.Sentence())
	}
}

// telling are the reasons to leave a pod alone that its owner is told of, and how.
var telling = map[reasons.Reason]string{
	reasons.ExternalChange: corev1.EventTypeNormal, reasons.WaitingForQuota: corev1.EventTypeNormal,
	reasons.ConflictingWriter: corev1.EventTypeWarning, reasons.DeclaredLimitUnknown: corev1.EventTypeWarning,
	reasons.LimitRangeRefused: corev1.EventTypeWarning, reasons.AdmissionWouldMutate: corev1.EventTypeWarning, reasons.QuotaNeedsLimits: corev1.EventTypeWarning,
}

// noDecreaseOf is why the terms do not let the pod be lowered; "" where they do.
func noDecreaseOf(s v1alpha1.PodAllocationStatus) reasons.Reason {
	if s.Constraints == nil {
		return ""
	}
	return reasons.Reason(s.Constraints.NoDecrease)
}

func (r *Reconciler) event(s scene, t *Task, kind, reason, action, note string) {
	if last := r.memory.of(s.Node.Name, t.Pod.Pod.UID).events[reason]; !last.IsZero() && s.Now.Sub(last) < quiet {
		return
	}
	r.memory.change(s.Node.Name, t.Pod.Pod.UID, func(rec *record) {
		sent := map[string]time.Time{reason: s.Now}
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
	var related *v1alpha1.PodAllocation
	if t.Pod.PA != nil {
		related = t.Pod.PA.DeepCopy()
		related.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodAllocation"))
	}
	if related == nil {
		r.Events.Eventf(t.Pod.Pod, nil, kind, reason, action, "%s", note)
		return
	}
	r.Events.Eventf(t.Pod.Pod, related, kind, reason, action, "%s", note)
}

// audit writes the line of one attempt.
func (r *Reconciler) audit(s scene, t *Task, result podresize.Result, took time.Duration) {
	price, generation, why := "", int64(0), string(t.Why)
	if pa := t.Pod.PA; pa != nil {
		generation = pa.Generation
		if pa.Spec.Decision != nil {
			price = pa.Spec.Decision.Price.String()
			if t.Purpose == Allocate {
				why = "BoundBy" + string(pa.Spec.Decision.BoundBy)
			}
			r.Metrics.age.Observe(max(0, s.Now.Sub(pa.Spec.Decision.ObservedAt.Time).Seconds()))
		}
	}
	if t.Purpose == Revert {
		why = t.Status.Reason
	}
	from, to := map[string]cpu.Milli{}, map[string]cpu.Milli{}
	for _, c := range t.Move.Changes {
		from[c.Container], to[c.Container] = c.From, c.To
	}
	pod := t.Pod.Pod
	r.Audit.Info("resize", "actor", kube.FieldManager, "namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID, "node", s.Node.Name,
		"from", from, "to", to, "price", price, "generation", generation, "purpose", t.Purpose,
		"reason", why, "outcome", result.Outcome.String(), "message", result.Message, "latency", took.Seconds())
	r.Metrics.resizes.WithLabelValues(string(t.Purpose), result.Outcome.String()).Inc()
}

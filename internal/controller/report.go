package controller

import (
	"context"
	"fmt"
	"time"

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
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// report writes what changed: statuses, events and metrics. It says whether a status could not be
// written.
func (r *Reconciler) report(ctx context.Context, s *snapshot, tasks []*task) (failed bool) {
	var kept []*task
	for _, t := range tasks {
		if !t.Delete {
			r.observe(s, t)
			kept = append(kept, t)
		}
	}
	r.Metrics.node(s.node.name, kept)
	return r.forEach(ctx, kept, func(t *task) error { return r.write(ctx, s, t) })
}

// write stores the task's status if it differs from the stored one.
func (r *Reconciler) write(ctx context.Context, s *snapshot, t *task) error {
	pa := t.pa
	if pa == nil {
		return nil
	}
	status := t.status(r.Now())
	if equality.Semantic.DeepEqual(pa.Status, status) {
		return nil
	}
	changed := pa.DeepCopy()
	changed.Status = status
	patch, err := client.MergeFrom(pa).Data(changed)
	if err == nil { // the agent may write the spec at the same time
		patch, err = kube.ForUID(patch, pa.UID)
	}
	if err != nil {
		return fmt.Errorf("status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	answer := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Name}}
	err = r.Client.Status().Patch(ctx, answer, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	if err == nil {
		r.keep(s, t, answer)
	}
	return nil
}

// setConditions says the same as phase and reason in the form that generic tools read.
func setConditions(s *v1alpha1.PodAllocationStatus, now time.Time) {
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

// audit writes the line of one attempt.
func (r *Reconciler) audit(s *snapshot, t *task, result podresize.Result, took time.Duration) {
	price, generation, why := "", int64(0), string(t.Why)
	if pa := t.pa; pa != nil {
		generation = pa.Generation
		if pa.Spec.Decision != nil {
			price = pa.Spec.Decision.Price.String()
			if t.Purpose == lifecycle.Allocate {
				why = "BoundBy" + string(pa.Spec.Decision.BoundBy)
			}
			r.Metrics.age.Observe(max(0, s.now.Sub(pa.Spec.Decision.ObservedAt.Time).Seconds()))
		}
	}
	if t.Purpose == lifecycle.Revert {
		why = string(t.Status.Reason)
	}
	from, to := map[string]cpu.Milli{}, map[string]cpu.Milli{}
	for _, c := range t.Move.Changes {
		from[c.Container], to[c.Container] = c.From, c.To
	}
	r.Audit.Info("resize", "actor", kube.FieldManager,
		"namespace", t.pod.Namespace, "pod", t.pod.Name, "uid", t.pod.UID, "node", s.node.name,
		"from", from, "to", to, "price", price, "generation", generation, "purpose", t.Purpose,
		"reason", why, "outcome", result.Outcome.String(), "message", result.Message, "latency", took.Seconds())
	r.Metrics.resizes.WithLabelValues(string(t.Purpose), result.Outcome.String()).Inc()
}

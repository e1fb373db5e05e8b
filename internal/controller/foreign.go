package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

// standBack handles limits that we did not write: they become the declared ones, and the pod is left
// alone for a while.
func (t *Task) standBack(cfg Config, v View) bool {
	p := t.Pod
	if adopted, foreign := adopt(p); foreign {
		reason, hold := reasons.ExternalChange, cfg.ExternalChangeHoldOff
		if t.contested(cfg, v.Now) {
			reason, hold = reasons.ConflictingWriter, cfg.RollbackHoldOff
		}
		now, retry := metav1.NewMicroTime(v.Now), metav1.NewMicroTime(v.Now.Add(hold))
		t.Status.LastExternalChangeTime, t.Status.Rollback.Limits, t.Status.Rollback.WindowStart = &now, nil, nil
		t.Record = adopted
		t.Status.DeclaredLimits, t.Status.Retry.Time, t.Status.Retry.Failures = adopted, &retry, 0
		t.applied(current(p))
		t.hold(v1alpha1.PhaseNotApplied, reason)
		t.sooner(retry.Time)
		if p.Mode == kube.ModeRestore { // then they are the limits to be restored, and may be in force
			t.sooner(v.Now.Add(time.Second))
		}
		return true
	}
	if r := t.Status.Retry.Time; standsBack(t.Status.Reason) && r != nil {
		if v.Now.Before(r.Time) {
			t.sooner(r.Time)
			return p.Mode != kube.ModeRestore // the declared limits are already in force
		}
		t.settle()
	}
	return false
}

// standsBack says whether the reason is that somebody else changed the limits.
func standsBack(reason string) bool {
	return reason == string(reasons.ExternalChange) || reason == string(reasons.ConflictingWriter)
}

// contested says whether somebody else changed the limits again, after we had moved them again, within an hour.
// Two changes in a row by the same hand are no fight.
func (t *Task) contested(cfg Config, now time.Time) bool {
	last, moved := t.Status.LastExternalChangeTime, t.Status.LastAppliedTime
	return last != nil && now.Sub(last.Time) < cfg.ConflictWindow && moved != nil && moved.After(last.Time)
}

// adopt is what is declared after somebody else's change; foreign is false where there was none. A
// container's limit was changed by somebody else when it is neither what we last applied nor written by us.
func adopt(p Pod) (declared []v1alpha1.ContainerLimit, foreign bool) {
	limits, applied, mine := byName(current(p)), byName(p.Declared), kube.MaybeOurs(p.Pod)
	if p.PA != nil {
		for _, l := range p.PA.Status.AppliedLimits {
			applied[l.Name] = l.CPULimit
		}
	}
	for _, d := range p.Declared {
		l, ok := limits[d.Name]
		if ok && l != applied[d.Name] && !mine[d.Name] {
			d.CPULimit, foreign = l, true
		}
		declared = append(declared, d)
	}
	return declared, foreign
}

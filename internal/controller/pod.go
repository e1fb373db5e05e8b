package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/liveness"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/quota/shares"
	"github.com/mbcas/mbcas/internal/restore"
)

// podState is one pod with what acting on it needs beyond the decision.
type podState struct {
	pod         *corev1.Pod
	pa          *v1alpha1.PodAllocation // nil: none
	boostFault  string                  // what is wrong with the start-up boost; "": nothing
	stray       bool                    // pod stands for one that the cache does not show on the node
	unseen      bool                    // it has a PodAllocation, which was not known at this look
	constraints v1alpha1.Constraints
	admission   dispatch.Admission
	facts       lifecycle.Pod
	rec         *record
}

// task is what to do about one pod.
type task struct {
	lifecycle.Task
	*podState
	request *dispatch.Request // of the resize; nil: it is not to be made now
}

// pod gathers what is known of one pod; nil for a pod of which nothing can be said yet. looked is when
// its node was last looked at.
func (r *Reconciler) pod(
	ctx context.Context, s *snapshot, cached *corev1.Pod, pa *v1alpha1.PodAllocation, looked time.Time,
) (*podState, error) {
	rec := s.memory.records[cached.UID]
	if rec == nil {
		rec = &record{}
		if !s.memory.existed[cached.UID] { // the kubelet's date of an older pod is believed
			rec.dates.Looked(looked)
		}
	}
	sent, queued := r.follow(s, rec, cached.UID)
	p := &podState{rec: rec}
	p.pod, p.pa = rec.newest(cached, pa, s.now)
	n, err := r.gatherNamespace(ctx, s, cached.Namespace)
	if err != nil || n.meta == nil {
		return nil, err
	}
	excluded := s.exclusion(n, p.pod, r.Config.Namespace)
	if excluded.Reason != "" && p.pa == nil && len(kube.WrittenByMBCAS(p.pod)) == 0 {
		p.facts.Excluded, s.kept[cached.UID] = excluded, false
		return p, nil
	}
	s.memory.records[cached.UID] = rec
	declared, err := r.declaredLimits(ctx, s, p)
	if err != nil {
		return nil, err
	}
	if declared != nil && sent == nil && inDoubt(p, declared) {
		if err := r.reread(ctx, p); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
	}
	hpa := r.constrain(p, n, s.told.Constraints(p.pod.UID), declared)
	p.admission = dispatch.Admission{Ranges: dispatch.Versions(n.LimitRanges), Quotas: shares.Rooms(n.Quotas, p.pod)}
	p.facts = allocation.Facts(p.pod, declared, s.node.allocatable, &p.constraints)
	f := &p.facts
	f.Mode, f.Excluded, f.UnknownAutoscaler, f.HPA = lifecycle.Mode(n.mode), excluded, s.unknownAutoscaler(n, p.pod), hpa
	f.StartupBoost, p.boostFault = s.startupBoost(n, p.pod)
	f.NotPublished = r.memory.told.Unpublished(s.node.name, p.pod.UID)
	f.Evicted, f.LatestWins = evicted(p.pod, s.node.evicting), s.latestWins(p.pod)
	f.QuotaShort, f.Sent, f.Queued = n.shares.Shares[p.pod.UID].By != nil, sent, queued
	f.InLedger = s.ledger.Has(p.pod.UID, declared)
	f.Refused.Reason, f.Refused.Detail = n.Refusal(p.pod)
	if f.Resolved = p.resolved(); p.rec.refused != nil && len(p.rec.refused.Quotas) > 0 {
		s.recheckAt = lifecycle.Earlier(s.recheckAt, r.quotas.Await(n.look, s.now))
	}
	if p.pa != nil {
		allocation.NoteOthers(f, p.pod, p.pa.CreationTimestamp)
		f.Recorded, f.Status = true, allocation.StatusOf(&p.pa.Status).Bounded(r.Config.Config, s.now)
		made, stood := p.decisionAge(s, r.Config.FreezeAfter)
		f.Decision = allocation.DecisionOf(p.pa, made, stood, rec.decision.Unconfirmed(!s.node.unconfirmed.Has(p.pod.UID), s.now))
	} else {
		rec.status = nil // of a PodAllocation that is gone
	}
	if rec.status != nil {
		f.Status = *rec.status
	}
	f.Progress, f.Said = podresize.Check(p.pod, kube.ByName(kube.Limits(p.pod)), p.pod.Generation)
	f.Quota, f.QuotasReported = s.node.market.QuotaOf(p.pod, s.now.Add(-s.node.LeaseAge))
	rec.dates.Translate(s.now, f.Dates()...)
	rec.Witness(f)
	f.Memory = rec.Memory
	return p, nil
}

// follow takes in what came of the resize of a pod, which is remembered whatever becomes of this look,
// and returns the one whose answer is awaited, and whether one waits for its turn. An answer of another
// tenure counts as lost: another replica may have dealt with the pod since.
func (r *Reconciler) follow(s *snapshot, rec *record, pod types.UID) (sent *actuator.Move, queued bool) {
	if z, answered := r.resizes.Take(pod); answered && z.Tenure == s.memory.tenure {
		s.memory.records[pod] = rec
		r.conclude(rec, z)
	}
	standing, _, z := r.resizes.Standing(pod)
	if standing == flowcontrol.Sent || standing == flowcontrol.Answered {
		return z.Move, false
	}
	return nil, standing == flowcontrol.Waiting
}

// unknownAutoscaler is what is not known of the autoscalers of a pod; "" where all is.
func (s *snapshot) unknownAutoscaler(n *namespaceState, pod *corev1.Pod) string {
	if n.unknownAutoscaler != "" {
		return n.unknownAutoscaler
	}
	unknown := n.FailedLookup(pod)
	if unknown != "" { // reconciled again when the target is asked again
		s.recheckAt = lifecycle.Earlier(s.recheckAt, s.now.Add(failedRetry))
	}
	return unknown
}

// exclusion is why the market may not manage the pod.
func (s *snapshot) exclusion(n *namespaceState, pod *corev1.Pod, system string) lifecycle.Cause {
	vpa, managed := n.VPAFor(pod)
	boost, _ := s.startupBoost(n, pod)
	reason, _ := eligibility.Eligible(eligibility.Pod{
		Pod: pod, Mode: n.mode, System: system, VPA: managed, Boost: boost > 0 && n.mode == kube.ModeEnforce,
	})
	c := lifecycle.Cause{Reason: reason}
	if reason == reasons.ManagedByVPA {
		c.Detail = vpa
	}
	return c
}

// constrain finds what other objects demand of decisions about the pod, of which its agent is told
// these constraints now. hpa says that an HPA scales it by its CPU usage.
func (r *Reconciler) constrain(
	p *podState, n *namespaceState, told *v1alpha1.Constraints, declared []v1alpha1.ContainerLimit,
) (hpa bool) {
	p.constraints, hpa = n.ConstraintsOf(p.pod, declared)
	n.shares.Shares[p.pod.UID].Constrain(&p.constraints)
	p.constraints.CoordinationPercent = r.coordinator.Factor(p.pod, told)
	if !n.signalsKnown && told != nil { // after a start, the last known demand holds
		p.constraints.DemandPercent, p.constraints.DemandBy = told.DemandPercent, told.DemandBy
	}
	return hpa
}

// decisionAge is the time since the agent made its decision, and since it is known to have stood by it: since the
// last renewal of its Lease, where that confirms it.
func (p *podState) decisionAge(s *snapshot, freeze time.Duration) (made, stood time.Duration) {
	if s.told[p.pod.UID] == nil {
		p.rec.untold = s.now
	}
	d := p.pa.Spec.Decision
	if d == nil {
		return 0, 0
	}
	made = p.rec.decision.Age(d.ObservedAt.Time, s.now, liveness.Believed(d.ObservedAt.Time, s.now, freeze))
	told := s.now.Sub(p.rec.untold) - kube.CacheLag // of a pod that it is not told of, the agent says nothing
	if !s.node.unconfirmed.Has(p.pod.UID) && s.node.LeaseAge < told {
		return made, min(made, s.node.LeaseAge)
	}
	return made, made
}

// inDoubt says whether another client, or this one before a restart, seems to have changed the pod. Two
// caches never show the same moment, so such a pod is read again.
func inDoubt(p *podState, declared []v1alpha1.ContainerLimit) bool {
	applied := declared
	if p.pa != nil && len(p.pa.Status.AppliedLimits) > 0 {
		applied = p.pa.Status.AppliedLimits
	}
	if yet := p.rec.status; yet != nil && len(yet.Applied) > 0 {
		applied = allocation.ContainerLimits(yet.Applied)
	}
	now := kube.LimitsOf(p.pod, declared)
	return !kube.Ended(p.pod) && !kube.SameLimits(applied, now) && !kube.TooLarge(now) // which no status has
}

// reread reads a pod from the API server itself.
func (r *Reconciler) reread(ctx context.Context, p *podState) error {
	fresh, err := dispatch.ReadLive(ctx, r.Live, p.pod)
	if err == nil {
		p.became(fresh, r.Now())
	}
	return err
}

// became takes in the pod as the API server returned it, trimmed. It is kept until the cache shows it too.
func (p *podState) became(pod *corev1.Pod, now time.Time) {
	p.pod, p.rec.pod, p.rec.podAt = pod, pod, now
}

// resolved says whether the objects by which the pod's last resize was refused have changed since,
// so that it need not wait to be tried again. Of a refusal from before our start only later changes
// are known.
func (p *podState) resolved() bool {
	if refused := p.rec.refused; refused != nil {
		return refused.Ranges != p.admission.Ranges || quota.Eased(refused.Quotas, p.admission.Quotas)
	}
	if p.pa != nil && !p.pa.Status.Retry.Time.IsZero() && dispatch.ByAdmission(reasons.Reason(p.pa.Status.Reason)) {
		p.rec.refused = ptr.To(p.admission)
	}
	return false
}

// declaredLimits finds and remembers the declared limits; nil: unknown, and not searched again for a minute.
func (r *Reconciler) declaredLimits(
	ctx context.Context, s *snapshot, p *podState,
) (declared []v1alpha1.ContainerLimit, err error) {
	if s.now.Sub(p.rec.unknownAt) < time.Minute {
		return nil, nil
	}
	if len(p.rec.declared) > 0 {
		if p.pa != nil && len(p.pa.Status.DeclaredLimits) > 0 { // perhaps by another leader
			p.rec.declared = p.pa.Status.DeclaredLimits
		}
		return p.rec.declared, nil
	}
	finder := restore.Finder{Live: r.Live, Namespace: r.Config.Namespace}
	found, err := finder.Find(ctx, p.pod, restore.Records{Allocation: p.pa, Ledger: s.ledger.Stored})
	if err != nil {
		return nil, err
	}
	if found.Allocation != nil {
		p.keep(s, found.Allocation)
	}
	p.rec.declared, p.rec.unknownAt = found.Limits, time.Time{}
	if found.Limits == nil {
		p.rec.unknownAt = s.now
	}
	return found.Limits, nil
}

// ledger reads the second record of the declared limits of the node.
func (r *Reconciler) ledger(ctx context.Context, s *snapshot) (restore.NodeLedger, error) {
	l := restore.NodeLedger{Namespace: r.Config.Namespace, Node: s.node.name, NodeUID: s.node.uid}
	key, cached := types.NamespacedName{Namespace: l.Namespace, Name: restore.LedgerName(l.Node)}, &corev1.ConfigMap{}
	switch err := r.Client.Get(ctx, key, cached); {
	case client.IgnoreNotFound(err) != nil:
		return l, fmt.Errorf("read ConfigMap %s, the record of declared limits: %w", key, err)
	case err != nil:
		cached = nil
	}
	l.Stored = s.memory.newest(cached, s.now)
	return l, nil
}

// record writes new declared limits to the ledger first. Where that fails, pods without a record wait.
func (r *Reconciler) record(ctx context.Context, s *snapshot, tasks []*task) {
	entries := map[types.UID]restore.Entry{}
	for _, t := range tasks {
		if t.Record != nil && !t.Record.Equal(t.facts.Declared) && (t.pa != nil || t.Create) {
			t.Record = nil // of an external change: the PodAllocation, which tells of the hold-off, comes first
			t.Recheck(s.now.Add(time.Second))
		}
		if t.Record != nil {
			limits := allocation.ContainerLimits(t.Record)
			entries[t.pod.UID] = restore.Entry{Namespace: t.pod.Namespace, Pod: t.pod.Name, Limits: limits}
		}
	}
	thing := "ledger " + s.node.name
	until := r.backoffs.Waits(s.now, thing)
	if until.IsZero() {
		stored, err := s.ledger.Write(ctx, r.Client, entries, s.kept)
		if err == nil && s.ledger.Orphaned() && !s.memory.adopted {
			s.memory.adopted = true
			s.ledger.Stored = stored
			if adopted, err := s.ledger.Adopt(ctx, r.Client); err == nil {
				stored = adopted
			} else {
				r.Log.Warn("an old record of declared limits outlives its node", "node", s.node.name, "err", err)
			}
		}
		until = r.done(ctx, &corev1.Pod{Spec: corev1.PodSpec{NodeName: s.node.name}}, thing, err)
		if stored != s.ledger.Stored {
			s.memory.ledger, s.memory.ledgerAt, s.ledger.Stored = stored, s.now, stored
		}
	}
	s.recheckAt = lifecycle.Earlier(s.recheckAt, until)
	var full error
	for _, t := range tasks {
		if t.Record == nil {
			continue
		}
		if limits := entries[t.pod.UID].Limits; until.IsZero() && s.ledger.Has(t.pod.UID, limits) {
			t.rec.declared = limits
			continue
		}
		if until.IsZero() {
			full = restore.ErrFull
		}
		_, others := restore.ReadEntry(s.ledger.Stored, t.pod.UID)
		t.AwaitRecord(t.facts.Status, others)
	}
	r.done(ctx, &corev1.Pod{Spec: corev1.PodSpec{NodeName: s.node.name}}, "full "+thing, full)
}

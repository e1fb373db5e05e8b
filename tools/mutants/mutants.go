package main

// The suites that catch mutants. Schedules play the whole controller; the others are of one package.
var (
	schedules = suite{"internal/controller", "^(TestSchedules|TestKnownSchedules|TestCrashes)$"}
	first     = suite{"internal/controller", "^TestTheAllocationHasTheRecordFirst$"}
	stale     = suite{"internal/controller", "^TestStaleMovesNothing$"}
	patches   = suite{"actuator/podresize", "^(TestNothingIsSent|TestRaisesOnlyWhatRuns)$"}
	restores  = suite{"internal/restore", "^TestWaitsForNoContainer$"}
	plans     = suite{"actuator", "."}
	rules     = suite{"internal/lifecycle", "."}
	lives     = suite{"internal/liveness", "."}
	extremes  = suite{"internal/controller", "^TestExtremeValues$"}
	refusals  = suite{"internal/controller", "^(TestARefusedPodIsLeftOut|TestATooLargePodIsLeftOut)$"}
	shares    = suite{"internal/quota/shares", "^TestLargestShares$"}
	amounts   = suite{"internal/allocation", "^TestLargestAmounts$"}
	texts     = suite{"internal/kube", "^(TestBadAnnotationNamesThePod|TestTrimBoundsAmounts)$"}
	published = suite{"internal/nodeallocation", "."}
	ledgers   = suite{"internal/restore", "Ledger"}
	bounds    = suite{"internal/constraints", "."}
	rates     = suite{"internal/flowcontrol", "."}
	waits     = suite{"internal/dispatch", "^TestLeavesUntried$"}
)

var mutants = []mutant{
	{
		"a resize names neither the UID nor the version of the pod", "actuator/podresize/patch.go",
		`metadata := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}`,
		`metadata := map[string]any{}`, schedules,
	},
	{
		"a resize does not look at the limit that it was decided at", "actuator/podresize/patch.go",
		`kube.Compare(limit, kube.Quantity(ch.From)) != 0:`,
		`kube.Compare(limit, kube.Quantity(ch.From)) != 0 && ch.From == 0:`, patches,
	},
	{
		"a container is raised that does not run", "internal/kube/pod.go",
		`c.Status.State.Running != nil && (!c.Sidecar`, `c.Status.State.Terminated == nil && (!c.Sidecar`, schedules,
	},
	{
		"a sidecar is raised before it has started", "internal/kube/pod.go",
		`(!c.Sidecar || ptr.Deref(c.Status.Started, false))`, `(!c.Sidecar || c.Status.Started != nil)`, schedules,
	},
	{
		"a restore waits for a container that has ended for good", "internal/kube/pod.go",
		`policy == corev1.RestartPolicyOnFailure && code == 0)`,
		`policy == corev1.RestartPolicyOnFailure && code != 0)`, schedules,
	},
	{
		"a restore does not wait for a container that failed", "internal/kube/pod.go",
		`policy == corev1.RestartPolicyOnFailure && code == 0)`,
		`policy == corev1.RestartPolicyOnFailure && code >= 0)`, restores,
	},
	{
		"a resize does not look at what runs", "actuator/podresize/patch.go",
		`case ch.To > ch.From && !c.Runs():`, `case ch.To > ch.From && !c.Runs() && ch.From == 0:`, patches,
	},
	{
		"a plan raises what does not run", "actuator/plan.go",
		`case change > 0 && c.NotRunning:`, `case change > 0 && c.NotRunning && c.Limit == 0:`, plans,
	},
	{
		"a planned restore raises what does not run", "actuator/plan.go",
		`case c.Limit < c.Declared && c.NotRunning:`, `case c.Limit < 0 && c.NotRunning:`, plans,
	},
	{
		"a rollback raises what does not run", "internal/lifecycle/rollback.go",
		`if c.Desired > c.Limit && !c.NotRunning {`, `if c.Desired > c.Limit {`, rules,
	},
	{
		"a revert raises what does not run", "internal/lifecycle/inflight.go",
		`if to != c.Limit && !(to > c.Limit && c.NotRunning) {`, `if to != c.Limit {`, rules,
	},
	{
		"an uninstall waits for what does not run", "internal/restore/declared.go",
		`case to < limit || c.Runs():`, `case to < limit || !c.Completed(pod.Spec.RestartPolicy):`, restores,
	},
	{
		"an uninstall does not name what ended meanwhile", "internal/restore/candidate.go",
		`if move.Raises() {`, `if move.Raises() && c.declared == nil {`, restores,
	},
	{
		"a wrong quota is not repaired", "internal/lifecycle/pod.go",
		`return q.CPU > 0 && q.Wanted > 0 && q.CPU != q.Wanted`,
		`return q.CPU > 0 && q.Wanted > 0 && q.CPU == q.Wanted`, schedules,
	},
	{
		"a container that cannot start keeps its limit", "internal/lifecycle/repair.go",
		`if !c.FailedStart || !s.ours(c) ||`, `if c.FailedStart || !s.ours(c) ||`, rules,
	},
	{
		"a container is lowered before its kubelet tried again", "internal/lifecycle/repair.go",
		`return !c.FailedAt.Before(since)`, `return !c.FailedAt.Before(since.Add(-time.Hour))`, rules,
	},
	{
		"a limit of another writer is repaired", "internal/lifecycle/repair.go",
		`return c.Own && s.pod.managed(c) }`, `return s.pod.managed(c) }`, rules,
	},
	{
		"a repair does not return", "internal/lifecycle/repair.go",
		`if !m.To.Equal(s.pod.Current()) ||`, `if m.To.Equal(s.pod.Current()) ||`, rules,
	},
	{
		"repairs in vain go on", "internal/lifecycle/repair.go",
		`if m.Made++; m.Made >= mostRepairs {`, `if m.Made++; m.Made >= 100*mostRepairs {`, rules,
	},
	{
		"a refused repair is tried again at once", "internal/lifecycle/repair.go",
		`case s.now.Before(m.RetryAt):`, `case s.now.Before(m.RetryAt) && m.Made > 9:`, rules,
	},
	{
		"a restore waits for a quota that nothing can mend", "internal/lifecycle/repair.go",
		`m.Made+m.Refusals < mostRepairs && s.repairable()`, `m.Made+m.Refusals < mostRepairs`, rules,
	},
	{
		"a pod that leaves is forgotten before its quota is known", "internal/lifecycle/restore.go",
		`case !s.knowsQuota():`, `case !s.knowsQuota() && s.now.IsZero():`, schedules,
	},
	{
		"a floor is published that no object can hold", "internal/constraints/builder.go",
		`if f := min(b.floors[d.Name], cpu.Largest); f > 0 {`, `if f := b.floors[d.Name]; f > 0 {`, extremes,
	},
	{
		"a ceiling is published that no object can hold", "internal/constraints/limitrange.go",
		`if !(ceiling <= float64(cpu.Largest)) {`, `if ceiling > 1000*float64(cpu.Largest) {`, extremes,
	},
	{
		"a pod is managed whose limits are too large", "internal/kube/pod.go",
		`|| Total(limits) > cpu.Largest`, `|| Total(limits) > 1000*cpu.Largest`, extremes,
	},
	{
		"a pod is managed that has too many containers", "internal/kube/pod.go",
		`len(limits) > v1alpha1.MaxContainers ||`, `len(limits) > 2*v1alpha1.MaxContainers ||`, extremes,
	},
	{
		"a pod of too large limits is published", "internal/controller/report.go",
		` && !t.facts.TooLarge:`, `:`, refusals,
	},
	{
		"the ceiling of max-cpu is rounded to none", "internal/constraints/bounds.go",
		`b.Ceiling = max(cpu.Quantum, own.RoundDown(cpu.Quantum))`, `b.Ceiling = own.RoundDown(cpu.Quantum)`, bounds,
	},
	{
		"the product of a request and a ratio overflows", "internal/constraints/limitrange.go",
		`if !(ceiling <= float64(cpu.Largest)) {`, `if ceiling != ceiling {`, bounds,
	},
	{
		"a share is a ceiling that no object can hold", "internal/quota/shares/shares.go",
		`if s.By == nil || s.Most > cpu.Largest {`, `if s.By == nil {`, shares,
	},
	{
		"a pod of too large limits has a share", "internal/quota/shares/shares.go",
		` && !kube.TooLarge(kube.Limits(pod)); c.managed`, `; c.managed`, shares,
	},
	{
		"a decision has a floor that no object can hold", "internal/allocation/allocation.go",
		`Floor: min(d.Floor, cpu.Largest)`, `Floor: d.Floor`, amounts,
	},
	{
		"a decision has a ceiling that no object can hold", "internal/allocation/allocation.go",
		`Ceiling: min(d.Ceiling, cpu.Largest)`, `Ceiling: d.Ceiling`, amounts,
	},
	{
		"a status has a limit that no object can hold", "internal/allocation/lifecycle.go",
		`return l.CPULimit > cpu.Largest })`, `return l.CPULimit > 1000*cpu.Largest })`, amounts,
	},
	{
		"a status has a sum that no object can hold", "internal/allocation/lifecycle.go",
		`new(min(s.Applied.Total(), cpu.Largest))`, `new(s.Applied.Total())`, amounts,
	},
	{
		"a pod is recorded whose limits are too large", "internal/allocation/lifecycle.go",
		`kube.TooLarge(kube.Limits(pod)) || kube.TooLarge(declared)`, `kube.TooLarge(declared)`, amounts,
	},
	{
		"a record is kept that is too large", "internal/allocation/lifecycle.go",
		`kube.TooLarge(kube.Limits(pod)) || kube.TooLarge(declared)`, `kube.TooLarge(kube.Limits(pod))`, amounts,
	},
	{
		"a long factor is read", "internal/kube/pod.go",
		`if len(text) <= 32 {`, `if len(text) <= 1<<20 {`, texts,
	},
	{
		"a long text is repeated in a message", "internal/kube/pod.go",
		`is %.64q: want a factor`, `is %q: want a factor`, texts,
	},
	{
		"a NodeAllocation has more pods than its schema takes", "internal/nodeallocation/refused.go",
		`len(pods)-len(out) <= v1alpha1.MaxNodePods {`, `len(pods)-len(out) <= 2*v1alpha1.MaxNodePods {`, published,
	},
	{
		"what the API server refuses is written again", "internal/nodeallocation/refused.go",
		`case r == nil || !now.Before(r.until):`, `case r == nil || !r.out || !now.Before(r.until):`, published,
	},
	{
		"what is stored of an earlier PodAllocation stays published", "internal/nodeallocation/refused.go",
		` || stored.AllocationUID != p.AllocationUID:`, `:`, published,
	},
	{
		"a write about other pods ends a refusal", "internal/nodeallocation/refused.go",
		`if !held[p.UID] {`, `if len(held) >= 0 {`, published,
	},
	{
		"a node with a refused pod is reconciled without a pause", "internal/nodeallocation/refused.go",
		`out[uid] = true; r.until.After(now) {`, `out[uid] = true; r.n > 0 {`, published,
	},
	{
		"a refusal hides a contest", "internal/nodeallocation/writer.go",
		`refused.Rest = errors.Join(err, refused.Rest)`, `_ = refused.Rest`, published,
	},
	{
		"a pod that is not published stays lowered", "internal/lifecycle/restore.go",
		`case s.pod.Mode == ModeEnforce && s.pod.NotPublished && s.lowered():`,
		`case s.pod.Mode == "" && s.pod.NotPublished && s.lowered():`, rules,
	},
	{
		"an amount is kept of which a sum takes seconds", "internal/kube/trim.go",
		`= Bounded(c.Resources.Limits), Bounded(c.Resources.Requests)`,
		`= Bounded(c.Resources.Limits), c.Resources.Requests`, texts,
	},
	{
		"a pod that the API server refuses holds up its node", "internal/controller/report.go",
		`if errors.As(err, &refused) {`, `if errors.As(err, &refused) && s.node.name == "" {`, refusals,
	},
	{
		"a NodeAllocation grows without a bound", "internal/nodeallocation/refused.go",
		`if total <= maxBytes && len(pods) <=`, `if total <= 10*maxBytes && len(pods) <=`, published,
	},
	{
		"the ledger grows without a bound", "internal/restore/ledger.go",
		`if total > mostBytes && more(uid) > 0 {`, `if total > 10*mostBytes && more(uid) > 0 {`, ledgers,
	},
	{
		"a pod is resized before its declared limits are in the ledger", "internal/controller/pod.go",
		`		_, others := restore.ReadEntry(s.ledger.Stored, t.pod.UID)
		t.AwaitRecord(t.facts.Status, others)`,
		`		t.rec.declared = entries[t.pod.UID].Limits`, schedules,
	},
	{
		"declared limits are not in the PodAllocation before the resize", "internal/controller/actuate.go",
		`	if t.Record != nil || t.Create {
		// The`, `	if t.Record != nil && t.Create && s == nil {
		// The`, first,
	},
	{
		"a limit that may be MBCAS's own is taken for the declared one", "internal/restore/find.go",
		`case recorded == nil && inLedger == nil && len(doubtful) == 0:
		return`, `case recorded == nil && inLedger == nil:
		return`, schedules,
	},
	{
		"the template of a pod's owner declares nothing", "internal/restore/find.go",
		`if limits[i].CPULimit = template[l.Name]; template[l.Name] == 0 {`,
		`if limits[i].CPULimit = template[l.Name]; template[l.Name] >= 0 {`, schedules,
	},
	{
		"a restore stops short of the declared limits", "internal/lifecycle/plan.go",
		`c.Declared = to.Of(c.Name); s.raiseOnly`, `c.Declared = to.Of(c.Name) + 50; s.raiseOnly`, schedules,
	},
	{
		"external changes are not seen", "internal/lifecycle/external.go",
		`c.Name && (c.Limit != applied || setBack) {`,
		`c.Name && (c.Limit != applied || setBack) && applied == 0 {`, schedules,
	},
	{
		"a limit that another client set back is taken for unchanged", "internal/lifecycle/external.go",
		`(c.Limit != applied || setBack)`, `(c.Limit != applied || setBack && applied == 0)`, schedules,
	},
	{
		"the cache does not tell when another client wrote a limit", "internal/kube/managedfields.go",
		`isOthersResize(m) && addCPULimits(m, names) && len(names) > 0 {`,
		`isOthersResize(m) && addCPULimits(m, names) && len(names) > 99 {`, schedules,
	},
	{
		"pods are resized in mode recommend", "internal/lifecycle/holdoff.go",
		`	if s.pod.Mode != ModeRecommend {
		return Cause{}`, `	if s.pod.Mode != "" {
		return Cause{}`, rules,
	},
	{
		"a pause is ignored", "internal/controller/reconcile.go",
		`if err == nil && state.Paused() {`, `if err == nil && state.Paused() && r.Config.Pods > 99 {`, schedules,
	},
	{
		"an old Lease does not freeze", "internal/lifecycle/holdoff.go",
		`when(s.node.LeaseAge >= s.cfg.FreezeAfter, reasons.AgentUnresponsive)`,
		`when(s.node.LeaseAge >= 99*s.cfg.FreezeAfter, reasons.AgentUnresponsive)`, rules,
	},
	{
		"a decision that its agent does not stand by is applied", "internal/lifecycle/plan.go",
		`s.pod.Decision != nil && s.pod.Decision.Age >= s.cfg.FreezeAfter }`,
		`s.pod.Decision != nil && s.pod.Decision.Age >= 99*s.cfg.FreezeAfter }`, rules,
	},
	{
		"a Lease confirms decisions about pods of which its agent is not told", "internal/controller/pod.go",
		`s.node.LeaseAge < told {`, `s.node.LeaseAge < told+1e18 {`, stale,
	},
	{
		"a renewal that the watch does not show confirms decisions", "internal/liveness/tracker.go",
		`		a.live = now
`, `		a.live, a.renewed, a.seen = now, renewed, now
`, lives,
	},
	{
		"a node is restored before its agent was silent for long", "internal/lifecycle/restore.go",
		`return n.Unresponsive(now) >= cfg.RestoreAfter && !n.Outage`,
		`return n.Unresponsive(now) >= cfg.FreezeAfter && !n.Outage`, rules,
	},
	{
		"a node is restored in an outage", "internal/lifecycle/restore.go",
		`>= cfg.RestoreAfter && !n.Outage && !n.LeaseUnread`, `>= cfg.RestoreAfter && !n.LeaseUnread`, rules,
	},
	{
		"a second decrease is sent while one is in flight", "internal/lifecycle/inflight.go",
		`	s.plan.InFlight = true
	return toPlan`, `	s.plan.InFlight = s.Status.LastDecrease.IsZero()
	return next`, rules,
	},
	{
		"an increase supersedes an increase", "internal/lifecycle/inflight.go",
		`!p.QuotaShort && s.Status.lowersOnly()`, `!p.QuotaShort`, rules,
	},
	{
		"a decrease supersedes a decrease", "actuator/plan.go",
		`s.Move != nil && !s.Move.Lowers()`, `s.Move != nil`, plans,
	},
	{
		"increases do not wait for decreases of a full node", "actuator/plan.go",
		`if full && decreasing && m != nil`, `if full && decreasing && len(pods) < 2 && m != nil`, plans,
	},
	{
		"limits fall in one step", "actuator/plan.go",
		`want < least {`, `want < least && least < 0 {`, plans,
	},
	{
		"a pod that must not be lowered is lowered", "internal/constraints/bounds.go",
		`	if constraints.NoDecrease != "" {
		kept`, `	if constraints.NoDecrease == "none" {
		kept`, bounds,
	},
	{
		"resizes are not bounded", "internal/flowcontrol/bucket.go",
		`func (b *bucket) take() { b.used++ }`, `func (b *bucket) take() {}`, rates,
	},
	{
		"an unchanged status is written", "internal/controller/report.go",
		`	if equality.Semantic.DeepEqual(pa.Status, changed.Status) {
		t.rec.status = nil`, `	changed.Status.Message += r.Now().Format(" 05")
	if equality.Semantic.DeepEqual(pa.Status, changed.Status) {
		t.rec.status = nil`, schedules,
	},
	{
		"a resize is made in another mode than that of its decision", "internal/dispatch/carry.go",
		`return mode == z.Mode, nil`, `return mode != "", nil`, waits,
	},
	{
		"a resize leaves no audit record", "internal/dispatch/carry.go",
		`	d.audit(z, started)
`, `	if !z.Answer.MayHaveChanged() {
		d.audit(z, started)
	}
`, schedules,
	},
}

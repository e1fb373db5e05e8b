package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/controller/requeue"
	"github.com/mbcas/mbcas/internal/coordinator/runner"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/liveness"
	"github.com/mbcas/mbcas/internal/markets"
	"github.com/mbcas/mbcas/internal/nodeallocation"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/quota/shares"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/sharding"
)

// Reconciler reconciles one node at a time.
type Reconciler struct {
	Config Config
	API
	Telemetry
	Gate *flowcontrol.Gate
	Now  func() time.Time

	memory      memory
	liveness    *liveness.Agents
	lookups     lookups
	requeue     requeue.Queues
	coordinator *runner.Runner
	quotas      *shares.Divider
	pacing
}

// API is how the controller reaches the API server.
type API struct {
	// Client reads from caches and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Resize carries resizes out.
	Resize podresize.Resizer
	// Replica divides the nodes over the replicas of the controller; nil: there is no other.
	Replica *sharding.Replica
	// ReadMetric reads a metric of a DemandSignal, as demandsignal.MetricsAPI.Read does; nil: there are
	// no DemandSignals.
	ReadMetric demandsignal.Reader
}

// Telemetry is how the controller tells what it does.
type Telemetry struct {
	Events events.EventRecorder
	Log    *slog.Logger
	// Audit gets one line per attempt to resize.
	Audit   *slog.Logger
	Metrics *metrics.Metrics
}

// pacing bounds resizes, by the budgets of the installation and where webhooks do not answer.
type pacing struct {
	resizes  *dispatch.Dispatcher
	statuses *flowcontrol.Spare // for those that can wait
	backoffs *flowcontrol.Backoffs
	jitter   func(time.Duration) time.Duration
}

// lookups find what other objects of a namespace demand of its pods.
type lookups struct {
	scaleTargets *autoscalers.ScaleTargets
	vpas         interface { // *autoscalers.VPAs
		List(ctx context.Context, namespace string) (list []constraints.VPA, unknown string, err error)
	}
	interval time.Duration // of the discovery of VPAs
	// percentages are those of the DemandSignals of a namespace; known is false until they are listed.
	percentages func(namespace string) (list []constraints.Signal, known bool)
}

// Init prepares a Reconciler whose exported fields are set.
func (r *Reconciler) Init() *Reconciler {
	c := r.Config
	r.Client, r.Resize = r.Replica.Client(r.Client), r.Replica.Resizer(r.Resize)
	now := func() time.Time { return r.Now() }
	r.jitter = func(d time.Duration) time.Duration { return d/2 + rand.N(d) }
	r.backoffs = flowcontrol.NewBackoffs(func(d time.Duration) time.Duration { return r.jitter(d) })
	r.memory.nodes, r.requeue = map[string]*nodeMemory{}, requeue.New()
	served := func() bool {
		closed, _ := r.Gate.Closed()
		return closed != reasons.CRDNotInstalled
	}
	r.memory.told = &nodeallocation.Writer{
		Client: r.Client, Now: now, Interval: nodeallocation.Interval, Tenure: r.Replica.Tenure, Served: served,
	}
	r.memory.markets = &markets.Markets{Leases: r.Client, Namespace: c.Namespace}
	r.quotas = &shares.Divider{
		Config: c.Quota, Client: r.Client,
		Allocations: func(ctx context.Context, namespace string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
			return r.allocations(ctx, client.InNamespace(namespace))
		},
		Told: r.memory.told.Told, Wake: r.wakeOwn,
	}
	r.lookups = lookups{
		scaleTargets: autoscalers.NewScaleTargets(r.Client, r.Log, now), vpas: &autoscalers.VPAs{}, interval: autoscalers.DiscoveryInterval,
		percentages: func(string) ([]constraints.Signal, bool) { return nil, true },
	}
	r.liveness = &liveness.Agents{
		Client: r.Client, Live: r.Live, Namespace: c.Namespace, FreezeAfter: c.FreezeAfter, RestoreAfter: c.RestoreAfter,
		Events: r.Events, Log: r.Log, Count: r.Metrics.Agents, Changed: r.outageChanged,
	}
	r.resizes, r.statuses = r.dispatcher(), flowcontrol.NewSpare(statusNodes)
	r.coordinator = &runner.Runner{
		Config: c.Coordinator, Interval: c.CoordinationInterval, Pods: r.Client, NodeField: nodeField,
		Now:     now,
		Fresh:   func(node string, now time.Time) bool { return r.liveness.Age(node, now) < c.FreezeAfter },
		Price:   r.memory.markets.Price,
		Requeue: r.requeue.Nodes, Log: r.Log,
	}
	return r
}

// AgentAge is the time since the agent of a node was last seen to renew its Lease.
func (r *Reconciler) AgentAge(node string) time.Duration { return r.liveness.Age(node, r.Now()) }

// SilentAfter is the age of a Lease from which its agent counts as unresponsive in metrics.
func (r *Reconciler) SilentAfter() time.Duration { return r.liveness.SilentAfter() }

// dispatcher is what carries resizes out.
func (r *Reconciler) dispatcher() *dispatch.Dispatcher {
	c := r.Config
	reservations := quota.NewReservations(c.Quota, c.Backoff, c.BackoffMax)
	return (&dispatch.Dispatcher{
		Resizer: r.Resize, Live: r.Live, Client: r.Client, DefaultMode: c.Mode, Gate: r.Gate, Suspended: r.suspended, Owns: r.Replica.Owns,
		Breakers:    flowcontrol.NewBreakers(func(d time.Duration) time.Duration { return r.jitter(d) }),
		Quotas:      dispatch.NewQuotas(r.Client, c.Actuator.DeadBand, reservations, r.ownedElsewhere),
		FreezeAfter: c.FreezeAfter,
		Answered:    func(ctx context.Context, node string) { r.requeue.Nodes(ctx, []string{node}) },
		Failed: func(ctx context.Context, pod *corev1.Pod, err error) {
			if ctx.Err() == nil { // the status of the pod says when the resize is tried again
				r.failed(pod, err, true)
			}
		},
		Now: func() time.Time { return r.Now() }, Audit: r.Audit, Metrics: r.Metrics,
	}).Init(c.Resizes)
}

// failedRetry is how soon a node is looked at again that was left half done.
const failedRetry = 5 * time.Second

// mostLooks is how often a node is looked at before its statuses are written, while newer decisions of its
// agent arrive. More lets statuses wait longer on a node whose agent decides all the time; fewer lets a
// throttled pod wait for the statuses of others.
const mostLooks = 4

// Reconcile brings one node to what its decisions call for: gather, decide, act, report. Decisions that arrive
// meanwhile come before reports. The queue would keep the low priority of a node that was listed at the start,
// also for its timers.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result := ctrl.Result{Priority: ptr.To(0)}
	tenure := r.Replica.Tenure(req.Name)
	if owner := r.Replica.Ownership(req.Name); owner != sharding.Owned {
		var err error
		result.RequeueAfter, err = r.watchOnly(ctx, req.Name, owner)
		return result, err
	}
	ctx = sharding.WithNode(ctx, req.Name)
	var s *snapshot
	var tasks []*task
	for looks := 1; ; looks++ {
		var err error
		if s, err = r.gather(ctx, req.Name, tenure); err != nil {
			return result, err
		}
		r.quotas.Left(req.Name, func(namespace string) bool { return s.namespaces[namespace] != nil })
		tasks = r.decide(ctx, s, lifecycle.Decide)
		s.memory.throttled.Store(slices.ContainsFunc(tasks, func(t *task) bool { return t.facts.NeedsMore() }))
		r.record(ctx, s, tasks)
		r.act(ctx, s, tasks)
		overtaken := func() bool { return looks < mostLooks && r.decidedSince(ctx, s) }
		if r.report(ctx, s, tasks, overtaken) {
			break
		}
	}
	r.tell(ctx, s, tasks)
	if ctx.Err() != nil {
		return result, fmt.Errorf("node %s is left half done: %w", req.Name, context.Cause(ctx))
	}
	result.RequeueAfter = after(r.Now(), s.recheckAt, tasks)
	return result, nil
}

// decidedSince says whether an agent has decided about a pod of the node anew since that was looked at.
func (r *Reconciler) decidedSince(ctx context.Context, s *snapshot) bool {
	allocations, err := r.allocations(ctx, client.MatchingFields{nodeField: s.node.name})
	return err == nil && slices.ContainsFunc(s.pods, func(p *podState) bool {
		now := allocations[allocation.Key(p.pod)]
		return p.pa != nil && now != nil && now.UID == p.pa.UID && now.Generation > p.pa.Generation
	})
}

// after is how long until the node, or one of the tasks, wants another look; 0: none does.
func after(now, again time.Time, tasks []*task) time.Duration {
	for _, t := range tasks {
		again = lifecycle.Earlier(again, t.RecheckAt)
	}
	if again.IsZero() {
		return 0
	}
	return max(again.Sub(now), time.Millisecond)
}

// done notes whether dealing with a pod, or with a part of it, succeeded. It counts an error, and logs a new one. The
// error is not returned: the whole node would wait for it. The thing waits until then; zero: it does not.
func (r *Reconciler) done(ctx context.Context, pod *corev1.Pod, thing string, err error) (until time.Time) {
	if err == nil {
		r.backoffs.Succeeded(thing)
		return time.Time{}
	}
	if ctx.Err() != nil || errors.Is(err, sharding.ErrMoved) { // that time is up is said once for the node
		return r.Now().Add(failedRetry)
	}
	until, news := r.backoffs.Failed(thing, err, r.Now())
	r.failed(pod, err, news)
	return until
}

// failed counts an error about a pod, and logs what is news.
func (r *Reconciler) failed(pod *corev1.Pod, err error, news bool) {
	var p *flowcontrol.Panic
	if errors.As(err, &p) {
		r.Metrics.Panics.Inc()
		r.Log.Error("panic", "value", p.Value, "stack", p.Stack)
	}
	if news {
		r.Log.Error("pod not dealt with",
			"namespace", pod.Namespace, "pod", pod.Name, "node", pod.Spec.NodeName, "err", err)
	}
	r.Metrics.Errors.Inc()
}

// nodeField is the field by which pods and allocations are listed.
const nodeField = "spec.nodeName"

// snapshot is one node as a reconcile sees it.
type snapshot struct {
	now  time.Time
	node nodeState
	pods []*podState
	// strays are the PodAllocations of this node whose pod is not on it.
	strays []*task
	memory *nodeMemory

	told         nodeallocation.Told // what the agent is told
	leftOut      []types.UID         // pods that are not in pods
	ledger       restore.NodeLedger
	exists, kept map[types.UID]bool // pods; kept: those of which the record is needed
	namespaces   map[string]*namespaceState
	recheckAt    time.Time // when to reconcile again whatever the tasks want; zero: no need
}

// gather reads what is known of a node: caches, our own last writes, in doubt the API server.
func (r *Reconciler) gather(ctx context.Context, name string, tenure int) (*snapshot, error) {
	s := &snapshot{now: r.Now(), exists: map[types.UID]bool{}, kept: map[types.UID]bool{}, namespaces: map[string]*namespaceState{}}
	var err error
	if s.node, err = r.node(ctx, name, s.now); err != nil {
		return nil, err
	}
	if s.node.Suspended, err = r.suspended(ctx); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := r.list(ctx, &pods, client.MatchingFields{nodeField: name}); err != nil {
		return nil, err
	}
	if s.node.LeaseUnread {
		s.recheckAt = lifecycle.Earlier(s.recheckAt, s.now.Add(failedRetry))
	}
	allocations, err := r.allocations(ctx, client.MatchingFields{nodeField: name})
	if err != nil {
		return nil, err
	}
	if s.node.unconfirmed, err = r.memory.markets.Unconfirmed(ctx, name, allocations, s.now); err != nil {
		return nil, err
	}
	s.node.market = r.memory.markets.Last(name)
	if s.told, err = r.memory.told.Told(ctx, name); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		s.exists[pods.Items[i].UID], s.kept[pods.Items[i].UID] = true, !kube.Ended(&pods.Items[i])
	}
	s.memory = r.memory.of(name, tenure, s.exists, len(allocations))
	looked := s.memory.dates.LastLook()
	s.memory.dates.Translate(s.now, &s.node.ReadySince)
	s.drain(pods.Items)
	if s.ledger, err = r.ledger(ctx, s); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		key := allocation.Key(pod)
		pa := allocations[key]
		delete(allocations, key)
		if p := r.podApart(ctx, s, pod, pa, looked); p != nil {
			s.pods = append(s.pods, p)
		} else {
			s.leftOut = append(s.leftOut, pod.UID)
		}
	}
	s.addStrays(allocations)
	s.memory.existed = s.exists
	r.saw(name, s.node.allocatable > 0 || len(s.exists)+len(allocations) > 0)
	return s, nil
}

// saw notes whether a node exists. One that does not is forgotten.
func (r *Reconciler) saw(node string, exists bool) {
	r.Replica.ObserveNode(node, exists)
	if !exists {
		r.liveness.Drop(node)
		r.memory.markets.Drop(node)
		r.memory.told.Drop(node)
	}
}

// podApart gathers what is known of one pod; nil for one that is left out. The others do not wait for it.
func (r *Reconciler) podApart(
	ctx context.Context, s *snapshot, pod *corev1.Pod, pa *v1alpha1.PodAllocation, looked time.Time,
) (p *podState) {
	thing := "read " + allocation.Key(pod).String()
	until := r.backoffs.Waits(s.now, thing)
	if until.IsZero() {
		until = r.done(ctx, pod, thing, flowcontrol.Guard(func() (err error) {
			p, err = r.pod(ctx, s, pod, pa, looked)
			return err
		}))
	}
	s.recheckAt = lifecycle.Earlier(s.recheckAt, until)
	return p
}

// addStrays has PodAllocations deleted that have belonged to no pod of the node for a while.
func (s *snapshot) addStrays(allocations map[types.NamespacedName]*v1alpha1.PodAllocation) {
	seen := make(map[types.UID]time.Time, len(allocations))
	for _, pa := range allocations {
		since, ok := s.memory.strays[pa.UID]
		if !ok {
			since = s.now
		}
		seen[pa.UID] = since
		if due := since.Add(kube.CacheLag); s.now.Before(due) {
			s.recheckAt = lifecycle.Earlier(s.recheckAt, due)
		} else {
			s.strays = append(s.strays, stray(pa))
		}
	}
	s.memory.strays = seen
}

// stray has a PodAllocation deleted that belongs to no pod of the node.
func stray(pa *v1alpha1.PodAllocation) *task {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: pa.Spec.NodeName}}
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Spec.PodRef.Name, UID: types.UID(pa.Name)}
	return &task{Task: lifecycle.Task{Delete: true}, podState: &podState{pod: pod, pa: pa, stray: true, rec: &record{}}}
}

// decide returns the tasks of the node, in the order in which to do them.
func (r *Reconciler) decide(ctx context.Context, s *snapshot, decide decider) []*task {
	tasks := flowcontrol.Isolate(s.pods, func(pods []*podState) (tasks []*task) {
		facts := make([]lifecycle.Pod, len(pods))
		for i, p := range pods {
			facts[i] = p.facts
		}
		for _, t := range decide(r.Config.Config, s.node.Node, facts, s.now) {
			tasks = append(tasks, &task{Task: t, podState: pods[t.Pod]})
		}
		return tasks
	}, func(p *podState, err error) { // it is looked at again, and the agent is told of it what it was
		s.recheckAt = lifecycle.Earlier(s.recheckAt, r.done(ctx, p.pod, "decide "+allocation.Key(p.pod).String(), err))
		s.leftOut = append(s.leftOut, p.pod.UID)
	})
	return append(tasks, s.strays...)
}

// decider is lifecycle.Decide.
type decider func(lifecycle.Config, lifecycle.Node, []lifecycle.Pod, time.Time) []lifecycle.Task

// suspended is why nothing may be resized anywhere; "" where resizes are possible.
func (r *Reconciler) suspended(ctx context.Context) (reasons.Reason, error) {
	if reason, _ := r.Gate.Closed(); reason != "" {
		return reason, nil
	}
	state, err := restore.ReadState(ctx, r.Client, r.Config.Namespace)
	if err == nil && state.Paused() {
		return reasons.Paused, nil
	}
	return "", err
}

// list reads objects from the cache. They are shared: nothing changes them.
func (r *Reconciler) list(ctx context.Context, list client.ObjectList, of client.ListOption) error {
	if err := r.Client.List(ctx, list, of, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list %T of %v: %w", list, of, err)
	}
	return nil
}

// allocations are the PodAllocations of a node or a namespace. While their CRD is not installed there are none.
func (r *Reconciler) allocations(
	ctx context.Context, of client.ListOption,
) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
	var list v1alpha1.PodAllocationList
	if reason, _ := r.Gate.Closed(); reason != reasons.CRDNotInstalled {
		if err := r.list(ctx, &list, of); err != nil {
			return nil, err
		}
	}
	return allocation.ByKey(list.Items), nil
}

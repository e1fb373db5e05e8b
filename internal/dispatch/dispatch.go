// Package dispatch carries resizes out, beside the workers that decide about nodes: each when it is its
// turn, after a second check of everything that may have changed since the decision.
//
// What it promises, each a test of the same name:
//   - HangsAlone: a resize that hangs holds a worker of its namespace, and no other.
//   - ManyHangAlone: however many namespaces hang, there are workers for those that answer.
//   - LeavesUntried: a resize that is not allowed any more is not tried, and keeps its place.
//   - AskedAnew: once admission changes a pod, earlier dry runs of pods of its namespace do not count.
//   - APanicIsAnAnswer: a panic about one resize is its answer, and has an audit line.
package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
)

// Resize is one resize of a pod, with what is needed to carry it out and to record what came of it.
type Resize struct {
	// Task has the move, its purpose, and the status of the pod as it was decided.
	lifecycle.Task
	Pod       *corev1.Pod
	Mode      kube.Mode // of its namespace when it was decided
	Declared  lifecycle.Limits
	Admission Admission
	// At is when the resize was decided, and Age how old its decision was then.
	At  time.Time
	Age time.Duration
	// Since is when the pod came to the queue, and Priority the one that it had when its turn came.
	Since    time.Time
	Priority flowcontrol.Priority
	// Tenure is that of the node when it was decided.
	Tenure int
	// Checked is under which admission a dry run was found harmless; "": none was made.
	Checked string
	// Reason, Evidence and Generation are for the audit line.
	Reason string
	audit.Evidence
	Generation int64
	// ObservedAt is when the agent decided; zero: it did not.
	ObservedAt time.Time
	// Answer is what came of it; nil: nothing was sent.
	Answer *Answer
}

// Admission are the objects of a namespace by which the API server refuses a resize of a pod.
type Admission struct {
	Ranges string       // the LimitRanges, in their versions; "" for none
	Quotas []quota.Room // of the ResourceQuotas that count the pod
}

// Versions names the versions of LimitRanges; "" where there are none.
func Versions(ranges []corev1.LimitRange) string {
	names := make([]string, len(ranges))
	for i, l := range ranges {
		names[i] = l.Name + "=" + l.ResourceVersion
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// ByAdmission says whether a resize is refused for this reason by an object of the namespace.
func ByAdmission(r reasons.Reason) bool {
	switch r {
	case reasons.LimitRangeRefused, reasons.AdmissionWouldMutate, reasons.QuotaExceeded, reasons.QuotaNeedsLimits:
		return true
	}
	return false
}

// Made says whether the pod has the limits of the resize.
func (z *Resize) Made(pod *corev1.Pod) bool {
	limits := kube.ByName(kube.Limits(pod))
	return !slices.ContainsFunc(z.Move.Changes, func(c actuator.Change) bool { return limits[c.Container] != c.To })
}

// Answer is what came of a resize.
type Answer struct {
	podresize.Result
	Sent bool // beyond the dry run
	// Found is the pod as it was read after an outcome that leaves open what it is now, Err why it was
	// not.
	Found *corev1.Pod
	Err   error
}

// Request asks for a resize.
type Request = flowcontrol.Request[*Resize]

// Dispatcher carries resizes out as they get their turn.
type Dispatcher struct {
	Resizer podresize.Resizer
	// Live reads from the API server itself, and Client from the cache.
	Live, Client client.Reader
	// DefaultMode is that of a namespace without kube.ModeLabel.
	DefaultMode kube.Mode
	Gate        *flowcontrol.Gate
	// Suspended is why nothing may be resized anywhere; "" where resizes are possible.
	Suspended func(ctx context.Context) (reasons.Reason, error)
	// Owns says whether this replica of the controller resizes the pods of a node.
	Owns     func(node string) bool
	Breakers *flowcontrol.Breakers
	Quotas   *Quotas
	// FreezeAfter is how old a decision may get.
	FreezeAfter time.Duration
	// Answered is called when the answer about a pod of a node can be taken.
	Answered func(ctx context.Context, node string)
	// Failed notes an error about one pod.
	Failed  func(ctx context.Context, pod *corev1.Pod, err error)
	Now     func() time.Time
	Audit   *slog.Logger
	Metrics *metrics.Metrics

	mu        sync.Mutex
	queue     *flowcontrol.Queue[*Resize]
	wake      chan struct{}
	mutations podresize.Mutations
}

// Init prepares a Dispatcher whose exported fields are set.
func (d *Dispatcher) Init(c flowcontrol.Config) *Dispatcher {
	d.queue, d.wake = flowcontrol.NewQueue[*Resize](c), make(chan struct{}, 1)
	return d
}

// Replace replaces the resizes of a node that wait: see flowcontrol.Queue. nodes is how many nodes the
// cluster has.
func (d *Dispatcher) Replace(node string, nodes int, requests []Request, exists func(types.UID) bool) {
	d.mu.Lock()
	now := d.Now()
	d.queue.Nodes(nodes, now)
	d.queue.Replace(node, requests, exists, now)
	waiting := d.queue.Waiting()
	d.mu.Unlock()
	for p, n := range waiting {
		d.Metrics.Waiting.WithLabelValues(flowcontrol.Priority(p).String()).Set(float64(n))
	}
	d.look()
}

// SetShare leaves a share, 0 to 1, of the budget of the cluster, as other replicas have the rest.
func (d *Dispatcher) SetShare(share float64) {
	d.mu.Lock()
	d.queue.SetShare(share, d.Now())
	d.mu.Unlock()
	d.look()
}

// TakeOver notes that nodes may have come from another replica: see flowcontrol.Queue.
func (d *Dispatcher) TakeOver() {
	d.Quotas.forgetSharing()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.TakeOver(d.Now())
}

// Standing is where the resize of a pod stands: see flowcontrol.Queue. What it returns is not to be
// changed.
func (d *Dispatcher) Standing(pod types.UID) (flowcontrol.State, time.Time, *Resize) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Standing(pod)
}

// Take takes the answer about a pod: see flowcontrol.Queue.
func (d *Dispatcher) Take(pod types.UID) (*Resize, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Take(pod, d.Now())
}

// NeedLeaderElection is false: each replica of the controller resizes pods of its own nodes.
func (*Dispatcher) NeedLeaderElection() bool { return false }

// Start carries resizes out until ctx ends, and waits for those that are under way.
func (d *Dispatcher) Start(ctx context.Context) error {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for ctx.Err() == nil {
		r, ok, again := d.next()
		if ok {
			underWay.Go(func() { d.run(ctx, r) })
			continue
		}
		var timer <-chan time.Time
		if !again.IsZero() {
			timer = time.After(max(again.Sub(d.Now()), time.Millisecond))
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-timer:
		}
	}
	return nil
}

// Step carries out the resize whose turn it is, and says whether there was one.
func (d *Dispatcher) Step(ctx context.Context) bool {
	r, ok, _ := d.next()
	if ok {
		d.run(ctx, r)
	}
	return ok
}

func (d *Dispatcher) next() (Request, bool, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Next(d.Now())
}

func (d *Dispatcher) run(ctx context.Context, r Request) {
	resize := *r.Value
	resize.Since, resize.Priority = r.Since, r.Priority
	z, charge := d.carryOut(ctx, resize)
	d.mu.Lock()
	d.queue.Finish(r.Pod, z, charge, d.Now())
	d.mu.Unlock()
	d.look()
	d.Answered(ctx, r.Node)
}

// look has the queue looked at again.
func (d *Dispatcher) look() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

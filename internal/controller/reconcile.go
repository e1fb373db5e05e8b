package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Resizer carries moves out; a *podresize.Client is one.
type Resizer interface {
	Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result
	DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result
}

// vpaLister lists the VerticalPodAutoscalers of a namespace, as *autoscalers.VPAs does.
type vpaLister interface {
	List(ctx context.Context, namespace string) (list []constraints.VPA, unknown string, err error)
}

// Reconciler reconciles one node at a time.
type Reconciler struct {
	Config Config
	API
	Telemetry
	Gate *Gate
	Now  func() time.Time

	pacing
	remembered
	lookups
	requeue   *requeue
	conductor *coordination
}

// API is how the controller reaches the API server.
type API struct {
	// Client reads from caches and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Resize carries moves out.
	Resize Resizer
	// ReadMetric reads a metric of a DemandSignal, as demandsignal.MetricsAPI.Read does; nil: there are no DemandSignals.
	ReadMetric demandsignal.Reader
}

// Telemetry is how the controller tells what it does.
type Telemetry struct {
	Events events.EventRecorder
	Log    *slog.Logger
	// Audit gets one line per attempt to resize.
	Audit   *slog.Logger
	Metrics *Metrics
}

// pacing bounds resizes: by the rate of the installation, by quotas, and where webhooks do not
// answer.
type pacing struct {
	limiter  *rateLimiter
	breakers *breakers
	purse    *purse
	jitter   func(time.Duration) time.Duration
}

// remembered is what this process knows beyond the objects of the API server. All of it may be
// lost.
type remembered struct {
	memory   *memory
	liveness *liveness
}

// lookups find what other objects of a namespace demand of its pods.
type lookups struct {
	scaleTargets *autoscalers.ScaleTargets
	vpas         vpaLister
	excess       *excess
	// percentages are those of the DemandSignals of a namespace; known is false before they have been listed.
	percentages func(namespace string) (asks []constraints.Signal, known bool)
}

// Ready prepares a Reconciler whose exported fields are set.
func (r *Reconciler) Ready() *Reconciler {
	r.limiter = newRateLimiter(r.Config.Rate, r.Config.Burst)
	r.jitter = func(d time.Duration) time.Duration { return d/2 + rand.N(d) }
	r.breakers = newBreakers(r.jitter)
	r.memory, r.liveness = newMemory(), newLiveness()
	r.requeue = newRequeue()
	r.scaleTargets = autoscalers.NewScaleTargets(r.Client, r.Log, func() time.Time { return r.Now() })
	r.vpas, r.purse, r.excess = &autoscalers.VPAs{}, newPurse(), newExcess()
	r.conductor = &coordination{
		config: r.Config.Coordinator, interval: r.Config.CoordinationInterval, pods: r.Client,
		now:     func() time.Time { return r.Now() },
		fresh:   func(node string, now time.Time) bool { return r.liveness.age(node, now) < r.Config.FreezeAfter },
		requeue: r.requeue.nodes, log: r.Log,
	}
	r.percentages = noPercentages
	return r
}

// blockedChanged says once for the installation that pods can no longer be resized, or can again: in the log, the metric and the switch.
func (r *Reconciler) blockedChanged(reason reasons.Reason, why string) {
	r.Metrics.blocked(string(reason))
	if reason != "" {
		r.Log.Error("no pod can be resized", "reason", reason, "why", why)
	} else {
		r.Log.Info("pods can be resized")
		r.requeue.allNodes()
	}
	r.requeue.switchConfigMap()
}

// pauseChanged says once that the installation was paused or resumed.
func (r *Reconciler) pauseChanged(paused bool) {
	r.Metrics.paused(paused)
	if paused {
		r.Log.Warn("MBCAS is paused: no pod is resized")
		return
	}
	r.Log.Info("MBCAS is resumed")
	r.requeue.allNodes()
}

// passes is how often a node is decided anew at once when pods change under the decision.
const passes = 3

// resizesWithin is how long one look at a node may begin resizes. A resize that hangs holds the
// worker of its node for the timeout of podresize, or twice that with a dry run; those that are
// left are for the next look. Shorter leaves more of them; longer keeps the worker from other
// nodes.
const resizesWithin = 10 * time.Second

// Reconcile brings one node to what its decisions call for: gather, decide, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	deadline := r.Now().Add(resizesWithin)
	for pass := 1; ; pass++ {
		s, err := r.gather(ctx, req.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		s.deadline = deadline
		tasks := s.decide(r.Config.Config)
		if err := r.record(ctx, s, tasks); err != nil {
			return ctrl.Result{}, err
		}
		again, failed := r.act(ctx, s, tasks, pass == passes)
		failed = r.report(ctx, s, tasks) || failed || s.failed
		if ctx.Err() != nil {
			return ctrl.Result{}, fmt.Errorf("node %s is left half done: %w", req.Name, context.Cause(ctx))
		}
		if !again || pass == passes {
			return ctrl.Result{RequeueAfter: after(r.Now(), s.recheckAt, tasks, failed)}, nil
		}
	}
}

// failedRetry is how soon a node is looked at again after an API error about one of its pods.
const failedRetry = 5 * time.Second

// failed says whether err is an error, and logs and counts it: it concerns this pod only, so
// that it is not returned, which would have the whole node wait for it longer and longer.
func (r *Reconciler) failed(ctx context.Context, pod *corev1.Pod, err error) bool {
	if err != nil && ctx.Err() == nil { // where time is up, that is said once for the node
		r.Log.Error("pod not dealt with",
			"namespace", pod.Namespace, "pod", pod.Name, "node", pod.Spec.NodeName, "retry", failedRetry, "err", err)
		r.Metrics.errors.Inc()
	}
	return err != nil
}

// after is how long until another look is wanted, for the node as a whole or for one of the tasks;
// 0: none is.
func after(now, again time.Time, tasks []*task, failed bool) time.Duration {
	if failed {
		again = lifecycle.Earlier(again, now.Add(failedRetry))
	}
	for _, t := range tasks {
		again = lifecycle.Earlier(again, t.RecheckAt)
	}
	if again.IsZero() {
		return 0
	}
	return max(again.Sub(now), time.Millisecond)
}

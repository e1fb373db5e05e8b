package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
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

// tell tells the agent of the node what to decide about, and says whether that could not be written.
// What it is told of a pod that was left out stays.
func (r *Reconciler) tell(ctx context.Context, s *snapshot, tasks []*task) (failed bool) {
	pods := s.told.Of(s.leftOut)
	for _, t := range tasks {
		if t.pa != nil && !t.Delete && t.facts.Declared != nil && !t.facts.Ended {
			t.constraints.NoDecrease = string(t.NoDecrease)
			pods = append(pods, allocation.NodePod(t.pa, t.Status.Declared, t.constraints))
		}
	}
	err := r.memory.told.Tell(ctx, s.node.name, s.node.uid, pods)
	if err != nil && ctx.Err() == nil {
		r.Log.Error("agent not told what to decide about", "node", s.node.name, "retry", failedRetry, "err", err)
	}
	return err != nil
}

// write stores the task's status if it differs from the stored one.
func (r *Reconciler) write(ctx context.Context, s *snapshot, t *task) error {
	pa := t.pa
	if pa == nil {
		return nil
	}
	changed := pa.DeepCopy()
	t.setStatus(&changed.Status, r.Now())
	if equality.Semantic.DeepEqual(pa.Status, changed.Status) {
		return nil
	}
	patch, err := client.MergeFrom(pa).Data(changed)
	if err == nil { // the agent may write the spec at the same time
		patch, err = kube.ForUID(patch, pa.UID)
	}
	answer := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Name}}
	if err == nil {
		raw := client.RawPatch(types.MergePatchType, patch)
		err = r.Client.Status().Patch(ctx, answer, raw, client.FieldOwner(kube.FieldManager))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	if err == nil {
		t.keep(s, answer)
	}
	return nil
}

// setStatus puts what the task changes into a status. A newer generation of spec that changes nothing
// else is not worth a write for each pod and decision: the next change carries it.
func (t *task) setStatus(s *v1alpha1.PodAllocationStatus, now time.Time) {
	allocation.SetStatus(s, t.Status)
	allocation.SetConditions(s, now)
	if !equality.Semantic.DeepEqual(t.pa.Status, *s) {
		s.ObservedGeneration = t.pa.Generation
		allocation.SetConditions(s, now)
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

// quiet is how long an event of the same reason is not repeated for a pod.
const quiet = 10 * time.Minute

// skips are the reasons to skip a resize that get an event, and its type.
var skips = map[reasons.Reason]string{
	reasons.ExternalChange: corev1.EventTypeNormal, reasons.WaitingForQuota: corev1.EventTypeNormal,
	reasons.ConflictingWriter: corev1.EventTypeWarning, reasons.DeclaredLimitUnknown: corev1.EventTypeWarning,
	reasons.LimitRangeRefused: corev1.EventTypeWarning, reasons.AdmissionWouldMutate: corev1.EventTypeWarning,
	reasons.QuotaNeedsLimits: corev1.EventTypeWarning,
}

// observe sends an event where the pod's owner may ask what happened, and measures a resize that
// was carried out.
func (r *Reconciler) observe(s *snapshot, t *task) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	before := t.facts.Status
	if t.Done && !t.rec.decidedAt.IsZero() {
		r.Metrics.done.Observe(s.now.Sub(t.rec.decidedAt).Seconds())
		t.rec.decidedAt = time.Time{}
	}
	if harm := t.Status.LastHarmfulDecrease; !harm.IsZero() && !harm.Equal(before.LastHarmfulDecrease) {
		why := reasons.UnhealthyAfterDecrease
		r.event(s, t, podEvent{warning, why, "Rollback", why.Sentence()})
	}
	switch reason := t.Status.Reason; {
	case t.Done && len(t.facts.Declared) > 0:
		r.event(s, t, podEvent{normal, "CPUResized", "Resize", "CPU limits are " + t.facts.Current().String()})
	case t.Status.Phase == lifecycle.PhaseFailed && (before.Reason != reason || before.Phase != lifecycle.PhaseFailed):
		r.event(s, t, podEvent{warning, reason, "Resize", t.Status.Message})
	case before.Reason != reason && skips[reason] != "":
		r.event(s, t, podEvent{skips[reason], reason, "SkipResize", t.Status.Message})
	}
	if vpa := t.facts.Excluded; vpa.Reason == reasons.ManagedByVPA && t.pa != nil {
		r.event(s, t, podEvent{normal, vpa.Reason, "SkipResize", lifecycle.Sentence(vpa.Reason, vpa.Detail)})
	}
	told := s.told.Constraints(t.pod.UID)
	if why := t.NoDecrease; why != "" && (told == nil || told.NoDecrease != string(why)) {
		kind := normal
		if why == reasons.UnhealthyAfterDecrease {
			kind = warning
		}
		r.event(s, t, podEvent{kind, why, "SkipResize", why.Sentence()})
	}
}

type podEvent struct {
	kind   string // Normal or Warning
	reason reasons.Reason
	action string
	note   string
}

// event sends an event, unless one of the same reason was sent just now.
func (r *Reconciler) event(s *snapshot, t *task, e podEvent) {
	if last := t.rec.events[e.reason]; !last.IsZero() && s.now.Sub(last) < quiet {
		return
	}
	if t.rec.events == nil {
		t.rec.events = map[reasons.Reason]time.Time{}
	}
	t.rec.events[e.reason] = s.now
	if most := 1000; len(e.note) > most {
		e.note = strings.ToValidUTF8(e.note[:most], "")
	}
	var related runtime.Object
	if t.pa != nil {
		pa := t.pa.DeepCopy()
		pa.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodAllocation"))
		related = pa
	}
	r.Events.Eventf(t.pod, related, e.kind, string(e.reason), e.action, "%s", e.note)
}

// Metrics is how the controller is. Labels never name a pod, so that the number of series stays
// small.
type Metrics struct {
	resizes *prometheus.CounterVec
	done    prometheus.Histogram
	age     prometheus.Histogram
	closed  *prometheus.GaugeVec
	errors  prometheus.Counter
	signals *prometheus.GaugeVec

	allocations *prometheus.GaugeVec

	mu    sync.Mutex
	nodes map[string]map[state]float64 // the phases of the pods of each node
	// reason is why no pod can be resized, without regard to a pause; "" if pods can be.
	reason reasons.Reason
}

type state struct{ phase, reason string }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	return &Metrics{
		resizes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "mbcas_controller_resizes_total",
			Help: "Attempts to resize a pod, by purpose (allocate, restore, revert, rollback) and outcome.",
		}, []string{"purpose", "outcome"}),
		done: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_resize_duration_seconds",
			Help:    "Time from the controller's decision to resize until the kubelet reports the limits in force.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 90},
		}),
		age: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_decision_age_seconds",
			Help:    "Age of the agent's decision when the controller acts on it, by the clocks of both machines.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}),
		closed: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_blocked",
			Help: "1 while nothing may be resized anywhere, by reason.",
		}, []string{"reason"}),
		errors: auto.NewCounter(prometheus.CounterOpts{
			Name: "mbcas_controller_pod_errors_total",
			Help: "Errors of the API server that kept one pod from being dealt with; the log names the pod.",
		}),
		signals: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_demand_signals",
			Help: "DemandSignals by the reason of their condition Available; MetricRead is the good one.",
		}, []string{"reason"}),
		allocations: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_allocations",
			Help: "PodAllocations by phase and reason.",
		}, []string{"phase", "reason"}),
		nodes: map[string]map[state]float64{},
	}
}

// node notes the phases of the pods of a node.
func (m *Metrics) node(name string, tasks []*task) {
	states, change := map[state]float64{}, map[state]float64{}
	for _, t := range tasks {
		if t.pa != nil {
			states[state{string(t.Status.Phase), string(t.Status.Reason)}]++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, n := range m.nodes[name] {
		change[s] -= n
	}
	for s, n := range states {
		change[s] += n
	}
	for s, n := range change {
		m.allocations.WithLabelValues(s.phase, s.reason).Add(n)
	}
	if m.nodes[name] = states; len(states) == 0 {
		delete(m.nodes, name)
	}
}

// blocked notes why no pod can be resized; "" if pods can be.
func (m *Metrics) blocked(reason reasons.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed.DeleteLabelValues(string(m.reason))
	if m.reason = reason; reason != "" {
		m.closed.WithLabelValues(string(reason)).Set(1)
	}
}

// paused notes that the installation is paused, or no longer is.
func (m *Metrics) paused(yes bool) {
	if yes {
		m.closed.WithLabelValues(string(reasons.Paused)).Set(1)
	} else {
		m.closed.DeleteLabelValues(string(reasons.Paused))
	}
}

// countSignals notes how many DemandSignals there are, by the reason of their condition.
func (m *Metrics) countSignals(reasons map[string]int) {
	m.signals.Reset()
	for reason, n := range reasons {
		m.signals.WithLabelValues(reason).Set(float64(n))
	}
}

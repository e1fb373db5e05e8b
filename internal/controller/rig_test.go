package controller

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/sharding"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// rig is a cluster of one node with a namespace in enforce mode, and controllers that run beside it.
type rig struct {
	*testing.T
	*apiserver.Server
	kubelet   *apiserver.Kubelet
	namespace string
	config    Config
	counter   *counter
	audit     *syncWriter // audit lines of the controller
	log       *syncWriter // its log
	// rest waits until nothing is under way; nil: only time tells, as on a real API server.
	rest func()
	// replica is that of the controllers that are started from here; nil: there is one alone.
	replica *sharding.Replica
}

// newRig is a rig on the real API server. The agent of the node has just renewed its Lease, and is
// live for an hour from then on: the Lease ages in real time, however long the test takes.
func newRig(t *testing.T) *rig {
	t.Helper()
	c := DefaultConfig()
	c.FreezeAfter, c.RestoreAfter = time.Hour, 2*time.Hour
	return newRigOn(t, apiserver.Start(t), c)
}

// newRigOn makes the node and the namespaces; the agent of the node has just renewed its Lease.
func newRigOn(t *testing.T, s *apiserver.Server, c Config) *rig {
	t.Helper()
	c.Namespace = s.Namespace(t)
	c.StartGrace, c.RestartGrace, c.Actuator.DecreaseCooldown = 0, 0, 0
	c.Resizes.NodePerSecond, c.Resizes.PerSecond = float64(c.Resizes.NodeBurst), float64(c.Resizes.Burst) // bursts are there from the start
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	r := &rig{T: t, Server: s, kubelet: s.Kubelet(t, name), namespace: s.Namespace(t), config: c}
	r.mode(r.namespace, kube.ModeEnforce)
	r.hear()
	t.Cleanup(func() { // what would keep the next test's controller busy
		for _, o := range []client.Object{&corev1.Pod{}, &v1alpha1.PodAllocation{}} {
			err := r.Client.DeleteAllOf(context.Background(), o, client.InNamespace(r.namespace), client.GracePeriodSeconds(0))
			if err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	return r
}

// in is the same rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.T = t
	return &sub
}

func (r *rig) must(err error) {
	r.Helper()
	must.Succeed(r, err)
}

// until waits for a condition, and fails with what was last seen.
func (r *rig) until(what string, is func() (bool, any)) {
	r.Helper()
	apiserver.Eventually(r, what, is)
}

// merge changes an object by a merge patch.
func (r *rig) merge(o client.Object, patch string) {
	r.Helper()
	o = o.DeepCopyObject().(client.Object)
	r.must(r.Client.Patch(r.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (r *rig) mode(namespace string, m kube.Mode) {
	r.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	r.merge(ns, `{"metadata":{"labels":{"mbcas.io/mode":"`+string(m)+`"}}}`)
}

func (r *rig) label(pod *corev1.Pod, managed string) {
	r.Helper()
	r.merge(pod, `{"metadata":{"labels":{"`+kube.ManagedKey+`":"`+managed+`"}}}`)
}

func (r *rig) annotate(o client.Object, key, value string) {
	r.Helper()
	r.merge(o, `{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`)
}

// hear renews the agent's Lease.
func (r *rig) hear() { r.hearAt(time.Now()) }

// hearAt renews the agent's Lease at a time of the test's clock.
func (r *rig) hearAt(at time.Time) {
	r.Helper()
	r.renews(at, allocation.NodeMarket{})
}

// renews is the same with what the agent says of its node.
func (r *rig) renews(at time.Time, m allocation.NodeMarket) {
	r.Helper()
	r.must(renew(r.Context(), r.Client, r.config.Namespace, r.kubelet.Node, at, m))
}

// renew renews the Lease of a node's agent.
func renew(ctx context.Context, c client.Client, namespace, node string, at time.Time, m allocation.NodeMarket) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: kube.AgentLease(node), Annotations: map[string]string{kube.MarketKey: m.Text()},
	}}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: at}
	err := c.Create(ctx, lease)
	if apierrors.IsAlreadyExists(err) {
		lease.ResourceVersion = ""
		err = c.Patch(ctx, lease, client.Merge)
	}
	return err
}

// pod runs a Burstable pod of one container.
func (r *rig) pod(name, request, limit string) *corev1.Pod {
	r.Helper()
	return r.kubelet.Run(r, apiserver.Pod(r.namespace, name, apiserver.Container("app", request, limit)))
}

// ownedPod runs a pod of one container as Deployments make them.
func (r *rig) ownedPod(deployment, name, request, limit string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", request, limit))
	pod.Labels = map[string]string{"app": deployment, "pod-template-hash": "abc"}
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: deployment + "-abc", UID: types.UID("rs-" + deployment), Controller: &yes,
	}}
	return r.kubelet.Run(r, pod)
}

// reconciler works directly on the API server, without caches.
func (r *rig) reconciler(c client.Client, live client.Reader) *Reconciler {
	r.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(r.Config)
	r.must(err)
	r.audit, r.log = &syncWriter{}, &syncWriter{}
	log := r.log
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("log of the controller:\n%s", log)
		}
	})
	r.counter = &counter{Resizer: podresize.New(c, kube.FieldManager)}
	return (&Reconciler{
		Config: r.config, API: API{Client: c, Live: live, Resize: r.counter, Replica: r.replica}, Gate: flowcontrol.NewGate(disco, c), Now: time.Now,
		Telemetry: Telemetry{
			Events: events.NewFakeRecorder(1000), Log: slog.New(slog.NewJSONHandler(r.log, nil)),
			Audit: slog.New(slog.NewJSONHandler(r.audit, nil)), Metrics: metrics.New(prometheus.NewRegistry()),
		},
	}).Init()
}

// start runs a whole controller until the test ends or the returned function is called.
func (r *rig) start(change ...func(*Reconciler)) (stop func()) {
	r.Helper()
	yes := true
	mgr, err := ctrl.NewManager(r.Config, ctrl.Options{
		Scheme: r.Client.Scheme(), Cache: CacheOptions(r.config.Namespace),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &yes},
		LeaderElection: r.replica != nil, LeaderElectionID: kube.LeaderLease, LeaderElectionNamespace: r.config.Namespace,
		LeaderElectionReleaseOnCancel: true, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return r.Client.RESTMapper(), nil },
	})
	r.must(err)
	rec := r.reconciler(mgr.GetClient(), mgr.GetAPIReader())
	rec.lookups.interval = 100 * time.Millisecond // tests wait for it
	for _, f := range change {
		f(rec)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.must(rec.Setup(ctx, mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("controller: %v", err)
		}
	})
	r.Cleanup(stop)
	return stop
}

// clockAhead has a controller's clock run ahead of the real one by that many nanoseconds.
func clockAhead(by *atomic.Int64) func(*Reconciler) {
	return func(rec *Reconciler) {
		rec.Now = func() time.Time { return time.Now().Add(time.Duration(by.Load())) }
	}
}

// hurries has a controller's clock run ahead as well, and a hundred times as fast: what it waits for by its clock, such as the
// end of an answer that it keeps for ten seconds, comes soon. The agents are live for all that time.
func (r *rig) hurries(by *atomic.Int64) func(*Reconciler) {
	r.config.FreezeAfter, r.config.RestoreAfter = 1000*time.Hour, 2000*time.Hour
	began := time.Now()
	return func(rec *Reconciler) {
		rec.Now = func() time.Time {
			now := time.Now()
			return now.Add(99*now.Sub(began) + time.Duration(by.Load()))
		}
	}
}

// counter counts resizes that took place.
type counter struct {
	podresize.Resizer
	mu    sync.Mutex
	moves []actuator.Move
}

func (c *counter) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	result := c.Resizer.Apply(ctx, pod, move)
	if result.Outcome == podresize.Accepted {
		c.mu.Lock()
		c.moves = append(c.moves, move)
		c.mu.Unlock()
	}
	return result
}

func (c *counter) resizes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.moves)
}

type syncWriter struct {
	mu sync.Mutex
	w  bytes.Buffer
}

func (s *syncWriter) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.String()
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// stored is the pod's allocation; nil where it has none.
func (r *rig) stored(pod *corev1.Pod) *v1alpha1.PodAllocation {
	r.Helper()
	pa := &v1alpha1.PodAllocation{}
	err := r.Client.Get(r.Context(), allocation.Key(pod), pa)
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.must(err)
	return pa
}

// allocation waits until the pod's allocation is as wanted.
func (r *rig) allocation(pod *corev1.Pod, what string, is func(*v1alpha1.PodAllocation) bool) *v1alpha1.PodAllocation {
	r.Helper()
	var pa *v1alpha1.PodAllocation
	r.until("allocation of "+pod.Name+": "+what, func() (bool, any) {
		if pa = r.stored(pod); pa == nil {
			return false, "none"
		}
		return is(pa), pa.Status
	})
	return pa
}

// recorded says whether the declared limits are recorded.
func recorded(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 }

// publishedOf is what is published of a pod to the agent of its node; nil: nothing.
func (r *rig) publishedOf(pod *corev1.Pod) *v1alpha1.NodePod {
	r.Helper()
	n := &v1alpha1.NodeAllocation{}
	err := r.Client.Get(r.Context(), types.NamespacedName{Name: pod.Spec.NodeName}, n)
	r.must(client.IgnoreNotFound(err))
	for i := range n.Spec.Pods {
		if n.Spec.Pods[i].UID == pod.UID {
			return &n.Spec.Pods[i]
		}
	}
	return nil
}

// publishedConstraints are the constraints of a pod that are published to the agent; nil: none.
func (r *rig) publishedConstraints(pod *corev1.Pod) *v1alpha1.Constraints {
	r.Helper()
	if p := r.publishedOf(pod); p != nil {
		return p.Constraints
	}
	return nil
}

// constraints waits until a pod has constraints that are as wanted, and returns them.
func (r *rig) constraints(pod *corev1.Pod, what string, is ...func(*v1alpha1.Constraints) bool) *v1alpha1.Constraints {
	r.Helper()
	var c *v1alpha1.Constraints
	r.until("constraints of "+pod.Name+": "+what, func() (bool, any) {
		if c = r.publishedConstraints(pod); c == nil {
			return false, "none"
		}
		return !slices.ContainsFunc(is, func(f func(*v1alpha1.Constraints) bool) bool { return !f(c) }), c
	})
	return c
}

// stands says whether a decision was dealt with, with this outcome. A decision that leaves the status as it is, is dealt with unseen.
func stands(phase v1alpha1.Phase, reason reasons.Reason) func(*v1alpha1.PodAllocation) bool {
	return func(pa *v1alpha1.PodAllocation) bool {
		s := pa.Status
		applied := s.AppliedLimits
		if len(applied) == 0 {
			applied = s.DeclaredLimits
		}
		return s.Phase == phase && s.Reason == string(reason) &&
			(s.ObservedGeneration == pa.Generation || phase != v1alpha1.PhaseApplied || kube.SameLimits(applied, pa.Spec.Containers))
	}
}

// publish writes a decision as the agent does.
func (r *rig) publish(pod *corev1.Pod, price string, limits ...v1alpha1.ContainerLimit) {
	r.Helper()
	d := v1alpha1.Decision{Budget: 100, Floor: 10, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing}
	r.must(d.Price.UnmarshalText([]byte(price)))
	r.decide(pod, d, limits...)
}

// decide writes that decision.
func (r *rig) decide(pod *corev1.Pod, d v1alpha1.Decision, limits ...v1alpha1.ContainerLimit) {
	r.Helper()
	r.must(decide(r.Context(), r.Client, pod, d, limits...))
}

// decide writes a decision about a pod, made now.
func decide(ctx context.Context, c client.Client, pod *corev1.Pod, d v1alpha1.Decision, limits ...v1alpha1.ContainerLimit) error {
	pa := &v1alpha1.PodAllocation{}
	if err := c.Get(ctx, allocation.Key(pod), pa); err != nil {
		return err
	}
	before, total := pa.DeepCopy(), kube.Total(limits)
	d.ObservedAt = metav1.NowMicro()
	pa.Spec.DesiredCPULimit, pa.Spec.Containers, pa.Spec.Decision = &total, limits, &d
	return c.Patch(ctx, pa, client.MergeFrom(before))
}

// capped is a decision that caps a pod, as the market does when CPU is scarce.
func capped(by v1alpha1.BoundBy) v1alpha1.Decision {
	return v1alpha1.Decision{Budget: 100, Floor: 10, Ceiling: 4000, BoundBy: by, Price: market.Price(0.5)}
}

// at runs until the pod has an allocation and stands at a limit.
func (r *rig) at(pod *corev1.Pod, limit cpu.Milli) {
	r.Helper()
	r.hear()
	r.allocation(pod, "made", recorded)
	r.publish(pod, "0.000", app(limit))
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
}

func app(m cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: "app", CPULimit: m}
}

// read reads a pod from the API server.
func (r *rig) read(pod *corev1.Pod) *corev1.Pod {
	r.Helper()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	return got
}

// limit reads the pod's CPU limit.
func (r *rig) limit(pod *corev1.Pod) cpu.Milli { return kube.Total(kube.Limits(r.read(pod))) }

// limitIs fails the test where the pod has another CPU limit.
func (r *rig) limitIs(pod *corev1.Pod, want cpu.Milli, when string) {
	r.Helper()
	if got := r.limit(pod); got != want {
		r.Errorf("limit %v, want %v %s", got, want, when)
	}
}

// reaches waits until the pod has that CPU limit. The agent confirms its decision when it is asked to.
func (r *rig) reaches(pod *corev1.Pod, want cpu.Milli) {
	r.Helper()
	r.until("limit "+want.String(), func() (bool, any) { return r.limit(pod) == want, r.stored(pod) })
}

func (r *rig) declaredIs(pa *v1alpha1.PodAllocation, want ...v1alpha1.ContainerLimit) {
	r.Helper()
	if pa == nil || !kube.SameLimits(pa.Status.DeclaredLimits, want) {
		r.Fatalf("allocation %+v: want declared limits %v", pa, want)
	}
}

// resizeAs changes a pod's limit under another name.
func (r *rig) resizeAs(manager string, pod *corev1.Pod, limit string) {
	r.Helper()
	patch := `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"` + limit + `"}}}]}}`
	raw := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
	r.must(r.Client.SubResource("resize").Patch(r.Context(), pod.DeepCopy(), raw, client.FieldOwner(manager)))
}

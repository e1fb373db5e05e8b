package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
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
	log       *bytes.Buffer
}

// newRig makes the node and the namespaces; the agent of the node has just been heard.
func newRig(t *testing.T) *rig {
	t.Helper()
	s := apiserver.Start(t)
	c := DefaultConfig()
	c.Namespace = s.Namespace(t)
	c.StartGrace, c.RestartGrace, c.Actuator.DecreaseCooldown = 0, 0, 0
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	r := &rig{T: t, Server: s, kubelet: s.Kubelet(t, name), namespace: s.Namespace(t), config: c}
	r.mode(r.namespace, kube.ModeEnforce)
	r.hear()
	t.Cleanup(r.clean)
	return r
}

// in is the same rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.T = t
	return &sub
}

// clean removes what would keep the next test's controller busy.
func (r *rig) clean() {
	ctx := context.Background()
	for _, o := range []client.Object{&corev1.Pod{}, &v1alpha1.PodAllocation{}} {
		if err := r.Client.DeleteAllOf(ctx, o, client.InNamespace(r.namespace), client.GracePeriodSeconds(0)); err != nil {
			r.Errorf("clean up: %v", err)
		}
	}
}

func (r *rig) mode(namespace string, m kube.Mode) {
	r.Helper()
	ns := &corev1.Namespace{}
	ns.Name = namespace
	patch := `{"metadata":{"labels":{"mbcas.io/mode":"` + string(m) + `"}}}`
	r.must(r.Client.Patch(r.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// hear renews the agent's Lease.
func (r *rig) hear() {
	r.Helper()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = r.config.Namespace, kube.AgentLease(r.kubelet.Node)
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	err := r.Client.Create(r.Context(), lease)
	if apierrors.IsAlreadyExists(err) {
		lease.ResourceVersion = ""
		err = r.Client.Patch(r.Context(), lease, client.Merge)
	}
	r.must(err)
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// pod runs a Burstable pod of one container.
func (r *rig) pod(name, request, limit string) *corev1.Pod {
	r.Helper()
	return r.kubelet.Run(r, apiserver.Pod(r.namespace, name, apiserver.Container("app", request, limit)))
}

// reconciler works directly on the API server, without caches.
func (r *rig) reconciler(c client.Client, live client.Reader) *Reconciler {
	r.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(r.Config)
	r.must(err)
	m := NewMetrics(prometheus.NewRegistry())
	r.log = &bytes.Buffer{}
	said := &syncWriter{w: &bytes.Buffer{}}
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("what the controller said:\n%s", said)
		}
	})
	r.counter = &counter{Resizer: podresize.New(c, kube.FieldManager)}
	return (&Reconciler{
		Config: r.config, API: API{Client: c, Live: live, Resize: r.counter}, Gate: NewGate(disco, c), Now: time.Now,
		Telemetry: Telemetry{
			Events: events.NewFakeRecorder(1000), Log: slog.New(slog.NewJSONHandler(said, nil)),
			Audit: slog.New(slog.NewJSONHandler(&syncWriter{w: r.log}, nil)), Metrics: m,
		},
	}).Ready()
}

// start runs a whole controller until the test ends or the returned function is called.
func (r *rig) start(change ...func(*Reconciler)) (stop func()) {
	r.Helper()
	yes := true
	mgr, err := ctrl.NewManager(r.Config, ctrl.Options{
		Scheme: r.Client.Scheme(), Cache: CacheOptions(r.config.Namespace),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &yes},
	})
	r.must(err)
	rec := r.reconciler(mgr.GetClient(), mgr.GetAPIReader())
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
	r.Cleanup(func() {
		if r.Failed() {
			r.describe(rec, mgr.GetCache())
		}
		stop()
	})
	return stop
}

// describe says how a controller stands whose test has failed.
func (r *rig) describe(rec *Reconciler, all cache.Cache) {
	synced, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	gate, why := rec.Gate.Closed()
	r.Logf("gate %q (%s); caches are full: %v; VPAs: %v", gate, why, all.WaitForCacheSync(synced), vpaState(rec))
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "mbcas/internal/controller.(*") || strings.Contains(stack, "WaitForCacheSync") {
			r.Log(stack)
		}
	}
}

// vpaState is what a whole controller knows of VPAs.
func vpaState(r *Reconciler) autoscalers.VPAState { return r.lookups.vpas.(*autoscalers.VPAs).State() }

// noVPAs is a cluster that does not serve VerticalPodAutoscalers.
type noVPAs struct{}

func (noVPAs) List(context.Context, string) ([]constraints.VPA, string, error) { return nil, "", nil }

// counter counts resizes that took place.
type counter struct {
	Resizer
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
	w  *bytes.Buffer
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

// allocation waits until the pod's allocation is as wanted.
func (r *rig) allocation(pod *corev1.Pod, what string, is func(*v1alpha1.PodAllocation) bool) *v1alpha1.PodAllocation {
	r.Helper()
	var pa *v1alpha1.PodAllocation
	r.until("allocation of "+pod.Name+": "+what, func() (bool, any) {
		pa = &v1alpha1.PodAllocation{}
		if err := r.Client.Get(r.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, pa); err != nil {
			return false, err
		}
		return is(pa), pa.Status
	})
	return pa
}

// until waits for a condition, and fails with what was last seen.
func (r *rig) until(what string, is func() (bool, any)) {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ok, seen := is()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s: not after a minute; seen: %+v", what, seen)
		}
		time.Sleep(10 * time.Millisecond)
	}
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
	pa := &v1alpha1.PodAllocation{}
	r.must(r.Client.Get(r.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, pa))
	before := pa.DeepCopy()
	total := kube.Total(limits)
	var cleared market.Price
	r.must(cleared.UnmarshalText([]byte(price)))
	pa.Spec.DesiredCPULimit, pa.Spec.Containers = &total, limits
	pa.Spec.Decision = &v1alpha1.Decision{
		Budget: 100, Price: cleared, Floor: 10, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NowMicro(),
	}
	r.must(r.Client.Patch(r.Context(), pa, client.MergeFrom(before)))
}

func app(m cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: "app", CPULimit: m}
}

// limit reads the pod's CPU limit.
func (r *rig) limit(pod *corev1.Pod) cpu.Milli {
	r.Helper()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	return kube.Total(kube.Limits(got))
}

func milli(m int) cpu.Milli { return cpu.Milli(m) }

var errLost = errors.New("the test lets this write fail")

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

var errLost = errors.New("the test lets this request fail")

// life is one life of a controller that works without caches, under a clock of the test.
type life struct {
	*rig
	*Reconciler
	*wire
	ahead time.Duration // of the clock of the machine or, in memory, of the bubble
}

// wire is what the requests of a controller go through: it notes them, lets those for one path fail, and
// may break at a write: from then on no request gets through.
type wire struct {
	mu            sync.Mutex
	seen, written []string // of written also what was lost
	refused       []string // writes with their answers, but for 404 and 409
	cut           string
	breakAt       int  // the number of a write; 0: never
	done          bool // that write itself still takes effect
	held          string
	release       chan struct{} // closed: writes whose path ends with held go on
	broken        bool
	watches       []io.Closer // that are open
	deaf          bool        // each watch is told that its version is gone
}

// watch begins a watch that cutWatches ends.
func (w *wire) watch(next http.RoundTripper, q *http.Request) (*http.Response, error) {
	w.mu.Lock()
	deaf := w.deaf
	w.mu.Unlock()
	if deaf {
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		body, err := json.Marshal(&gone)
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}}, Request: q,
			Body: io.NopCloser(bytes.NewReader(body)),
		}, err
	}
	response, err := next.RoundTrip(q)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.watches = append(w.watches, response.Body)
	}
	return response, err
}

// cutWatches ends all watches, and has no other begin until the returned function is called.
func (w *wire) cutWatches() (watches int, mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, body := range w.watches {
		_ = body.Close()
	}
	watches, w.watches, w.deaf = len(w.watches), nil, true
	return watches, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.deaf = false
	}
}

// through is one connection through it.
type through struct {
	*wire
	http.RoundTripper
}

func (w through) RoundTrip(q *http.Request) (*http.Response, error) {
	sent, answered := w.note(q)
	if !sent {
		return nil, errLost
	}
	if q.URL.Query().Get("watch") == "true" {
		return w.watch(w.RoundTripper, q)
	}
	if until := w.holds(q); until != nil {
		select {
		case <-until:
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
	response, err := w.RoundTripper.RoundTrip(q)
	if err == nil && q.Method != http.MethodGet {
		w.judge(q, response.StatusCode)
	}
	if err == nil && !answered {
		_ = response.Body.Close()
		return nil, errLost
	}
	return response, err
}

// note says whether a request is sent, and whether its answer arrives.
func (w *wire) note(q *http.Request) (sent, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return false, false
	}
	request := q.Method + " " + q.URL.Path + " " + q.URL.RawQuery
	w.seen = append(w.seen, request)
	if q.Method != http.MethodGet {
		w.written = append(w.written, request)
		w.broken = len(w.written) == w.breakAt
	}
	return w.cut != q.URL.Path && (!w.broken || w.done), !w.broken
}

// judge notes a write that the API server has refused.
func (w *wire) judge(q *http.Request, code int) {
	switch {
	case code < 400, code == http.StatusNotFound, code == http.StatusConflict:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, fmt.Sprintf("%s %s: %d", q.Method, q.URL.Path, code))
}

// anyWrite is the suffix of all paths, for hold.
const anyWrite = "*"

// hold has writes whose path ends with suffix wait until the returned function is called.
func (w *wire) hold(suffix string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := make(chan struct{})
	w.held, w.release = suffix, until
	return sync.OnceFunc(func() { close(until) })
}

func (w *wire) holds(q *http.Request) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == "" || q.Method == http.MethodGet || w.held != anyWrite && !strings.HasSuffix(q.URL.Path, w.held) {
		return nil
	}
	return w.release
}

// fail lets requests for a path fail; "" none.
func (w *wire) fail(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = path
}

// requests are those so far for that method and path that are no watches.
func (w *wire) requests(method, suffix string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		parts := strings.SplitN(s, " ", 3)
		if parts[0] == method && strings.HasSuffix(parts[1], suffix) && !strings.Contains(parts[2], "watch=true") {
			n++
		}
	}
	return n
}

// writes are those so far.
func (w *wire) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.written)
}

// wired is the same rig, whose controllers connect through a wire, as another user or with nil as they are.
func (r *rig) wired(as *rest.Config) (*rig, *wire) {
	w := &wire{}
	there, server := *r, *r.Server
	if as == nil {
		as = server.Config
	}
	server.Config = rest.CopyConfig(as)
	server.Config.QPS = -1
	server.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return through{w, next} })
	there.Server = &server
	return &there, w
}

// noVPAs is a cluster that does not serve VerticalPodAutoscalers.
type noVPAs struct{}

func (noVPAs) List(context.Context, string) ([]constraints.VPA, string, error) { return nil, "", nil }

// live starts a controller.
func (r *rig) live() *life { return r.liveUntil(0, false) }

// liveUntil starts a controller whose connection breaks at the given write; 0 for never.
func (r *rig) liveUntil(breakAt int, done bool) *life {
	r.Helper()
	there, w := r.wired(nil)
	w.breakAt, w.done = breakAt, done
	c, err := client.NewWithWatch(there.Config, client.Options{Scheme: r.Client.Scheme(), Mapper: r.Client.RESTMapper()})
	r.must(err)
	l := &life{rig: r, Reconciler: r.reconciler(trimming(c), c), wire: w}
	l.Reconciler.Now = func() time.Time { return time.Now().Add(l.ahead) }
	l.Reconciler.Config.Pods = 1
	l.Gate.Set("", "")
	l.memory.told.Interval = 0
	l.lookups.vpas = noVPAs{}
	l.resizes.Answered = func(context.Context, string) {} // once looks again by itself
	return l
}

// trimming is a client that reads what caches keep.
func trimming(c client.WithWatch) client.Client {
	trim := func(o runtime.Object) error {
		_, err := kube.Trim(o)
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(c.Get(ctx, key, o, opts...), trim(o))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			return meta.EachListItem(list, trim)
		},
	})
}

// pass lets time pass, in which the agent renews its Lease.
func (l *life) pass(d time.Duration) {
	l.Helper()
	l.ahead += d
	l.hearAt(l.Reconciler.Now())
}

// once reconciles the node, carries out the resizes whose turn it is, and reconciles it again until
// there are none.
func (l *life) once() (ctrl.Result, error) {
	l.Helper()
	for range 20 {
		if l.rest != nil {
			l.rest()
		}
		result, err := l.Reconcile(l.Context(), request(l.kubelet.Node))
		if err != nil || !l.steps() {
			return result, err
		}
	}
	l.Fatal("resizes without an end")
	return ctrl.Result{}, nil
}

// steps carries out the resizes whose turn it is, and says whether there were any.
func (l *life) steps() (some bool) {
	for l.resizes.Step(l.Context()) {
		some = true
	}
	return some
}

// look reconciles the node and returns the pod's allocation; nil where it has none.
func (l *life) look(pod *corev1.Pod) *v1alpha1.PodAllocation {
	l.Helper()
	_, err := l.once()
	l.must(err)
	return l.stored(pod)
}

// settles reconciles until the allocation is as wanted.
func (l *life) settles(pod *corev1.Pod, phase v1alpha1.Phase, reason reasons.Reason) *v1alpha1.PodAllocation {
	l.Helper()
	return l.becomes(pod, string(phase)+" "+string(reason), func(pa *v1alpha1.PodAllocation) bool {
		return pa != nil && stands(phase, reason)(pa)
	})
}

// becomes reconciles until the allocation, which may be nil, is as wanted, and returns it.
func (l *life) becomes(pod *corev1.Pod, what string, is func(*v1alpha1.PodAllocation) bool) *v1alpha1.PodAllocation {
	l.Helper()
	var pa *v1alpha1.PodAllocation
	l.until("allocation of "+pod.Name+": "+what, func() (bool, any) {
		pa = l.look(pod)
		return is(pa), pa
	})
	return pa
}

// gets reconciles until the pod has that CPU limit.
func (l *life) gets(pod *corev1.Pod, want cpu.Milli) {
	l.Helper()
	l.becomes(pod, "limit "+want.String(), func(*v1alpha1.PodAllocation) bool { return l.limit(pod) == want })
}

// newPod runs a pod that declared 500m, and reconciles until that is recorded.
func (l *life) newPod(name string) *corev1.Pod {
	l.Helper()
	pod := l.rig.pod(name, "100m", "500m")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	return pod
}

// raised is a pod that was raised from 500m to 2000m.
func (l *life) raised(name string) *corev1.Pod {
	l.Helper()
	pod := l.newPod(name)
	l.settlesAt(pod, 2000)
	return pod
}

// settlesAt publishes a limit and reconciles until it is in force.
func (l *life) settlesAt(pod *corev1.Pod, limit cpu.Milli) {
	l.Helper()
	l.becomes(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return pa != nil })
	l.publish(pod, "0.000", app(limit))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
}

// eventsSent counts the events with a reason since it was last called.
func (l *life) eventsSent(reason reasons.Reason) (n int) {
	sent := l.Events.(*events.FakeRecorder).Events
	for range len(sent) {
		if strings.Contains(<-sent, " "+string(reason)+" ") {
			n++
		}
	}
	return n
}

// fakeResizer stands between a controller and the API server. A nil function is next alone.
type fakeResizer struct {
	podresize.Resizer
	apply, dry func(pod *corev1.Pod, next func() podresize.Result) podresize.Result
}

func (f fakeResizer) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	next := func() podresize.Result { return f.Resizer.Apply(ctx, pod, move) }
	if f.apply == nil {
		return next()
	}
	return f.apply(pod, next)
}

func (f fakeResizer) DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	next := func() podresize.Result { return f.Resizer.DryRun(ctx, pod, move) }
	if f.dry == nil {
		return next()
	}
	return f.dry(pod, next)
}

// answer has every resize answered with an outcome instead. One whose answer is lost is lost after
// its dry run.
func answer(o podresize.Outcome) podresize.Resizer {
	instead := func(o podresize.Outcome) func(*corev1.Pod, func() podresize.Result) podresize.Result {
		return func(*corev1.Pod, func() podresize.Result) podresize.Result {
			return podresize.Result{Outcome: o, Message: "because"}
		}
	}
	if o == podresize.Unknown {
		return fakeResizer{apply: instead(o), dry: instead(podresize.Accepted)}
	}
	return fakeResizer{apply: instead(o), dry: instead(o)}
}

// refuse has every resize answered with an outcome instead, after its dry run, and counts them.
func (l *life) refuse(o podresize.Outcome) (tries *int) {
	tries = new(int)
	l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(*corev1.Pod, func() podresize.Result) podresize.Result {
		*tries++
		return podresize.Result{Outcome: o, Message: "because"}
	}}
	return tries
}

// onStatus is a client that calls a function before each write of a status, which fails with what that returns.
func (r *rig) onStatus(before func(client.Object) error) client.WithWatch {
	return interceptor.NewClient(r.Client, interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
	) error {
		if err := before(o); err != nil {
			return err
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}})
}

// extensions is a client for definitions of custom resources.
func (r *rig) extensions() client.Client {
	r.Helper()
	scheme := runtime.NewScheme()
	r.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(r.Config, client.Options{Scheme: scheme})
	r.must(err)
	return c
}

// install installs a definition until the test ends, and returns what removes it.
func (r *rig) install(crd *apiextensionsv1.CustomResourceDefinition) (remove func()) {
	r.Helper()
	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: time.Minute}
	_, err := envtest.InstallCRDs(r.Config, options)
	r.must(err)
	c := r.extensions()
	remove = func() {
		if err := c.Delete(context.Background(), crd); client.IgnoreNotFound(err) != nil {
			r.Error(err)
		}
	}
	r.Cleanup(func() {
		remove()
		// The next test may count on its absence, or install it again: what is being deleted takes that
		// for an update, and then goes.
		r.until(crd.Name+" is removed", func() (bool, any) {
			err := c.Get(context.Background(), client.ObjectKeyFromObject(crd), crd.DeepCopy())
			return apierrors.IsNotFound(err), err
		})
	})
	return remove
}

// request asks for a look at a node.
func request(node string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: node}}
}

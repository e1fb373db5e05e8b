package controller

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
)

var errLost = errors.New("the test lets this request fail")

// life is one life of a controller that works without caches, under a clock of the test.
type life struct {
	*rig
	*Reconciler
	writes *writes
	ahead  time.Duration // of the real clock
}

// writes counts a client's writes, and lets the process die at one of them: from then on no request
// gets through.
type writes struct {
	mu    sync.Mutex
	n     int
	dieAt int  // 0: never
	done  bool // the fatal write itself still takes effect
	dead  bool
	seen  []string
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *writes) read(read func() error) error {
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return errLost
	}
	return read()
}

func (w *writes) do(what string, write func() error) error {
	w.mu.Lock()
	effect := !w.dead
	if effect {
		w.n++
		w.seen = append(w.seen, what)
		w.dead = w.n == w.dieAt
		effect = !w.dead || w.done
	}
	alive := !w.dead
	w.mu.Unlock()
	if effect {
		if err := write(); alive || err != nil {
			return err
		}
	}
	return errLost
}

// noVPAs is a cluster that does not serve VerticalPodAutoscalers.
type noVPAs struct{}

func (noVPAs) List(context.Context, string) ([]constraints.VPA, string, error) { return nil, "", nil }

// live starts a controller.
func (r *rig) live() *life { return r.liveUntil(0, false) }

// liveUntil starts a controller whose client dies at the given write; 0 for never.
func (r *rig) liveUntil(dieAt int, done bool) *life {
	r.Helper()
	w := &writes{dieAt: dieAt, done: done}
	c := interceptor.NewClient(r.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return w.read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			return w.read(func() error { return c.List(ctx, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.do("create", func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.do("delete", func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.do("patch", func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return w.do("patch "+sub, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	l := &life{rig: r, Reconciler: r.reconciler(c, c), writes: w}
	l.Reconciler.Now = func() time.Time { return time.Now().Add(l.ahead) }
	l.Reconciler.Config.Pods = 1
	l.Gate.Set("", "")
	l.lookups.vpas = noVPAs{}
	return l
}

// pass lets time pass, in which the agent renews its Lease.
func (l *life) pass(d time.Duration) {
	l.Helper()
	l.ahead += d
	l.hearAt(time.Now().Add(l.ahead))
}

// once reconciles the node.
func (l *life) once() (ctrl.Result, error) {
	return l.Reconcile(l.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: l.kubelet.Node}})
}

// look reconciles the node and returns the pod's allocation; nil where it has none.
func (l *life) look(pod *corev1.Pod) *v1alpha1.PodAllocation {
	l.Helper()
	_, err := l.once()
	l.must(err)
	return l.stored(pod)
}

// settles reconciles until the allocation is as wanted. The agent confirms a decision when it is
// asked to.
func (l *life) settles(pod *corev1.Pod, phase v1alpha1.Phase, reason reasons.Reason) *v1alpha1.PodAllocation {
	l.Helper()
	return l.becomes(pod, string(phase)+" "+string(reason), func(pa *v1alpha1.PodAllocation) bool {
		if reason != reasons.DecisionTooOld {
			l.confirm(pod)
		}
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

// told counts the events with a reason that were sent so far.
func (l *life) told(reason reasons.Reason) (n int) {
	sent := l.Events.(*events.FakeRecorder).Events
	for range len(sent) {
		if strings.Contains(<-sent, " "+string(reason)+" ") {
			n++
		}
	}
	return n
}

// answer has every resize answered with an outcome instead. One whose answer is lost is lost after
// its dry run.
type answer struct{ podresize.Result }

func (a answer) Apply(context.Context, *corev1.Pod, actuator.Move) podresize.Result { return a.Result }
func (a answer) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	if a.Outcome == podresize.Unknown {
		return podresize.Result{Outcome: podresize.Accepted}
	}
	return a.Result
}

// witness is called before each resize, and each dry run; either may be nil.
type witness struct {
	Resizer
	apply, dry func(*corev1.Pod)
}

func (w witness) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if w.apply != nil {
		w.apply(pod)
	}
	return w.Resizer.Apply(ctx, pod, move)
}

func (w witness) DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if w.dry != nil {
		w.dry(pod)
	}
	return w.Resizer.DryRun(ctx, pod, move)
}

// custom is a definition of a custom resource that takes anything.
func custom(plural, group, kind string, scale bool) *apiextensionsv1.CustomResourceDefinition {
	yes := true
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = plural + "." + group
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, Singular: strings.ToLower(kind)}
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true,
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &yes,
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
	}
	if scale {
		selector := ".status.selector"
		version.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	return crd
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

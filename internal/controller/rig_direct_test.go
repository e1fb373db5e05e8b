package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
)

// life is one life of a controller that works without caches, under a clock of the test.
type life struct {
	*rig
	*Reconciler
	writes *writes
	ahead  time.Duration // of the real clock
}

// writes counts a client's writes, and lets the process die at one of them: from then on nothing gets through.
type writes struct {
	mu    sync.Mutex
	n     int
	dieAt int  // 0: never
	done  bool // the fatal write itself still takes effect
	dead  bool
	seen  []string
}

// pass says whether a write takes effect, and whether its writer lives to see the answer.
func (w *writes) pass(what string) (effect, alive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return false, false
	}
	w.n++
	w.seen = append(w.seen, what)
	if w.n == w.dieAt {
		w.dead = true
		return w.done, false
	}
	return true, true
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *writes) do(what string, write func() error) error {
	effect, alive := w.pass(what)
	if effect {
		if err := write(); alive || err != nil {
			return err
		}
	}
	if !alive {
		return errLost
	}
	return nil
}

// live starts a controller whose client dies at the given write; 0 for never.
func (r *rig) live(dieAt int, done bool) *life {
	r.Helper()
	w := &writes{dieAt: dieAt, done: done}
	reading := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dead {
			return errLost
		}
		return nil
	}
	c := interceptor.NewClient(r.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := reading(); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			if err := reading(); err != nil {
				return err
			}
			return c.List(ctx, o, opts...)
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
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
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

// once reconciles the node.
func (l *life) once() (ctrl.Result, error) {
	return l.Reconcile(l.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: l.kubelet.Node}})
}

// look reconciles the node and returns the pod's allocation; nil where it has none.
func (l *life) look(pod *corev1.Pod) *v1alpha1.PodAllocation {
	l.Helper()
	if _, err := l.once(); err != nil {
		l.Fatal(err)
	}
	return l.stored(pod)
}

func (r *rig) stored(pod *corev1.Pod) *v1alpha1.PodAllocation {
	r.Helper()
	pa := &v1alpha1.PodAllocation{}
	err := r.Client.Get(r.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, pa)
	if client.IgnoreNotFound(err) != nil {
		r.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return pa
}

// settles reconciles until the allocation is as wanted. The agent confirms a decision when it is asked to.
func (l *life) settles(pod *corev1.Pod, phase v1alpha1.Phase, reason reasons.Reason) *v1alpha1.PodAllocation {
	l.Helper()
	var pa *v1alpha1.PodAllocation
	l.until(string(phase)+" "+string(reason), func() (bool, any) {
		if pa = l.look(pod); pa == nil {
			return false, "no allocation"
		}
		if reason != reasons.DecisionTooOld {
			l.confirm(pod)
		}
		return stands(phase, reason)(pa), pa.Status
	})
	return pa
}

// confirm publishes a decision anew, as the agent does, if the controller finds it too old.
func (r *rig) confirm(pod *corev1.Pod) {
	r.Helper()
	pa := r.stored(pod)
	if pa == nil || pa.Spec.Decision == nil || !allocation.Published(pa).At.IsZero() {
		return
	}
	before := pa.DeepCopy()
	pa.Spec.Decision.ObservedAt = metav1.NowMicro()
	r.must(r.Client.Patch(r.Context(), pa, client.MergeFrom(before)))
}

// answer has every resize answered with an outcome instead. One that is lost is lost after its dry run.
type answer struct{ podresize.Result }

func (a answer) Apply(context.Context, *corev1.Pod, actuator.Move) podresize.Result { return a.Result }
func (a answer) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	if a.Outcome == podresize.Unknown {
		return podresize.Result{Outcome: podresize.Accepted}
	}
	return a.Result
}

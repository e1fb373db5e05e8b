package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

var rollout = kube.Target{APIVersion: "example.mbcas.io/v1", Kind: "Rollout", Name: "shop"}

// scales answers for the scale subresources of all targets, after a wait.
type scales struct {
	mu       sync.Mutex
	selector string
	err      error
	hang     bool // until the caller gives up
	asked    int
}

func (s *scales) answer(selector string, err error, hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selector, s.err, s.hang = selector, err, hang
}

func (s *scales) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *scales) client() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceGet: func(ctx context.Context, _ client.Client, _ string, _, scale client.Object, _ ...client.SubResourceGetOption) error {
			s.mu.Lock()
			s.asked++
			selector, err, hang := s.selector, s.err, s.hang
			s.mu.Unlock()
			if hang {
				<-ctx.Done()
				return ctx.Err()
			}
			scale.(*unstructured.Unstructured).Object["status"] = map[string]any{"selector": selector}
			return err
		},
	})
}

var errDown = apierrors.NewServiceUnavailable("the test takes the server down")

// TestSelectorStands: a selector that was told once stands while the API server does not answer, and goes only with its target.
func TestSelectorStands(t *testing.T) {
	resource := schema.GroupResource{Group: "example.mbcas.io", Resource: "rollouts"}
	for reason, c := range map[string]struct {
		err   error
		stand bool
	}{
		"down":                 {errDown, true},
		"forbidden":            {apierrors.NewForbidden(resource, "shop", errors.New("no")), true},
		"no connection":        {errLost, true},
		"the target is gone":   {apierrors.NewNotFound(resource, "shop"), false},
		"its kind is gone":     {&meta.NoKindMatchError{GroupKind: rollout.GroupKind()}, false},
		"it does not scale":    {apierrors.NewMethodNotSupported(resource, "get"), false},
		"it tells no selector": {nil, false},
	} {
		server := &scales{selector: "app=shop"}
		s := newSelectors(server.client(), slog.New(slog.DiscardHandler))
		now := noon
		of := func() labels.Selector {
			t.Helper()
			got, err := s.of(t.Context(), "shop", rollout, func() time.Time { return now })
			if err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			return got
		}
		pod := labels.Set{"app": "shop"}
		if got := of(); got == nil || !got.Matches(pod) {
			t.Fatalf("%s: selector %v at first", reason, got)
		}
		server.answer("", c.err, false)
		for range 3 {
			now = now.Add(keepSelector)
			if got := of(); (got != nil && got.Matches(pod)) != c.stand {
				t.Errorf("%s: selector %v, want that it stands: %v", reason, got, c.stand)
			}
		}
		if n := server.questions(); n != 4 {
			t.Errorf("%s: %d questions, want one each time", reason, n)
		}
		server.answer("app=other", nil, false)
		now = now.Add(keepSelector)
		if got := of(); got == nil || !got.Matches(labels.Set{"app": "other"}) {
			t.Errorf("%s: selector %v after it is told again", reason, got)
		}
	}
}

// TestSelectorNeverTold: who was never told a selector knows that, and that soon after it is asked for again.
func TestSelectorNeverTold(t *testing.T) {
	server := &scales{err: errDown}
	s := newSelectors(server.client(), slog.New(slog.DiscardHandler))
	now := noon
	clock := func() time.Time { return now }
	for range 3 {
		if got, err := s.of(t.Context(), "shop", rollout, clock); got != nil || !apierrors.IsServiceUnavailable(err) {
			t.Errorf("selector %v, %v: want the server's error", got, err)
		}
	}
	if n := server.questions(); n != 1 {
		t.Errorf("%d questions at once, want one", n)
	}
	server.answer("app=shop", nil, false)
	now = now.Add(failedRetry)
	if got, err := s.of(t.Context(), "shop", rollout, clock); err != nil || got == nil {
		t.Errorf("selector %v, %v", got, err)
	}
	broken := kube.Target{APIVersion: "a/b/c", Kind: "Rollout", Name: "shop"} // nobody knows its pods
	if got, err := s.of(t.Context(), "shop", broken, clock); got != nil || err != nil {
		t.Errorf("selector %v, %v of a target that cannot be", got, err)
	}
}

// TestSelectorHangs: a target that hangs costs one caller a few seconds. The others go by what was told before, or wait for that
// caller where nothing was; and a caller whose own time is up learns and leaves nothing.
func TestSelectorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &scales{hang: true}
		s := newSelectors(server.client(), slog.New(slog.DiscardHandler))
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.of(short, "shop", rollout, time.Now); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v when the caller's time is up", err)
		}
		if len(s.known) != 0 {
			t.Errorf("known after that: %+v", s.known)
		}
		type result struct {
			selector labels.Selector
			err      error
			took     time.Duration
		}
		all := func() (results [8]result) {
			start := time.Now()
			var wg sync.WaitGroup
			for i := range results {
				wg.Go(func() {
					got, err := s.of(t.Context(), "shop", rollout, time.Now)
					results[i] = result{got, err, time.Since(start)}
				})
			}
			wg.Wait()
			return results
		}
		for _, got := range all() {
			if got.err == nil {
				t.Error("no error of a target that was never told")
			}
		}
		if took, n := time.Since(start), server.questions(); took != time.Second+askWithin || n != 2 {
			t.Errorf("eight callers took %v and asked %d times, want %v and one question besides that of the first", took, n, time.Second+askWithin)
		}

		server.answer("app=shop", nil, false)
		time.Sleep(askSoon)
		all()
		server.answer("", nil, true)
		time.Sleep(keepSelector)
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := s.of(short, "shop", rollout, time.Now); got == nil || err != nil {
			t.Errorf("selector %v, %v when the caller's time is up, want that of before", got, err)
		}
		before := server.questions()
		held := 0
		for _, got := range all() {
			if got.selector == nil || got.err != nil {
				t.Errorf("selector %v, %v while the target hangs, want that of before", got.selector, got.err)
			}
			if got.took > 0 {
				held++
			}
		}
		if n := server.questions() - before; n != 1 || held != 1 {
			t.Errorf("%d questions and %d callers held up while the target hangs, want one", n, held)
		}
	})
}

// TestATargetThatDoesNotAnswer: the pods that an HPA of a target would protect are not resized as long as the target never told its pods,
// others of the namespace are.
func TestATargetThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	install(r, custom("rollouts", "example.mbcas.io", "Rollout", true))
	target := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	target.SetAPIVersion(rollout.APIVersion)
	target.SetKind(rollout.Kind)
	target.SetNamespace(r.namespace)
	target.SetName(rollout.Name)
	r.must(r.Client.Create(r.Context(), target))
	target.Object["status"] = map[string]any{"replicas": int64(1), "selector": "app=shop"}
	r.must(r.Client.Status().Update(r.Context(), target))
	metric := onCPU(100)
	r.must(r.Client.Create(r.Context(), hpa(r.namespace, "shop", rollout, metric)))

	there, w := r.wired(nil)
	scale := "/apis/example.mbcas.io/v1/namespaces/" + r.namespace + "/rollouts/shop/scale"
	w.fail(scale)
	there.start()
	pod := r.ownedPod("shop", "shop", "200m", "900m")
	pa := r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	if want := reasons.AutoscalerLookupFailed.Sentence() + ": the pods of HorizontalPodAutoscaler shop, by its target Rollout/shop: no answer of the API server"; pa.Status.Message != want {
		t.Errorf("message %q, want %q", pa.Status.Message, want)
	}
	r.publish(pod, "0.500", app(220))
	asked := w.requests(http.MethodGet, "/scale")
	r.until("asked again", func() (bool, any) { n := w.requests(http.MethodGet, "/scale"); return n > asked, n })
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v while it is not known that an HPA watches the pod, want 900m", got)
	}
	w.fail("")
	r.until("left to its HPA", func() (bool, any) {
		pa := r.stored(pod)
		return pa.Status.Constraints != nil && pa.Status.Constraints.NoDecrease == string(reasons.ScaledByHPA), pa.Status
	})
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v, want 900m", got)
	}
}

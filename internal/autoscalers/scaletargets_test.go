package autoscalers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/kube"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

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

// targetsOf knows the targets of a server.
func targetsOf(s *scales, now func() time.Time) *ScaleTargets {
	return NewScaleTargets(s.client(), slog.New(slog.DiscardHandler), now)
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

// TestKeepsTheLastSelector: a selector that was read once is used while the API server does not answer, and goes only with its target.
func TestKeepsTheLastSelector(t *testing.T) {
	resource := schema.GroupResource{Group: "example.mbcas.io", Resource: "rollouts"}
	for reason, c := range map[string]struct {
		err   error
		stand bool
	}{
		"down":                 {errDown, true},
		"forbidden":            {apierrors.NewForbidden(resource, "shop", errors.New("no")), true},
		"no connection":        {errors.New("no connection"), true},
		"the target is gone":   {apierrors.NewNotFound(resource, "shop"), false},
		"its kind is gone":     {&meta.NoKindMatchError{GroupKind: rollout.GroupKind()}, false},
		"it does not scale":    {apierrors.NewMethodNotSupported(resource, "get"), false},
		"it tells no selector": {nil, false},
	} {
		server := &scales{selector: "app=shop"}
		now := noon
		s := targetsOf(server, func() time.Time { return now })
		of := func() labels.Selector {
			t.Helper()
			got, err := s.Selector(t.Context(), "shop", rollout)
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

// TestNeverAnswered: that a target never answered is an error, and it is asked again soon.
func TestNeverAnswered(t *testing.T) {
	server := &scales{err: errDown}
	now := noon
	s := targetsOf(server, func() time.Time { return now })
	for range 3 {
		if got, err := s.Selector(t.Context(), "shop", rollout); got != nil || !apierrors.IsServiceUnavailable(err) {
			t.Errorf("selector %v, %v: want the server's error", got, err)
		}
	}
	if n := server.questions(); n != 1 {
		t.Errorf("%d questions at once, want one", n)
	}
	server.answer("app=shop", nil, false)
	now = now.Add(retryUnknown)
	if got, err := s.Selector(t.Context(), "shop", rollout); err != nil || got == nil {
		t.Errorf("selector %v, %v", got, err)
	}
	broken := kube.Target{APIVersion: "a/b/c", Kind: "Rollout", Name: "shop"} // no such group can exist
	if got, err := s.Selector(t.Context(), "shop", broken); got != nil || err != nil {
		t.Errorf("selector %v, %v of a target that cannot be", got, err)
	}
}

// TestAsksOnce: a target that hangs costs one caller a few seconds. All others use the last answer, or wait for that caller
// if there is none; and a caller whose own time is up learns and leaves nothing.
func TestAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &scales{hang: true}
		s := targetsOf(server, time.Now)
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Selector(short, "shop", rollout); !errors.Is(err, context.DeadlineExceeded) {
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
					got, err := s.Selector(t.Context(), "shop", rollout)
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
		if took, n := time.Since(start), server.questions(); took != time.Second+askTimeout || n != 2 {
			t.Errorf("eight callers took %v and asked %d times, want %v and one question besides that of the first", took, n, time.Second+askTimeout)
		}

		server.answer("app=shop", nil, false)
		time.Sleep(retryUnknown)
		all()
		server.answer("", nil, true)
		time.Sleep(keepSelector)
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := s.Selector(short, "shop", rollout); got == nil || err != nil {
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

// TestUnknownUntilListed: as long as VPAs cannot be listed, callers learn that they are not known, and why.
func TestUnknownUntilListed(t *testing.T) {
	v := &VPAs{}
	for _, c := range []struct {
		state   VPAState
		cause   string
		unknown string
	}{
		{VPAsUnknown, "no answer of the API server", "VerticalPodAutoscalers: no answer of the API server"}, {NoVPAs, "", ""},
		{VPAsUnknown, "they have just been installed", "VerticalPodAutoscalers: they have just been installed"},
	} {
		if !v.set(c.state, c.cause, nil) || v.set(c.state, c.cause, nil) {
			t.Errorf("%v: no change, or two", c.state)
		}
		if list, unknown, err := v.List(t.Context(), "shop"); len(list) != 0 || unknown != c.unknown || err != nil {
			t.Errorf("state %v: %v, %q, %v", c.state, list, unknown, err)
		}
	}
	v.found = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := v.List(ctx, "shop"); !errors.Is(err, context.Canceled) {
		t.Errorf("before the first discovery: %v", err)
	}
}

// TestNamespaceOf: a VPA that is deleted unseen wakes its namespace as any other does.
func TestNamespaceOf(t *testing.T) {
	vpa := anyVPA()
	vpa.SetNamespace("shop")
	for _, c := range []struct {
		o    any
		want string
	}{{vpa, "shop"}, {toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: vpa}, "shop"}, {"nonsense", ""}} {
		if got := namespaceOf(c.o); got != c.want {
			t.Errorf("%T: namespace %q, want %q", c.o, got, c.want)
		}
	}
}

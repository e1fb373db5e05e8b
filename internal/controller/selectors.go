package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// selectors knows the pods of custom scale targets by their scale subresource, as the HPA controller does. Answers
// are kept, because a selector hardly ever changes; while the API server does not answer, the last answer stands.
type selectors struct {
	client client.Client
	log    *slog.Logger

	mu     sync.Mutex
	known  map[scaled]told
	asking map[scaled]chan struct{} // closed when the answer is there
}

type scaled struct {
	namespace string
	target    kube.Target
}

type told struct {
	selector labels.Selector // nil: there is no such target, or it does not scale
	err      error           // why the API server never told; nil: it has
	failing  bool            // it did not tell when last asked
	until    time.Time
}

// How long an answer is kept; how long the API server is left alone after it did not tell, if it told before and if it never did; and
// how long it may take to tell. Pods are held back where it never told, so then it is asked again soon.
const (
	keepSelector = 10 * time.Minute
	askAgain     = time.Minute
	askSoon      = failedRetry
	askWithin    = 3 * time.Second
)

func newSelectors(c client.Client, log *slog.Logger) *selectors {
	return &selectors{client: c, log: log, known: map[scaled]told{}, asking: map[scaled]chan struct{}{}}
}

// of is the selector of a target; nil where there is no such target. The error says that it was never told. One caller asks the API server:
// the others go by what was told before, and wait only where nothing was.
func (s *selectors) of(ctx context.Context, namespace string, t kube.Target, now func() time.Time) (labels.Selector, error) {
	key := scaled{namespace, t}
	for {
		s.mu.Lock()
		a, ok := s.known[key]
		answer := s.asking[key]
		fresh := ok && now().Before(a.until)
		if !fresh && answer == nil {
			answer = make(chan struct{})
			s.asking[key] = answer
			s.mu.Unlock()
			return s.renew(ctx, key, a, ok, now)
		}
		s.mu.Unlock()
		if fresh || ok && a.err == nil {
			return a.selector, a.err
		}
		select {
		case <-answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// renew asks for a selector, and keeps what is known after that. Where the caller's own time is up, that says nothing about the target.
func (s *selectors) renew(ctx context.Context, key scaled, before told, known bool, now func() time.Time) (labels.Selector, error) {
	asked, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	selector, err := s.ask(asked, key.namespace, key.target)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asking[key])
	delete(s.asking, key)
	known = known && before.err == nil
	a := told{selector: selector, until: now().Add(keepSelector)}
	switch {
	case err == nil:
	case ctx.Err() != nil && known:
		return before.selector, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case noSelector(err):
		a = told{failing: true, until: now().Add(askAgain)}
	case known:
		a = told{selector: before.selector, failing: true, until: now().Add(askAgain)}
	default:
		a = told{err: err, failing: true, until: now().Add(askSoon)}
	}
	if a.failing && !before.failing { // said once
		s.log.Warn("a scale target did not tell its pods", "namespace", key.namespace, "target", key.target.String(), "err", err, "kept", known)
	}
	for k, old := range s.known { // nobody asks for them any more
		if now().After(old.until.Add(keepSelector)) {
			delete(s.known, k)
		}
	}
	s.known[key] = a
	return a.selector, a.err
}

// noSelector says whether err is an answer: that there is no such target, or nothing that its autoscaler could know its pods by either.
func noSelector(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, kube.ErrUnreadable)
}

func (s *selectors) ask(ctx context.Context, namespace string, t kube.Target) (labels.Selector, error) {
	o, scale, err := kube.ScaleOf(namespace, t)
	if err != nil {
		return nil, err
	}
	if err := s.client.SubResource("scale").Get(ctx, o, scale); err != nil {
		return nil, err
	}
	return kube.SelectorOf(scale)
}

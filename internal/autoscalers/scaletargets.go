package autoscalers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// ScaleTargets knows the pods of custom scale targets by their scale subresource, as the HPA controller does. Selectors hardly
// ever change, so answers are kept. If the scale subresource does not answer, the last known selector is used.
type ScaleTargets struct {
	client client.Client
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	known  map[scaleTarget]lookup
	asking map[scaleTarget]chan struct{} // closed when the answer is there
}

type scaleTarget struct {
	namespace string
	target    kube.Target
}

// lookup is what is known of a target.
type lookup struct {
	selector labels.Selector // nil: there is no such target, or it does not scale
	err      error           // why the API server never answered; nil: it has
	failing  bool            // it did not answer when last asked
	until    time.Time
}

// How long an answer is kept; how soon the API server is asked again after it did not answer, if it has before and if it never
// has; and how long it may take to answer. Pods wait while a target has never answered, so then it is asked again soon.
const (
	keepSelector = 10 * time.Minute
	retryKnown   = time.Minute
	retryUnknown = 5 * time.Second
	askTimeout   = 3 * time.Second
)

// NewScaleTargets knows no target yet.
func NewScaleTargets(c client.Client, log *slog.Logger, now func() time.Time) *ScaleTargets {
	return &ScaleTargets{client: c, log: log, now: now, known: map[scaleTarget]lookup{}, asking: map[scaleTarget]chan struct{}{}}
}

// Selector is the selector of a target; nil if there is no such target. The error says that the target never answered. One caller asks
// the API server: the others use the last answer, and wait only if there is none.
func (s *ScaleTargets) Selector(ctx context.Context, namespace string, t kube.Target) (labels.Selector, error) {
	key := scaleTarget{namespace, t}
	for {
		s.mu.Lock()
		last, ok := s.known[key]
		answer := s.asking[key]
		fresh := ok && s.now().Before(last.until)
		if !fresh && answer == nil {
			answer = make(chan struct{})
			s.asking[key] = answer
			s.mu.Unlock()
			return s.renew(ctx, key, last, ok)
		}
		s.mu.Unlock()
		if fresh || ok && last.err == nil {
			return last.selector, last.err
		}
		select {
		case <-answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// renew asks for a selector, and keeps the answer. If the caller's own time is up, that says nothing about the target.
func (s *ScaleTargets) renew(ctx context.Context, key scaleTarget, before lookup, known bool) (labels.Selector, error) {
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	selector, err := ReadSelector(asked, s.client, key.namespace, key.target)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asking[key])
	delete(s.asking, key)
	known = known && before.err == nil
	now := s.now()
	found := lookup{selector: selector, until: now.Add(keepSelector)}
	switch {
	case err == nil:
	case ctx.Err() != nil && known:
		return before.selector, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case noSelector(err):
		found = lookup{failing: true, until: now.Add(retryKnown)}
	case known:
		found = lookup{selector: before.selector, failing: true, until: now.Add(retryKnown)}
	default:
		found = lookup{err: err, failing: true, until: now.Add(retryUnknown)}
	}
	if found.failing && !before.failing {
		s.log.Warn("the scale subresource did not answer", "namespace", key.namespace, "target", key.target.String(), "err", err, "lastSelectorUsed", known)
	}
	for k, old := range s.known { // of targets that are no longer asked for
		if now.After(old.until.Add(keepSelector)) {
			delete(s.known, k)
		}
	}
	s.known[key] = found
	return found.selector, found.err
}

// noSelector says whether err is an answer: there is no such target, or nothing by which its autoscaler could know its pods either.
func noSelector(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, kube.ErrUnreadable)
}

// ReadSelector reads the selector of a target's pods from its scale subresource, as autoscalers do.
func ReadSelector(ctx context.Context, c client.Client, namespace string, t kube.Target) (labels.Selector, error) {
	o, scale, err := kube.ScaleOf(namespace, t)
	if err != nil {
		return nil, fmt.Errorf("its target %s: %w", t, err)
	}
	if err := c.SubResource("scale").Get(ctx, o, scale); err != nil {
		return nil, fmt.Errorf("read the scale of %s %s/%s: %w", t.Kind, namespace, t.Name, err)
	}
	return kube.SelectorOf(scale)
}

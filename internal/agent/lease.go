package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

const (
	// The Lease is renewed every renewInterval and a random part of renewSpread, so that the agents
	// of a cluster stay apart. startSpread keeps those apart that start together.
	renewInterval = 20 * time.Second
	renewSpread   = 10 * time.Second
	startSpread   = 2 * time.Second
	checkInterval = time.Second // while no rounds complete; sends no request
	// settleWait is how long an agent that starts waits with its first renewal for decisions that it
	// can confirm: a node's demand is known after ten rounds. Longer lets the Lease of the agent
	// before it expire; shorter says that no decision of the node is confirmed.
	settleWait = 20 * time.Second
	// lastTimeout bounds the renewal at the end: it gives the next agent time to start.
	lastTimeout = 2 * time.Second
	// After a failure the wait doubles from firstRetry to longestRetry; half of it is random.
	firstRetry   = 2 * time.Second
	longestRetry = 10 * time.Second
	// leaseSeconds is the duration of the Lease. On a node whose Lease is older the controller resizes
	// nothing, and its holder publishes nothing. It leaves room for retries for half a minute.
	leaseSeconds  = 60
	leaseDuration = leaseSeconds * time.Second
)

// heartbeat renews the node's Lease while rounds complete.
type heartbeat struct {
	lease   string // namespace and name, for the log
	live    func(time.Time) bool
	settled func() bool // see settleWait
	// takeOver takes the Lease over that the agent before this one left; renew renews it.
	takeOver, renew func(context.Context, time.Time) error
	health          *health.State
	log             *slog.Logger
	metrics         *metrics

	liveSince time.Time                    // the first round; zero: none has completed
	begins    bool                         // the first renewal was due
	holds     bool                         // the last renewal succeeded
	retry     time.Duration                // the last wait after a failure; 0: there was none since the last success
	logged    map[metav1.StatusReason]bool // of the failures since then
	standby   bool                         // as logged
}

// Run renews the Lease until ctx ends, and then for the last time.
func (h *heartbeat) Run(ctx context.Context) {
	timer := time.NewTimer(rand.N(startSpread))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			h.endTenure(context.WithoutCancel(ctx), time.Now())
			return
		case <-timer.C:
		}
		timer.Reset(h.beat(ctx, time.Now()))
	}
}

// beat renews the Lease, if rounds complete, and returns the wait until the next time.
func (h *heartbeat) beat(ctx context.Context, now time.Time) (wait time.Duration) {
	if !h.live(now) {
		h.metrics.heartbeats.skipped.Inc()
		return checkInterval
	}
	if h.begins = h.begins || h.isDue(ctx, now); !h.begins {
		return checkInterval
	}
	err := h.renew(ctx, now)
	var other *otherHolder
	standby := errors.As(err, &other)
	h.setStandby(standby, err)
	h.holds = err == nil
	switch {
	case err == nil:
		h.metrics.heartbeats.renewed.Inc()
		h.retry, h.logged = 0, nil
		return renewInterval + rand.N(renewSpread)
	case standby:
		h.metrics.heartbeats.standby.Inc()
		h.retry = longestRetry
	default:
		h.metrics.heartbeats.failed.Inc()
		if h.logged == nil {
			h.logged = map[metav1.StatusReason]bool{}
		}
		if why := apierrors.ReasonForError(err); !h.logged[why] && ctx.Err() == nil {
			h.logged[why] = true
			h.log.Warn("lease not renewed", "lease", h.lease, "err", err)
		}
		h.retry = min(max(firstRetry, 2*h.retry), longestRetry)
	}
	return h.retry/2 + rand.N(h.retry/2)
}

// isDue says whether the first renewal is due. Until then the Lease is only taken over: the round needs the
// price in it, and throttled pods need not wait.
func (h *heartbeat) isDue(ctx context.Context, now time.Time) bool {
	if h.liveSince.IsZero() {
		h.liveSince = now
	}
	if h.settled() || now.Sub(h.liveSince) >= settleWait {
		return true
	}
	if err := h.takeOver(ctx, now); err != nil {
		h.log.Debug("lease not taken over", "lease", h.lease, "err", err)
	}
	return false
}

// endTenure renews the Lease for the agent that follows, if this one held it.
func (h *heartbeat) endTenure(ctx context.Context, now time.Time) {
	if !h.holds || !h.live(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	if err := h.renew(ctx, now); err != nil {
		h.log.Debug("lease not renewed at the end", "lease", h.lease, "err", err)
	}
}

// setStandby tells /readyz and the log when another agent takes the node over, and when that ends.
func (h *heartbeat) setStandby(standby bool, err error) {
	switch {
	case standby:
		why := err.Error()
		h.health.StandsBy(why)
		if !h.standby {
			h.log.Error("two agents run on this node, and this one publishes nothing", "lease", h.lease, "err", err)
		}
	case err == nil:
		h.health.StandsBy("")
		if h.standby {
			h.log.Info("this agent holds the lease of the node now", "lease", h.lease)
		}
	default:
		return // not known
	}
	h.standby = standby
}

// leaseClient writes the node's Lease. Only its holder publishes decisions: where two agents run on
// a node, the one of the newer pod.
type leaseClient struct {
	client    rest.Interface
	namespace string
	holder    string // the name of the agent's pod
	node      string
	snapshot  func() *snapshot
	market    func(time.Time) string // the annotation kube.MarketKey
	last      *coordinationv1.Lease  // as the API server returned it last; nil: not known
	tenure    atomic.Pointer[tenure]
	// before is the price in the Lease that was found at the start; nil in it: it has none that counts.
	before atomic.Pointer[*market.Price]
}

// tenure is the time in which this agent may publish.
type tenure struct{ from, until time.Time }

// holds says whether this agent may publish.
func (l *leaseClient) holds(now time.Time) bool {
	t := l.tenure.Load()
	return t != nil && !now.Before(t.from) && now.Before(t.until)
}

// priceBefore is the price of the agent before this one, if it renewed the Lease lately; not known before
// the Lease was read, or where there is none.
func (l *leaseClient) priceBefore() (p market.Price, known bool) {
	if p := l.before.Load(); p != nil && *p != nil {
		return **p, true
	}
	return 0, false
}

// priceKept is the age of a Lease up to which its price is taken up: later, limits are restored.
const priceKept = 5 * time.Minute

// takeUp remembers the price in the Lease that is found first.
func (l *leaseClient) takeUp(seen *coordinationv1.Lease, now time.Time) {
	m, err := allocation.ParseNodeMarket(seen.Annotations[kube.MarketKey])
	price := &m.Price
	if renewed := seen.Spec.RenewTime; err != nil || renewed == nil || now.Sub(renewed.Time) > priceKept || m.Round == 0 {
		price = nil
	}
	l.before.CompareAndSwap(nil, &price)
}

// takeOver makes this agent the holder of a Lease that has not expired, without renewing it: from then on it
// may publish, and what the agent before it has confirmed stays as it is. Where another agent may publish,
// nothing changes.
func (l *leaseClient) takeOver(ctx context.Context, now time.Time) error {
	if l.tenure.Load() != nil {
		return nil
	}
	if err := l.find(ctx, now); err != nil {
		return err
	}
	renewed := l.last.Spec.RenewTime
	if renewed == nil || now.Sub(renewed.Time) >= leaseDuration {
		return nil
	}
	from, err := l.claim(now)
	if err != nil {
		l.last = nil // the holder renews it
		return err
	}
	if from.After(now) { // the agent before may still publish: a renewal takes the Lease over
		return nil
	}
	if h := l.last.Spec.HolderIdentity; h == nil || *h != l.holder {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		next := l.last.DeepCopy()
		l.setHolder(next, metav1.NewMicroTime(now))
		if err := l.put(ctx, next); err != nil {
			l.last = nil
			return err
		}
	}
	l.tenure.Store(&tenure{from, renewed.Add(leaseDuration)})
	return nil
}

// otherHolder is why this agent does not renew the Lease.
type otherHolder struct{ name string }

func (o *otherHolder) Error() string {
	return "the agent's pod " + o.name + " holds the Lease: is there a second DaemonSet, or an agent outside of it?"
}

// renew sets the renew time of the Lease. A Lease that is not as it was last known is read again.
func (l *leaseClient) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := l.update(ctx, now)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		l.last = nil
		err = l.update(ctx, now)
	}
	switch {
	case err == nil:
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		l.last = nil
	case l.last != nil && l.last.ResourceVersion == "":
		// The answer to a creation may be lost. The API server refuses to update a Lease without its version.
		l.last = nil
	}
	return err
}

// update renews the Lease as last known. An update creates a Lease that does not exist, for which
// the API server demands no rights beyond those to update and create.
func (l *leaseClient) update(ctx context.Context, now time.Time) error {
	if err := l.find(ctx, now); err != nil {
		return err
	}
	from, err := l.claim(now)
	if err != nil {
		l.tenure.Store(nil)
		l.last = nil // the holder renews it
		return err
	}
	next := l.last.DeepCopy()
	l.setRenewed(next, metav1.NewMicroTime(now))
	if err := l.put(ctx, next); err != nil {
		return err
	}
	l.tenure.Store(&tenure{from, now.Add(leaseDuration)})
	return nil
}

// put writes the Lease.
func (l *leaseClient) put(ctx context.Context, next *coordinationv1.Lease) error {
	var answer coordinationv1.Lease
	err := l.client.Put().Namespace(l.namespace).Resource("leases").Name(next.Name).Body(next).Do(ctx).Into(&answer)
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	l.last = &answer
	return nil
}

// find reads the Lease where it is not known.
func (l *leaseClient) find(ctx context.Context, now time.Time) error {
	if l.last != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var seen coordinationv1.Lease
	name := kube.AgentLease(l.node)
	err := l.client.Get().Namespace(l.namespace).Resource("leases").Name(name).Do(ctx).Into(&seen)
	switch {
	case apierrors.IsNotFound(err): // the Lease is deleted with its node
		seen.Namespace, seen.Name = l.namespace, name
		seen.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: l.node, UID: l.snapshot().NodeUID},
		}
	case err != nil:
		return fmt.Errorf("get: %w", err)
	}
	l.takeUp(&seen, now)
	l.last = &seen
	return nil
}

// claim is from when this agent may publish once it has renewed the Lease as last known, or why it
// may not renew it. Of two pods that run the newer one holds the Lease, so it never changes hands
// twice. It publishes only when the older one, which may not know yet, cannot any more.
func (l *leaseClient) claim(now time.Time) (from time.Time, err error) {
	s := l.last.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || *s.HolderIdentity == l.holder {
		if t := l.tenure.Load(); t != nil {
			return t.from, nil
		}
		return now, nil
	}
	expired := s.RenewTime == nil || now.Sub(s.RenewTime.Time) > leaseDuration
	node := l.snapshot()
	other, running := node.pod(l.namespace, *s.HolderIdentity)
	own, known := node.pod(l.namespace, l.holder)
	switch {
	case expired, !running && node.NotReady == "":
		return now, nil
	case known && own.newerThan(other):
		return now.Add(leaseDuration), nil
	}
	return time.Time{}, &otherHolder{*s.HolderIdentity}
}

// setRenewed fills in the renewal.
func (l *leaseClient) setRenewed(to *coordinationv1.Lease, at metav1.MicroTime) {
	metav1.SetMetaDataAnnotation(&to.ObjectMeta, kube.MarketKey, l.market(at.Time))
	seconds := int32(leaseSeconds)
	to.Spec.RenewTime, to.Spec.LeaseDurationSeconds = &at, &seconds
	l.setHolder(to, at)
}

// setHolder makes this agent the holder.
func (l *leaseClient) setHolder(to *coordinationv1.Lease, at metav1.MicroTime) {
	if to.Spec.HolderIdentity == nil || *to.Spec.HolderIdentity != l.holder {
		to.Spec.HolderIdentity, to.Spec.AcquireTime = &l.holder, &at
	}
}

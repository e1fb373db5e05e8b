package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/internal/kube"
)

const (
	renewInterval = 10 * time.Second
	retryInterval = time.Second // before the first round, and after a failure
	// leaseSeconds is the duration of the Lease. On a node whose Lease is older the controller resizes
	// nothing.
	leaseSeconds = 60
)

// heartbeat renews the node's Lease while rounds complete.
type heartbeat struct {
	lease   string // namespace and name, for the log
	live    func(time.Time) bool
	renew   func(context.Context, time.Time) error
	log     *slog.Logger
	metrics *metrics
}

// Run renews the Lease until ctx ends.
func (h *heartbeat) Run(ctx context.Context) {
	timer := time.NewTimer(retryInterval)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := retryInterval
		switch now := time.Now(); {
		case !h.live(now):
			h.metrics.heartbeats.skipped.Inc()
		default:
			err := h.renew(ctx, now)
			if err == nil {
				h.metrics.heartbeats.renewed.Inc()
				wait = renewInterval
				failed = false
				break
			}
			h.metrics.heartbeats.failed.Inc()
			if !failed && ctx.Err() == nil {
				h.log.Warn("lease not renewed", "lease", h.lease, "err", err)
				failed = true
			}
		}
		timer.Reset(wait)
	}
}

// leaseClient writes the node's Lease.
type leaseClient struct {
	client    rest.Interface
	namespace string
	holder    string
	node      string
	nodeUID   func() types.UID
	market    func(time.Time) string // the annotation kube.MarketKey
	last      *coordinationv1.Lease  // as the API server returned it last; nil: not known
}

// renew sets the renew time of the Lease. An update creates a Lease that does not exist, for which
// the API server demands no rights beyond those to update and create.
func (l *leaseClient) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name := kube.AgentLease(l.node)
	if l.last == nil {
		var seen coordinationv1.Lease
		err := l.client.Get().Namespace(l.namespace).Resource("leases").Name(name).Do(ctx).Into(&seen)
		switch {
		case apierrors.IsNotFound(err): // the Lease is deleted with its node
			seen.Namespace, seen.Name = l.namespace, name
			seen.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: l.node, UID: l.nodeUID()},
			}
		case err != nil:
			return fmt.Errorf("get: %w", err)
		}
		l.last = &seen
	}
	next := l.last.DeepCopy()
	l.setRenewed(next, metav1.NewMicroTime(now))
	var answer coordinationv1.Lease
	err := l.client.Put().Namespace(l.namespace).Resource("leases").Name(name).Body(next).Do(ctx).Into(&answer)
	if err != nil {
		l.last = nil // read it again next time
		return fmt.Errorf("update: %w", err)
	}
	l.last = &answer
	return nil
}

// setRenewed fills in the renewal. Another holder's Lease, of an earlier agent of this node, is
// taken over.
func (l *leaseClient) setRenewed(to *coordinationv1.Lease, at metav1.MicroTime) {
	metav1.SetMetaDataAnnotation(&to.ObjectMeta, kube.MarketKey, l.market(at.Time))
	seconds := int32(leaseSeconds)
	to.Spec.RenewTime, to.Spec.LeaseDurationSeconds = &at, &seconds
	if to.Spec.HolderIdentity == nil || *to.Spec.HolderIdentity != l.holder {
		to.Spec.HolderIdentity, to.Spec.AcquireTime = &l.holder, &at
	}
}

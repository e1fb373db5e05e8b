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
	beatEvery = 10 * time.Second
	beatSoon  = time.Second // while nothing is played yet, and after a failure
	// leaseSeconds is when a Lease that is not renewed counts as lapsed: the controller moves nothing then.
	leaseSeconds = 60
)

// heart renews the node's Lease while rounds are played.
type heart struct {
	lease   string // its name, for people
	playing func(time.Time) bool
	renew   func(context.Context, time.Time) error
	log     *slog.Logger
	metrics *metrics
}

// LeaseName is the name of a node's Lease.
func LeaseName(node string) string { return kube.AgentLease(node) }

// Run beats until ctx ends.
func (h *heart) Run(ctx context.Context) {
	timer := time.NewTimer(beatSoon)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := beatSoon
		switch now := time.Now(); {
		case !h.playing(now):
			h.metrics.beats.skipped.Inc()
		default:
			err := h.renew(ctx, now)
			if err == nil {
				h.metrics.beats.renewed.Inc()
				wait = beatEvery
				failed = false
				break
			}
			h.metrics.beats.failed.Inc()
			if !failed && ctx.Err() == nil {
				h.log.Warn("lease not renewed", "lease", h.lease, "err", err)
				failed = true
			}
		}
		timer.Reset(wait)
	}
}

// lease is the node's Lease in the API server.
type lease struct {
	client    rest.Interface
	namespace string
	holder    string
	node      string
	nodeUID   func() types.UID
	last      *coordinationv1.Lease // as last seen; nil: not known
}

// renew writes the time into the Lease, and makes it where there is none.
func (l *lease) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := metav1.NewMicroTime(now)
	if l.last == nil {
		var seen coordinationv1.Lease
		err := l.client.Get().Namespace(l.namespace).Resource("leases").Name(LeaseName(l.node)).Do(ctx).Into(&seen)
		switch {
		case apierrors.IsNotFound(err):
			return l.create(ctx, at)
		case err != nil:
			return fmt.Errorf("get: %w", err)
		}
		l.last = &seen
	}
	next := l.last.DeepCopy()
	l.fill(next, at)
	var answer coordinationv1.Lease
	err := l.client.Put().Namespace(l.namespace).Resource("leases").Name(LeaseName(l.node)).Body(next).Do(ctx).Into(&answer)
	if err != nil {
		l.last = nil // whatever it was, look again
		return fmt.Errorf("update: %w", err)
	}
	l.last = &answer
	return nil
}

func (l *lease) create(ctx context.Context, at metav1.MicroTime) error {
	fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.namespace, Name: LeaseName(l.node),
		// The Lease goes with its node.
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.node, UID: l.nodeUID()}},
	}}
	fresh.Spec.AcquireTime = &at
	l.fill(fresh, at)
	var answer coordinationv1.Lease
	err := l.client.Post().Namespace(l.namespace).Resource("leases").Body(fresh).Do(ctx).Into(&answer)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	l.last = &answer
	return nil
}

func (l *lease) fill(to *coordinationv1.Lease, at metav1.MicroTime) {
	seconds := int32(leaseSeconds)
	to.Spec.RenewTime, to.Spec.LeaseDurationSeconds = &at, &seconds
	if to.Spec.HolderIdentity == nil || *to.Spec.HolderIdentity != l.holder {
		to.Spec.HolderIdentity, to.Spec.AcquireTime = &l.holder, &at
	}
}

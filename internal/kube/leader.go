package kube

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// LeaderObserver tells from successive reads of the leader election Lease whether a controller
// leads and renews. It measures from the changes that it sees, on its own clock: the clock of the
// leader may be wrong.
type LeaderObserver struct {
	holder  string
	renewed time.Time
	since   time.Time // when this holder and renewal were first seen
}

// LeaderState is what is known of the leader.
type LeaderState int

const (
	// NoLeader: the Lease has no holder.
	NoLeader LeaderState = iota
	// LeaderAlive: the holder has renewed the Lease, or still has time to.
	LeaderAlive
	// LeaderLapsed: the Lease expired while it was observed. Its holder has died or cannot reach
	// the API server.
	LeaderLapsed
)

const defaultLeaseDuration = 15 * time.Second

// Observe takes the Lease as it is now; nil where there is none.
func (l *LeaderObserver) Observe(lease *coordinationv1.Lease, now time.Time) LeaderState {
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		*l = LeaderObserver{}
		return NoLeader
	}
	seen := LeaderObserver{holder: *lease.Spec.HolderIdentity, since: now}
	if t := lease.Spec.RenewTime; t != nil {
		seen.renewed = t.Time
	}
	if seen.holder != l.holder || !seen.renewed.Equal(l.renewed) {
		*l = seen
		return LeaderAlive
	}
	lasts := defaultLeaseDuration
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		lasts = time.Duration(*s) * time.Second
	}
	if now.Sub(l.since) <= lasts {
		return LeaderAlive
	}
	return LeaderLapsed
}

// Holder is the identity of the last holder.
func (l *LeaderObserver) Holder() string { return l.holder }

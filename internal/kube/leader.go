package kube

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Leader tells, of one look at the leader's Lease after the other, whether a controller leads and lives. Only
// changes that are seen count, on the clock of who looks: other clocks may be wrong.
type LeaderObserver struct {
	holder  string
	renewed time.Time
	since   time.Time // when this holder and renewal were first seen
}

// Lead is what is known of the leader.
type LeaderState int

const (
	// NoLeader: nobody holds the Lease.
	NoLeader LeaderState = iota
	// LivingLeader: somebody holds it, and has either renewed it or still has the time to.
	LeaderAlive
	// LapsedLeader: whoever holds it has let it lapse while it was looked at, and has died or is cut off.
	LeaderLapsed
)

// leaseTime is how long a Lease lasts that does not say so.
const defaultLeaseDuration = 15 * time.Second

// See takes in the Lease as it is at now; nil where there is none.
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

// Holder is who was last seen to hold the Lease.
func (l *LeaderObserver) Holder() string { return l.holder }

package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/actuator"
)

// Config is how pods are treated.
type Config struct {
	Actuator actuator.Config
	// FreezeAfter is how long after the last renewal of its Lease an agent's decisions are no
	// longer applied, and how old a decision may be before the agent has to confirm it. Shorter
	// freezes on hiccups; longer applies stale decisions.
	FreezeAfter time.Duration
	// RestoreAfter is how long an agent may be unresponsive before the declared limits of its pods
	// are restored.
	RestoreAfter time.Duration
	// StartGrace is how long after its start a pod is not lowered.
	StartGrace time.Duration
	// RestartGrace is how long after a restart of a container a pod is not lowered.
	RestartGrace time.Duration
	// BoostGrace is how long after it has become Ready a pod keeps the limit of its start-up boost. Shorter
	// returns it to the market sooner; longer leaves it more for what follows the first requests.
	BoostGrace time.Duration
	// BoostMax is how long after its start a pod has that limit at most. Shorter ends the boost of pods that
	// start slowly; longer leaves it to those that never become Ready.
	BoostMax time.Duration
	// HPACooldown is the least time between two decreases of a pod that an HPA watches, where it
	// may be lowered at all. Shorter disturbs the HPA; the default is the time over which the HPA
	// looks back before it scales in.
	HPACooldown time.Duration
	// RollbackWindow is how soon after a decrease a pod that becomes not Ready, or restarts, counts
	// as harmed by it.
	RollbackWindow time.Duration
	// RollbackHoldOff is how long a pod keeps at least its declared limit after a rollback, and how
	// long it is left alone after a second external change.
	RollbackHoldOff time.Duration
	// ConflictWindow is the time within which a second external change, after a resize of ours, is
	// a conflict.
	ConflictWindow time.Duration
	// ExternalChangeHoldOff is how long a pod is left alone after an external change of its limits.
	ExternalChangeHoldOff time.Duration
	// ActuationTimeout is how long the kubelet may take to carry a resize out before it counts as
	// failed.
	ActuationTimeout time.Duration
	// Backoff is how long a pod waits after its first refused or failed resize; it doubles up to
	// BackoffMax.
	Backoff, BackoffMax time.Duration
	// ServerBackoff is the same for a resize that the API server did not answer, up to
	// ServerBackoffMax.
	ServerBackoff, ServerBackoffMax time.Duration
}

// DefaultConfig is what we run ourselves.
func DefaultConfig() Config {
	return Config{
		Actuator: actuator.DefaultConfig(), FreezeAfter: time.Minute, RestoreAfter: 5 * time.Minute,
		StartGrace: time.Minute, RestartGrace: 2 * time.Minute, BoostGrace: 10 * time.Second, BoostMax: 5 * time.Minute, HPACooldown: 5 * time.Minute,
		RollbackWindow: 2 * time.Minute, RollbackHoldOff: 24 * time.Hour,
		ConflictWindow: time.Hour, ExternalChangeHoldOff: 10 * time.Minute,
		ActuationTimeout: 90 * time.Second, Backoff: time.Minute, BackoffMax: 30 * time.Minute,
		ServerBackoff: 5 * time.Second, ServerBackoffMax: 5 * time.Minute,
	}
}

// leastFreezeAfter is the least FreezeAfter that no healthy agent reaches: its heartbeat of 20 to 30 s,
// one that fails, and the way through the caches.
const leastFreezeAfter = 45 * time.Second

// Validate returns everything that is wrong.
func (c Config) Validate() error {
	errs := []error{c.Actuator.Validate()}
	for _, d := range []struct {
		name     string
		value    time.Duration
		positive bool
	}{
		{"RestoreAfter", c.RestoreAfter, true},
		{"RollbackHoldOff", c.RollbackHoldOff, true}, {"ActuationTimeout", c.ActuationTimeout, true},
		{"Backoff", c.Backoff, true}, {"BackoffMax", c.BackoffMax, true},
		{"ServerBackoff", c.ServerBackoff, true}, {"ServerBackoffMax", c.ServerBackoffMax, true},
		{"StartGrace", c.StartGrace, false}, {"RestartGrace", c.RestartGrace, false}, {"HPACooldown", c.HPACooldown, false},
		{"BoostGrace", c.BoostGrace, false}, {"BoostMax", c.BoostMax, false},
		{"RollbackWindow", c.RollbackWindow, false}, {"ConflictWindow", c.ConflictWindow, false},
		{"ExternalChangeHoldOff", c.ExternalChangeHoldOff, false},
	} {
		switch {
		case d.positive && d.value <= 0:
			errs = append(errs, fmt.Errorf("lifecycle %s is %v: want more than 0", d.name, d.value))
		case d.value < 0:
			errs = append(errs, fmt.Errorf("lifecycle %s is %v: want 0 or more", d.name, d.value))
		}
	}
	if c.FreezeAfter < leastFreezeAfter {
		errs = append(errs, fmt.Errorf("lifecycle FreezeAfter is %v: want at least %v, as agents renew their Leases "+
			"every 20 to 30 s, and again up to 10 s after a failure", c.FreezeAfter, leastFreezeAfter))
	}
	if c.RestoreAfter < c.FreezeAfter {
		errs = append(errs, fmt.Errorf("lifecycle RestoreAfter is %v: want at least FreezeAfter, %v", c.RestoreAfter, c.FreezeAfter))
	}
	return errors.Join(errs...)
}

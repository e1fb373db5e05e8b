// Package actuator plans safe changes of CPU limits from the present to the desired ones. It is pure: it
// knows no clock, no client and no Kubernetes type, and works without the rest of the project. Package
// podresize carries out a move.
//
// What it promises, each a test of the same name:
//   - KeepsTheRules: no move leaves a container outside its floor and ceiling, or is of a pod with a resize in flight,
//     unless it supersedes that.
//   - IncreasesAreImmediate: an increase beyond the dead band waits only for a resize in flight, back-off and decreases.
//   - IncreasesSupersede: where a pod says so, an increase takes the place of its decrease in flight; nothing else does.
//   - DecreasesAreGradual: a decrease is at most one step, and none follows within the cooldown, but for revoked raises.
//   - RaisesAreRevokedInOneStep: the limits of a pod whose raise was revoked go to the declared ones in one step,
//     without a cooldown.
//   - DeadBand: a change smaller than the dead band causes no move.
//   - DecreasesEnd: a decrease in steps ends at the desired limit, not a dead band above it.
//   - RaisesOnlyWhatRuns: a container that does not run is not raised, by a restore either. It may be lowered.
//   - StaleMovesNothing: a stale decision causes no move; a restore is still planned.
//   - DecreasesFirst: on a full node decreases precede increases, and increases of capped pods wait for them.
//   - WaitsAreBounded: no increase waits for decreases longer than DecreasesWait, or for one that waits itself.
//   - RestoreIsExact: a restore goes to the declared limit, regardless of bounds and bands.
//   - RestoreInSteps: one in steps lowers no faster than a decision, and ends at the declared limit, too.
//   - Quiesces: once a plan is carried out, planning again yields no move.
package actuator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// Config bounds how far and how often limits change.
type Config struct {
	// DeadBand is the relative change of a container's limit below which no resize is made.
	// Smaller follows demand more closely and writes more often.
	DeadBand float64
	// MaxDecreaseFactor is the largest factor by which one resize lowers a limit, above 1.
	// Larger frees CPU sooner; smaller leaves an application more time to react.
	MaxDecreaseFactor float64
	// BelowDeclaredFactor takes its place, if it is larger, for a limit that is not above the declared one: there the
	// market lowers a pod that takes all it can get, or for the sake of one that waits. Smaller lets others wait longer.
	BelowDeclaredFactor float64
	// DecreaseCooldown is the least time between two decreases of a pod.
	DecreaseCooldown time.Duration
	// MaxIncreaseFactor is the largest factor by which one resize raises a limit; 0 means no bound, as in MBCAS itself.
	MaxIncreaseFactor float64
	// IncreaseCooldown is the least time between two increases of a pod, 0 in MBCAS itself.
	IncreaseCooldown time.Duration
	// DecreasesWait is how long the increase of a capped pod waits for decreases of other pods at most.
	// Longer lets limits exceed a full node less often; shorter lets the pod wait less.
	DecreasesWait time.Duration
}

// DefaultConfig raises at once and lowers gradually.
func DefaultConfig() Config {
	return Config{
		DeadBand: 0.10, MaxDecreaseFactor: 1.5, BelowDeclaredFactor: 4, DecreaseCooldown: 5 * time.Second,
		DecreasesWait: time.Second,
	}
}

// Validate reports every invalid setting.
func (c Config) Validate() error {
	var errs []error
	if !(c.DeadBand >= 0 && c.DeadBand < 1) {
		errs = append(errs, fmt.Errorf("actuator DeadBand is %v: want at least 0 and less than 1", c.DeadBand))
	}
	if !(c.MaxDecreaseFactor > 1) {
		errs = append(errs, fmt.Errorf("actuator MaxDecreaseFactor is %v: want more than 1", c.MaxDecreaseFactor))
	}
	if !(c.BelowDeclaredFactor >= 0) {
		errs = append(errs, fmt.Errorf("actuator BelowDeclaredFactor is %v: want 0 or more", c.BelowDeclaredFactor))
	}
	if c.MaxIncreaseFactor != 0 && !(c.MaxIncreaseFactor > 1) {
		errs = append(errs, fmt.Errorf("actuator MaxIncreaseFactor is %v: want 0 (no bound) or more than 1", c.MaxIncreaseFactor))
	}
	if c.DecreaseCooldown < 0 || c.IncreaseCooldown < 0 {
		errs = append(errs, fmt.Errorf("actuator cooldowns are %v and %v: want 0 or more", c.DecreaseCooldown, c.IncreaseCooldown))
	}
	if c.DecreasesWait < 0 {
		errs = append(errs, fmt.Errorf("actuator DecreasesWait is %v: want 0 or more", c.DecreasesWait))
	}
	return errors.Join(errs...)
}

// Container is one container with a CPU limit.
type Container struct {
	Name           string
	Limit          cpu.Milli // in the pod's spec
	Declared       cpu.Milli // the limit that its owner wrote: a restore goes there
	Floor, Ceiling cpu.Milli
	Desired        cpu.Milli // the limit decided for it; 0: none decided
	// NotRunning: the kubelet carries no resize of it out now, so it is not raised.
	NotRunning bool
}

// Pod is one pod and its recent moves.
type Pod struct {
	UID        string
	Containers []Container
	// Restore asks for the declared limits instead of the desired ones. InSteps lowers them as a
	// decision does: one step at a time, with cooldowns, and not while NoDecrease says why not.
	Restore, InSteps bool
	// InFlight: the kubelet has not finished the last resize. Supersedable: that is a decrease, and a move that
	// lowers no container may take its place.
	InFlight, Supersedable bool
	// NoDecrease is why the pod must not be lowered below its declared limits, and while it is neither capped nor
	// revoked not at all; "": it may be.
	NoDecrease reasons.Reason
	// DecreaseCooldown is the least time between two decreases of this pod, where longer than the config's.
	DecreaseCooldown time.Duration
	SmallSteps       bool      // MaxDecreaseFactor bounds its steps below the declared limit, too
	LastDecrease     time.Time // zero: never
	LastIncrease     time.Time
	// Stale: the desired limits were decided too long ago to act on.
	Stale bool
	// RetryAt is when the next attempt after a failure may be made; zero: at once.
	RetryAt time.Time
	// Capped: the price bounds the limit, so that an increase takes what others have to give up first.
	Capped bool
	// Revoked: its raise above the declared limits was revoked, so they fall to these in one step, without a cooldown.
	Revoked bool
	// Queued: a resize of it waits for its turn, so others do not wait for it.
	Queued bool
	// WaitsSince is when its increase began to wait for decreases; zero: it does not.
	WaitsSince time.Time
}

// Change is a new limit for one container.
type Change struct {
	Container string
	From, To  cpu.Milli
}

// Move is one resize of one pod.
type Move struct {
	UID     string
	Changes []Change // never empty
}

// Delta is the change of the pod's total limit.
func (m Move) Delta() (d cpu.Milli) {
	for _, c := range m.Changes {
		d += c.To - c.From
	}
	return d
}

// Lowers reports whether any container is lowered.
func (m Move) Lowers() bool {
	return slices.ContainsFunc(m.Changes, func(c Change) bool { return c.To < c.From })
}

// Raises reports whether any container is raised.
func (m Move) Raises() bool {
	return slices.ContainsFunc(m.Changes, func(c Change) bool { return c.To > c.From })
}

func (m Move) String() string {
	s := m.UID
	for _, c := range m.Changes {
		s += fmt.Sprintf(" %s %v->%v", c.Container, c.From, c.To)
	}
	return s
}

// Step is the plan for one pod: a move, or a reason for none.
type Step struct {
	Pod  int   // index into the pods given
	Move *Move // nil: no move
	// Reason says why there is no move, or why it is not a full one.
	Reason reasons.Reason
	// RecheckAt is when to look again even if nothing changes; zero: no need.
	RecheckAt time.Time
}

// Progress is how far the kubelet has applied the limits in a pod's spec.
type Progress uint8

const (
	Done       Progress = iota // the kubelet reports the limits
	InProgress                 // accepted, not applied yet
	Deferred                   // the node cannot take it now
	Infeasible                 // the node never will
	Errored                    // the runtime or kernel refused it
)

var progressNames = [...]string{"Done", "InProgress", "Deferred", "Infeasible", "Errored"}

func (p Progress) String() string {
	if int(p) < len(progressNames) {
		return progressNames[p]
	}
	return fmt.Sprintf("Progress(%d)", uint8(p))
}

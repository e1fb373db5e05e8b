// Package actuator plans safe moves of CPU limits from what is to what should be. It is pure: it
// knows no clock, no client and no Kubernetes type, and can be used without the rest of
// the project. Package podresize carries a move out.
//
// What it promises, each a test of the same name:
//   - StaysInBounds: no move leaves a container outside its floor and ceiling.
//   - RaisesAtOnce: a raise beyond the dead band waits for nothing but a resize in flight, back-off and givers.
//   - LowersSlowly: a container is lowered by at most the step, and not again within the cooldown.
//   - DeadBand: a change smaller than the dead band is not worth a resize.
//   - OneInFlight: a pod with an unfinished resize is left alone.
//   - StaleMovesNothing: on a decision that is too old nothing is moved, up or down; only a restore is.
//   - GiversFirst: on a full node decreases come before increases, and increases wait for them.
//   - RestoreIsExact: a restore goes to the declared limit, whatever bounds and bands say.
//   - Quiesces: planning again after a carried out plan yields no move.
package actuator

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Config is how carefully limits move.
type Config struct {
	// DeadBand is the relative change of a container's limit that is not worth a resize.
	// Smaller follows demand more closely and writes more often.
	DeadBand float64
	// LowerStep is the factor by which one resize may lower a limit at most, above 1.
	// Larger frees CPU sooner; smaller leaves an application more time to react.
	MaxDecreaseFactor float64
	// LowerCooldown is the least time between two decreases of a pod.
	DecreaseCooldown time.Duration
	// RaiseStep is the factor by which one resize may raise a limit at most; 0 means no bound.
	MaxIncreaseFactor float64
	// RaiseCooldown is the least time between two increases of a pod.
	IncreaseCooldown time.Duration
}

// DefaultConfig is what we would run ourselves: raise at once, lower slowly.
func DefaultConfig() Config {
	return Config{DeadBand: 0.10, MaxDecreaseFactor: 1.5, DecreaseCooldown: 5 * time.Second}
}

// ConservativeConfig moves rarely and a little in both directions.
func ConservativeConfig() Config {
	return Config{
		DeadBand: 0.10, MaxDecreaseFactor: 1.5, DecreaseCooldown: 30 * time.Second,
		MaxIncreaseFactor: 1.5, IncreaseCooldown: 30 * time.Second,
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if !(c.DeadBand >= 0 && c.DeadBand < 1) {
		errs = append(errs, fmt.Errorf("actuator DeadBand is %v: want at least 0 and less than 1", c.DeadBand))
	}
	if !(c.MaxDecreaseFactor > 1) {
		errs = append(errs, fmt.Errorf("actuator LowerStep is %v: want more than 1", c.MaxDecreaseFactor))
	}
	if c.MaxIncreaseFactor != 0 && !(c.MaxIncreaseFactor > 1) {
		errs = append(errs, fmt.Errorf("actuator RaiseStep is %v: want 0 (no bound) or more than 1", c.MaxIncreaseFactor))
	}
	if c.DecreaseCooldown < 0 || c.IncreaseCooldown < 0 {
		errs = append(errs, fmt.Errorf("actuator cooldowns are %v and %v: want 0 or more", c.DecreaseCooldown, c.IncreaseCooldown))
	}
	return errors.Join(errs...)
}

// Container is one container with a CPU limit: how it stands and what it should be.
type Container struct {
	Name           string
	Limit          cpu.Milli // in the pod's spec
	Declared       cpu.Milli // what its owner declared: a restore goes there
	Floor, Ceiling cpu.Milli
	Desired        cpu.Milli // the limit decided for it; 0: none decided
}

// Pod is how one pod stands.
type Pod struct {
	UID        string
	Containers []Container
	// Restore asks for the declared limits instead of the wanted ones.
	Restore bool
	// InFlight: the last resize has not been finished by the kubelet.
	InFlight bool
	// NoDecrease says why the pod must not be lowered; "" means that it may be.
	NoDecrease Reason
	// LowerCooldown is the least time between two decreases of this pod, where longer than the config's.
	DecreaseCooldown time.Duration
	LastDecrease     time.Time // zero: never
	LastIncrease     time.Time
	// Stale: what is wanted was decided too long ago to act on.
	Stale bool
	// RetryAt is when a refused pod may be tried again; zero: at once.
	RetryAt time.Time
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

// Delta is by how much the move changes the pod's total limit.
func (m Move) Delta() (d cpu.Milli) {
	for _, c := range m.Changes {
		d += c.To - c.From
	}
	return d
}

// Lowers says whether any container is lowered.
func (m Move) Lowers() bool {
	for _, c := range m.Changes {
		if c.To < c.From {
			return true
		}
	}
	return false
}

// Raises says whether any container is raised.
func (m Move) Raises() bool {
	for _, c := range m.Changes {
		if c.To > c.From {
			return true
		}
	}
	return false
}

func (m Move) String() string {
	s := m.UID
	for _, c := range m.Changes {
		s += fmt.Sprintf(" %s %v->%v", c.Container, c.From, c.To)
	}
	return s
}

// Step is what is to be done about one pod: a move, or a reason for none.
type Step struct {
	Pod  int   // index into the pods given
	Move *Move // nil: hold
	// Reason says why nothing, or not everything, is moved.
	Reason Reason
	// Again is when to look again even if nothing changes; zero: no need.
	RecheckAt time.Time
}

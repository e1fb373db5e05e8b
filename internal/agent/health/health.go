// Package health is what the probes and the heartbeat of an agent ask about its round loop.
package health

import (
	"fmt"
	"sync/atomic"
	"time"
)

// State is what the round loop has done last. Its methods may be called from several goroutines.
type State struct {
	interval  time.Duration
	started   time.Time
	lastTick  atomic.Pointer[time.Time] // end of the last tick, with or without a round
	lastRound atomic.Pointer[time.Time] // end of the last completed round
	obstacle  atomic.Pointer[string]    // why no round can run; empty or nil: nothing prevents it
	standby   atomic.Pointer[string]    // why another agent publishes for this node; nil: this one may
	panics    atomic.Int32              // in a row
}

const (
	maxPanics = 5                // in a row, before the agent is unhealthy
	minWindow = 10 * time.Second // for a tick to end
)

// New is the state at the start of a loop with rounds in this interval.
func New(interval time.Duration, now time.Time) *State {
	return &State{interval: interval, started: now}
}

// window is the time in which a working loop completes a tick.
func (h *State) window() time.Duration { return max(3*h.interval, minWindow) }

// Healthy is nil while the loop ticks. After an error only a new process helps.
func (h *State) Healthy(now time.Time) error {
	if n := h.panics.Load(); n >= maxPanics {
		return fmt.Errorf("the last %d rounds panicked", n)
	}
	last := h.started
	if t := h.lastTick.Load(); t != nil {
		last = *t
	}
	if age := now.Sub(last); age > h.window() {
		return fmt.Errorf("the round loop has been stuck for %v", age.Round(time.Second))
	}
	return nil
}

// Ready is nil while rounds complete; otherwise the error names what is missing.
func (h *State) Ready(now time.Time) error {
	if err := h.Healthy(now); err != nil {
		return err
	}
	if obstacle := h.obstacle.Load(); obstacle != nil && *obstacle != "" {
		return fmt.Errorf("no rounds: %s", *obstacle)
	}
	if !h.Live(now) {
		return fmt.Errorf("no round has completed in the last %v", h.window())
	}
	if standby := h.standby.Load(); standby != nil {
		return fmt.Errorf("nothing is published: %s", *standby)
	}
	return nil
}

// Live says whether a round completed within the window.
func (h *State) Live(now time.Time) bool {
	t := h.lastRound.Load()
	return t != nil && now.Sub(*t) <= h.window()
}

// Ticked notes the end of a tick, with or without a round.
func (h *State) Ticked(end time.Time) { h.lastTick.Store(&end) }

// Completed notes the end of a round.
func (h *State) Completed(end time.Time) {
	h.panics.Store(0)
	h.lastRound.Store(&end)
}

// Panicked notes a round that panicked.
func (h *State) Panicked() { h.panics.Add(1) }

// Prevented notes why no round can run; empty: nothing prevents it. News says whether that has changed, or is the
// first note.
func (h *State) Prevented(why string) (news bool) {
	before := h.obstacle.Swap(&why)
	return before == nil || *before != why
}

// StandsBy notes why another agent publishes for this node; empty: this one may.
func (h *State) StandsBy(why string) {
	if why == "" {
		h.standby.Store(nil)
		return
	}
	h.standby.Store(&why)
}

// Started is when the loop started.
func (h *State) Started() time.Time { return h.started }

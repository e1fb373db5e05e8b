package agent

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pulse is what the player shows of itself to the rest of the agent.
type pulse struct {
	interval time.Duration
	started  time.Time
	turn     atomic.Pointer[time.Time] // when the player last came round, whatever came of it
	round    atomic.Pointer[time.Time] // when a round was last played to its end
	lack     atomic.Pointer[string]    // why none can be played; empty or nil: nothing
	panics   atomic.Int32              // in a row
}

const (
	mostPanics = 5                // in a row, then the agent is not healthy
	patience   = 10 * time.Second // for a turn to end
)

func newPulse(interval time.Duration, now time.Time) *pulse {
	return &pulse{interval: interval, started: now}
}

// window is the time in which a working player has certainly come round.
func (p *pulse) window() time.Duration { return max(3*p.interval, patience) }

// Healthy says whether the player still comes round; if not, only a new process helps.
func (p *pulse) Healthy(now time.Time) error {
	if n := p.panics.Load(); n >= mostPanics {
		return fmt.Errorf("the last %d rounds panicked", n)
	}
	last := p.started
	if t := p.turn.Load(); t != nil {
		last = *t
	}
	if age := now.Sub(last); age > p.window() {
		return fmt.Errorf("the round loop has been stuck for %v", age.Round(time.Second))
	}
	return nil
}

// Ready says whether rounds are played, and if not what is missing.
func (p *pulse) Ready(now time.Time) error {
	if err := p.Healthy(now); err != nil {
		return err
	}
	if lack := p.lack.Load(); lack != nil && *lack != "" {
		return fmt.Errorf("no rounds: %s", *lack)
	}
	if !p.Playing(now) {
		return fmt.Errorf("no round has been played in the last %v", p.window())
	}
	return nil
}

// Playing says whether a round was played lately.
func (p *pulse) Playing(now time.Time) bool {
	t := p.round.Load()
	return t != nil && now.Sub(*t) <= p.window()
}

package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// Config is the settings of an agent.
type Config struct {
	// Node is the name of the node whose market this is.
	Node string
	// Namespace is that of the node's Lease.
	Namespace string
	// Holder is the holder identity in the Lease: the name of the agent's own pod.
	Holder string
	// Version is that of the program, for its metrics and its recording.
	Version string
	// Interval is the time from one round to the next. Shorter bursts are not seen; the agent's own
	// CPU cost grows as 1/Interval.
	Interval time.Duration
	// Record is for how long the inputs of rounds are kept in memory, so that they can be replayed; 0: not at all.
	// Longer shows more of the past; what is kept takes at most 8 MiB, however long this is.
	Record time.Duration
	// Round is the settings of the market.
	Round round.Config
	// Kernel is where the cgroups are.
	Kernel kernel.Config
}

// DefaultConfig is the recommended config. Node and Holder are still to be set.
func DefaultConfig() Config {
	return Config{Namespace: kube.SystemNamespace, Interval: time.Second, Record: record.DefaultLimits.Keep, Round: round.DefaultConfig()}
}

// Bounds of Interval and Record.
const (
	minRecord   = 2 * time.Minute
	maxRecord   = 24 * time.Hour
	minInterval = 100 * time.Millisecond
	maxInterval = 10 * time.Second
)

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("no node: set --node-name or NODE_NAME to the name of the node that this runs on"))
	}
	if c.Namespace == "" {
		errs = append(errs, errors.New("no namespace: want that of the node's Lease"))
	}
	if c.Interval < minInterval || c.Interval > maxInterval {
		errs = append(errs, fmt.Errorf("interval is %v: want %v to %v", c.Interval, minInterval, maxInterval))
	}
	if c.Record != 0 && (c.Record < minRecord || c.Record > maxRecord) {
		errs = append(errs, fmt.Errorf("record is %v: want 0 or %v to %v", c.Record, minRecord, maxRecord))
	}
	return errors.Join(append(errs, c.Round.Validate())...)
}

// samples is the time of n samples.
func (c Config) samples(n int) time.Duration { return time.Duration(n) * c.Interval }

// round is the round settings for this interval. Two samples that are more than three intervals
// apart, and more than a second, yield no rates. Half an interval is added so that jitter does not
// decide it.
func (c Config) round() round.Config {
	r := c.Round
	r.LongestGap = max(c.samples(3), time.Second) + c.Interval/2
	return r
}

// Every node pays for the agent's memory, so the program trades CPU for it: the live heap of a full
// node is a few MiB, and twice as many garbage collections cost next to nothing.
const (
	// GCPercent is the program's GOGC.
	GCPercent = 50
	// MemoryLimit is the program's GOMEMLIMIT in bytes.
	MemoryLimit = 32 << 20
)

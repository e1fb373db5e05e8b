package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/round"
)

// Config is how an agent works on its node.
type Config struct {
	// Node is the name of the node whose market this is.
	Node string
	// Namespace is where the Lease of the node is kept.
	Namespace string
	// Holder is who holds the Lease: the name of the agent's own pod. It is for people to look at.
	Holder string
	// Interval is the time from one round to the next. A burst shorter than this is not
	// seen; the agent's own CPU cost grows as 1/Interval.
	Interval time.Duration
	// Round is how rounds are played.
	Round round.Config
	// Kernel says where the cgroups are.
	Kernel kernel.Config
}

// Profile is a set of settings with a name.
type Profile string

const (
	// Default is what we would run ourselves.
	Default Profile = "default"
	// Conservative looks and publishes seldom. It is kept for comparison.
	Conservative Profile = "conservative"
)

// DefaultConfig is what we would run ourselves. Node and Holder are still to be said.
func DefaultConfig() Config {
	return Config{Namespace: kube.SystemNamespace, Interval: time.Second, Round: round.DefaultConfig()}
}

// With is the config with the settings of a profile in place of those for rounds.
func (c Config) With(p Profile) (Config, error) {
	switch p {
	case Default:
	case Conservative:
		c.Interval, c.Round = round.ConservativeInterval, round.ConservativeConfig()
	default:
		return c, fmt.Errorf("profile %q: want %s or %s", p, Default, Conservative)
	}
	return c, nil
}

// Bounds of the interval.
const (
	shortestInterval = 100 * time.Millisecond
	longestInterval  = 10 * time.Second
)

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("no node: want the name of the node that this runs on"))
	}
	if c.Namespace == "" {
		errs = append(errs, errors.New("no namespace: want the one that holds the agent's Lease"))
	}
	if c.Interval < shortestInterval || c.Interval > longestInterval {
		errs = append(errs, fmt.Errorf("interval is %v: want %v to %v", c.Interval, shortestInterval, longestInterval))
	}
	return errors.Join(append(errs, c.Round.Validate())...)
}

// samples is how long n samples take.
func (c Config) samples(n int) time.Duration { return time.Duration(n) * c.Interval }

// round is how rounds are played at this interval: two samples that are more than three
// intervals apart are too old to compare, but a second is always near enough. Half an interval more keeps
// jitter from deciding which containers are.
func (c Config) round() round.Config {
	r := c.Round
	r.LongestGap = max(c.samples(3), time.Second) + c.Interval/2
	return r
}

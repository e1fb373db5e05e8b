package experiment

import (
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Names of policies that reports refer to.
const (
	Default  = "mbcas"
	Static   = "static"
	NoLimits = "no-limits"
)

// Policies are all policies that are compared: the baselines, MBCAS as it ships, and variants of it
// with a part removed or set otherwise. The variants show what each part contributes; the baseline
// "max-min" is MBCAS without a market.
func Policies() []baseline.Policy {
	return append(baseline.Policies(),
		variant("", "what ships: one price per node; pods that demand more than their budget buys are capped at that", func(*mbcas.Config) {}),
		variant("-no-pressure", "what ships without CPU pressure as a sign of starvation", func(c *mbcas.Config) { c.Round.Demand.StarvationThreshold = 1 }),
		variant("-no-smoothing", "what ships with demand taken from the last tick alone", func(c *mbcas.Config) {
			c.Round.Demand.Rise, c.Round.Demand.Fall = 1, 1
		}),
		variant("-no-looks", "what ships without looks: limits are raised in rounds alone", func(c *mbcas.Config) { c.Round.LookInterval = 0 }),
		variant("-to-ceiling", "what ships with limits raised to the ceiling while CPU has no price, not to what the demands of other pods leave", func(c *mbcas.Config) { c.Round.BoundRaises = false }),
		variant("-no-delay", "what ships without the delay before the price falls", func(c *mbcas.Config) { c.Round.FallDelay = 0 }),
		variant("-price-alone", "what ships with limits that the price sets alone, also below what declared limits give a pod", func(c *mbcas.Config) { c.Round.Disagreement = disagreement.Config{} }),
		variant("-slow-kubelet", "what ships on a node with Kubernetes before 1.36 and a slower API server: 0.2 to 0.3 s for a publication, 1 to 2 s for a resize", func(c *mbcas.Config) {
			c.Publish = sim.Delay{Min: 200 * time.Millisecond, Max: 300 * time.Millisecond}
			c.ResizeDone = sim.Delay{Min: time.Second, Max: 2 * time.Second} // a list of the containers once a second
		}),
		variant("-slow-decreases", "what ships with 15 s between two decreases of a pod", func(c *mbcas.Config) { c.Lifecycle.Actuator.DecreaseCooldown = 15 * time.Second }),
		variant("-conservative", "a round every 10 s, changes every 30 s, and small steps in both directions", func(c *mbcas.Config) {
			const rare = 30 * time.Second
			c.Interval, c.Round.LongestGap, c.Round.PublishInterval, c.Round.LookInterval = 10*time.Second, rare, rare, 0
			a := &c.Lifecycle.Actuator
			a.MaxIncreaseFactor, a.IncreaseCooldown, a.DecreaseCooldown = a.MaxDecreaseFactor, rare, rare
			a.BelowDeclaredFactor = a.MaxDecreaseFactor
		}),
	)
}

// IsPeer says whether reports compare the default with the policy of that name: it is neither a
// variant of it, nor does it change requests or replicas.
func IsPeer(name string) bool {
	return !strings.HasPrefix(name, Default) && !baseline.ChangesRequestsOrReplicas(name)
}

// variant is MBCAS with another configuration.
func variant(suffix, about string, change func(*mbcas.Config)) baseline.Policy {
	return baseline.Policy{Name: Default + suffix, Description: about, New: func() sim.Policy {
		cfg := mbcas.DefaultConfig()
		change(&cfg)
		return mbcas.New(cfg)
	}}
}

package experiment

import (
	"strings"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/round"
)

// Names that pictures and verdicts look for.
const (
	Default  = "mbcas"
	Static   = "static"
	NoLimits = "no-limits"
)

// Policies are all policies that are compared: the rivals, what ships, and what ships with a part taken out or set
// otherwise. The last ones say what each part is worth; "max-min", among the rivals, is the one without a market.
func Policies() []baseline.Policy {
	return append(baseline.Policies(),
		variant("", "what ships: one price per node, and whoever wants more than its budget buys is held to that", func(*mbcas.Config) {}),
		variant("-no-pressure", "what ships without CPU pressure as a sign of starvation", func(c *mbcas.Config) { c.Round.Demand.StarvationThreshold = 1 }),
		variant("-no-trim", "what ships without the price's correction by measured use", func(c *mbcas.Config) { c.Round.TrimGain = 0 }),
		variant("-no-smoothing", "what ships with demand taken from the last tick alone", func(c *mbcas.Config) {
			c.Round.Demand.Rise, c.Round.Demand.Fall = 1, 1
		}),
		variant("-no-delay", "what ships without the delay before the price falls", func(c *mbcas.Config) { c.Round.FallDelay = 0 }),
		variant("-credits", "what ships with credits: who stayed below its share may bid with up to twice its budget for a while", func(c *mbcas.Config) { c.Round.Credits.MaxFactor = 2 }),
		variant("-slow-decreases", "what ships with 15 s between two decreases of a pod", func(c *mbcas.Config) { c.Lifecycle.Actuator.DecreaseCooldown = 15 * time.Second }),
		variant("-conservative", "what ships with the conservative profile: a look every 10 s, changes every 30 s, small steps up as down", func(c *mbcas.Config) {
			c.Interval, c.Round, c.Lifecycle.Actuator = round.ConservativeInterval, round.ConservativeConfig(), actuator.ConservativeConfig()
		}),
	)
}

// IsPeer says whether the default is held against the policy of that name: it is neither a variant of it, nor does it change what
// pods are entitled to.
func IsPeer(name string) bool {
	return !strings.HasPrefix(name, Default) && !baseline.ChangesRequestsOrReplicas(name)
}

// variant is what ships, changed.
func variant(suffix, about string, change func(*mbcas.Config)) baseline.Policy {
	return baseline.Policy{Name: Default + suffix, Description: about, New: func() sim.Policy {
		cfg := mbcas.DefaultConfig()
		change(&cfg)
		return mbcas.New(cfg)
	}}
}

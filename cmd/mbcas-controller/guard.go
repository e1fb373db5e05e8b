package main

import (
	"flag"

	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/blastradius/guard"
)

// guardFlags are the flags that bound what decisions may change.
func guardFlags(fs *flag.FlagSet, c *guard.Config) {
	fs.Float64Var(&c.Factors.Max, "max-declared-factor", c.Factors.Max, "highest limit of a container as a multiple of its declared limit; 0 for no bound")
	fs.Float64Var(&c.Factors.Min, "min-declared-factor", c.Factors.Min, "lowest limit of a container as a multiple of its declared limit; 0 for no bound")
	fs.IntVar(&c.CanaryPercent, "canary-percent", c.CanaryPercent, "percentage of a workload's replicas that are resized first; 100 for all at once")
	fs.DurationVar(&c.CanaryGrace, "canary-grace", c.CanaryGrace, "time in which these replicas must do no worse than the others before the others are resized")
	fs.IntVar(&c.Harm.Workloads, "hold-at-harmed-workloads", c.Harm.Workloads, "number of workloads harmed within harm-window from which decisions only raise limits up to the declared ones until mbcas resume; 0 for never")
	fs.DurationVar(&c.Harm.Window, "harm-window", c.Harm.Window, "time for which a harmed workload counts towards such a hold")
	fs.Var(&windowsFlag{&c.NoChange, ""}, "no-change-windows", "windows of time in which decisions change no limit, such as \"Mon-Fri 09:00-18:00 Europe/Berlin\", separated by semicolons")
}

// windowsFlag reads windows, and repeats them as they were written.
type windowsFlag struct {
	windows *blastradius.Windows
	text    string
}

func (f *windowsFlag) String() string { return f.text }

func (f *windowsFlag) Set(text string) (err error) {
	*f.windows, err = blastradius.ParseWindows(text)
	f.text = text
	return err
}

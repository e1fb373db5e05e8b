package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
)

func newAddon(f *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "addon",
		Short: "Run metrics-server and the Vertical Pod Autoscaler beside the cluster",
	}
	cmd.AddCommand(newAddonUp(f), newAddonDown(f), newAddonBuild(f))
	return cmd
}

func newAddonUp(f *common) *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "up NAME",
		Short: "Start an add-on and wait until it answers; up brings it back after a crash",
		Long: `Start an add-on and wait until it answers; up brings it back after a crash.

` + describeAddons() + `
The first time it builds the add-on's programs.`,
		Args: args(cobra.ExactArgs(1)),
	}
	cmd.Flags().DurationVar(&interval, "interval", 0, "interval of the add-on (default as listed)")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		a, err := addon.Find(names[0])
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if cmd.Flags().Changed("interval") {
			if err := a.Validate(interval); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
		}
		c, err := f.existing(cmd)
		if err != nil {
			return err
		}
		source, err := f.sources()
		if err != nil {
			return err
		}
		return c.AddonUp(cmd.Context(), source, a, interval)
	}
	return cmd
}

// describeAddons is one line for each.
func describeAddons() string {
	var b strings.Builder
	for _, a := range addon.All() {
		fmt.Fprintf(&b, "  %-15s every %v, at least %v", a.Name, a.Interval, a.Least)
		if a.Needs != "" {
			fmt.Fprintf(&b, "; starts %s too", a.Needs)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func newAddonDown(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME",
		Short: "Stop an add-on and remove its objects from the cluster",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			a, err := addon.Find(names[0])
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			source, err := f.sources()
			if err != nil {
				return err
			}
			return c.AddonDown(cmd.Context(), source, a)
		},
	}
}

func newAddonBuild(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "build [NAME]...",
		Short: "Build the programs of add-ons, of all if none is named; needs no cluster",
		RunE: func(cmd *cobra.Command, names []string) error {
			source, err := f.sources()
			if err != nil {
				return err
			}
			addons := addon.All()
			if len(names) > 0 {
				addons = nil
			}
			for _, name := range names {
				a, err := addon.Find(name)
				if err != nil {
					return fmt.Errorf("%w: %w", errUsage, err)
				}
				addons = append(addons, a)
			}
			for _, a := range addons {
				cache, err := a.Open(cmd.Context(), source)
				if err != nil {
					return err
				}
				if err := cache.Ensure(cmd.Context(), cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

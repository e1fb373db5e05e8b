package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

func newNode(f *common) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add and remove nodes beside the first"}
	cmd.AddCommand(newNodeAdd(f), &cobra.Command{
		Use:   "remove NAME",
		Short: "Stop a node that was added and remove all of it",
		Args:  arguments(1, 1),
		RunE: f.change(func(ctx context.Context, c *cluster.Cluster, args []string) error {
			return c.RemoveNode(ctx, args[0])
		}),
	})
	return cmd
}

func newNodeAdd(f *common) *cobra.Command {
	var n config.Node
	var machine config.VM
	var virtual bool
	cmd := &cobra.Command{
		Use:   "add [NAME]",
		Short: "Add a node: a second kubelet and runtime on this machine, or an emulated machine with cgroup v2",
		Long: "Add a node: a kubelet and a runtime of its own on this machine. It shares the kernel and the CPUs\n" +
			"with the first, as nodes of kind do, and each counts all CPUs as its own: --system-reserved-cpu is\n" +
			"what it leaves to others.\n\n" +
			"With --vm the node is an emulated machine with cgroup v2: slow, and for correctness only.\n" +
			"It needs the Debian packages qemu-system-x86 and mmdebstrap.",
		Args: arguments(0, 1),
	}
	cmd.Flags().StringVar(&n.SystemReservedCPU, "system-reserved-cpu", "1",
		"CPU that the node leaves to others, of what this machine has; not with --vm")
	cmd.Flags().BoolVar(&virtual, "vm", false, "in an emulated machine")
	cmd.Flags().IntVar(&machine.CPUs, "cpus", 2, "processors of the emulated machine")
	cmd.Flags().IntVar(&machine.MemoryMiB, "memory", 3072, "memory of the emulated machine in MiB")
	cmd.MarkFlagsMutuallyExclusive("vm", "system-reserved-cpu")
	cmd.RunE = f.change(func(ctx context.Context, c *cluster.Cluster, args []string) error {
		n.Name = strings.Join(args, "")
		set := cmd.Flags().Changed
		switch {
		case !virtual && (set("cpus") || set("memory")):
			return errors.New("--cpus and --memory are for an emulated machine: --vm")
		case machine.CPUs < 1 || machine.CPUs > 16:
			return fmt.Errorf("--cpus %d: want 1 to 16", machine.CPUs)
		case machine.MemoryMiB < 1024 || machine.MemoryMiB > 65536:
			return fmt.Errorf("--memory %d: want 1024 to 65536", machine.MemoryMiB)
		}
		if virtual {
			n.VM = &machine
		}
		return c.AddNode(ctx, n)
	})
	return cmd
}

func newAddon(f *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "addon",
		Short: "Run metrics-server and the Vertical Pod Autoscaler beside the cluster",
	}
	cmd.AddCommand(newAddonUp(f), newAddonBuild(f), &cobra.Command{
		Use:   "down NAME",
		Short: "Stop an add-on and remove its objects from the cluster",
		Args:  arguments(1, 1),
		RunE: f.change(func(ctx context.Context, c *cluster.Cluster, args []string) error {
			a, err := addon.Find(args[0])
			if err != nil {
				return err
			}
			return c.AddonDown(ctx, a)
		}),
	})
	return cmd
}

func newAddonUp(f *common) *cobra.Command {
	var interval time.Duration
	long := "Start an add-on and wait until it answers; up brings it back after a crash.\n\n"
	for _, a := range addon.All() {
		long += fmt.Sprintf("  %-15s every %v, at least %v", a.Name, a.Interval, a.Least)
		if a.Needs != "" {
			long += "; starts " + a.Needs + " too"
		}
		long += "\n"
	}
	cmd := &cobra.Command{
		Use:   "up NAME",
		Short: "Start an add-on and wait until it answers; up brings it back after a crash",
		Long:  long + "\nThe first time it builds the add-on's programs.",
		Args:  arguments(1, 1),
	}
	cmd.Flags().DurationVar(&interval, "interval", 0, "interval of the add-on (default as listed)")
	cmd.RunE = f.change(func(ctx context.Context, c *cluster.Cluster, args []string) error {
		a, err := addon.Find(args[0])
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("interval") {
			if err := a.Validate(interval); err != nil {
				return err
			}
		}
		return c.AddonUp(ctx, a, interval)
	})
	return cmd
}

func newAddonBuild(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "build [NAME]...",
		Short: "Build the programs of add-ons, of all if none is named; needs no cluster",
		RunE: func(cmd *cobra.Command, names []string) error {
			programs, err := f.programs()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				for _, a := range addon.All() {
					names = append(names, a.Name)
				}
			}
			for _, name := range names {
				a, err := addon.Find(name)
				if err != nil {
					return err
				}
				cache, err := a.Open(cmd.Context(), programs)
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

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

func newNode(f *common) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add and remove nodes beside the first"}
	cmd.AddCommand(newNodeAdd(f), newNodeRemove(f))
	return cmd
}

func newNodeAdd(f *common) *cobra.Command {
	var m vm.Node
	var s node.LocalNode
	var virtual bool
	cmd := &cobra.Command{
		Use:   "add [NAME]",
		Short: "Add a node: a second kubelet and runtime on this machine, or an emulated machine with cgroup v2",
		Long: "Add a node: a kubelet and a runtime of its own on this machine. It shares the kernel and the CPUs with the first, as nodes of kind do,\n" +
			"and each counts all CPUs as its own: --system-reserved-cpu is what it leaves to others.\n\n" +
			"With --vm the node is an emulated machine with cgroup v2: slow, and for correctness only.\n" +
			"It needs the Debian packages qemu-system-x86 and mmdebstrap.",
		Args: args(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().StringVar(&s.SystemReservedCPU, "system-reserved-cpu", "1", "CPU that the node leaves to others, of what this machine has; not with --vm")
	cmd.Flags().BoolVar(&virtual, "vm", false, "in an emulated machine")
	cmd.Flags().IntVar(&m.CPUs, "cpus", 2, "processors of the emulated machine")
	cmd.Flags().IntVar(&m.MemoryMiB, "memory", 3072, "memory of the emulated machine in MiB")
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		if len(a) == 1 {
			m.Name, s.Name = a[0], a[0]
		}
		set := cmd.Flags().Changed
		switch {
		case virtual && set("system-reserved-cpu"):
			return fmt.Errorf("%w: --system-reserved-cpu is for a node of this machine, not with --vm", errUsage)
		case !virtual && (set("cpus") || set("memory")):
			return fmt.Errorf("%w: --cpus and --memory are for an emulated machine: --vm", errUsage)
		case !config.ValidCPU(s.SystemReservedCPU):
			return fmt.Errorf("%w: --system-reserved-cpu %q: want millicores such as 400m, or cores", errUsage, s.SystemReservedCPU)
		case m.CPUs < 1 || m.CPUs > 16:
			return fmt.Errorf("%w: --cpus %d: want 1 to 16", errUsage, m.CPUs)
		case m.MemoryMiB < 1024 || m.MemoryMiB > 65536:
			return fmt.Errorf("%w: --memory %d: want 1024 to 65536", errUsage, m.MemoryMiB)
		}
		c, err := f.existing(cmd)
		if err != nil {
			return err
		}
		source, err := f.sources()
		if err != nil {
			return err
		}
		cache, err := cluster.Assets(cmd.Context(), source, "", cmd.OutOrStdout())
		if err != nil {
			return err
		}
		if virtual {
			return c.AddVirtualNode(cmd.Context(), cache, m)
		}
		return c.AddLocalNode(cmd.Context(), cache, s)
	}
	return cmd
}

func newNodeRemove(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Stop a node that was added and remove all of it",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			return c.RemoveNode(cmd.Context(), a[0])
		},
	}
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

func newNode(f *common) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add and remove virtual nodes"}
	cmd.AddCommand(newNodeAdd(f), newNodeRemove(f))
	return cmd
}

func newNodeAdd(f *common) *cobra.Command {
	var m vm.Machine
	var virtual bool
	cmd := &cobra.Command{
		Use:   "add --vm [NAME]",
		Short: "Add a node with cgroup v2 in an emulated machine",
		Long:  "Add a node with cgroup v2 in an emulated machine: slow, and for correctness only.\nIt needs the Debian packages qemu-system-x86 and mmdebstrap.",
		Args:  args(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().BoolVar(&virtual, "vm", false, "in an emulated machine (there is no other way)")
	cmd.Flags().IntVar(&m.CPUs, "cpus", 2, "processors of the machine")
	cmd.Flags().IntVar(&m.MemoryMiB, "memory", 3072, "memory of the machine in MiB")
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		if len(a) == 1 {
			m.Name = a[0]
		}
		switch {
		case !virtual:
			return fmt.Errorf("%w: only virtual nodes can be added: --vm", errUsage)
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
		cache, err := cluster.Assets(cmd.Context(), source, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		return c.AddMachine(cmd.Context(), cache, m)
	}
	return cmd
}

func newNodeRemove(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Stop a virtual node and remove all of it",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			return c.RemoveMachine(cmd.Context(), a[0])
		},
	}
}

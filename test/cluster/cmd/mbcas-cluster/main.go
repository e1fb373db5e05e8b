// Command mbcas-cluster runs a real Kubernetes on this machine, from source, and
// removes it without a trace.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mbcas-cluster:", err)
		os.Exit(1)
	}
}

// common are the flags that every command has.
type common struct {
	state  string
	source string
}

func newRoot() *cobra.Command {
	var f common
	root := &cobra.Command{
		Use:           "mbcas-cluster",
		Short:         "A real Kubernetes on this machine, from source, removed without a trace",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(os.Stdout)
	root.SetFlagErrorFunc(hinted)
	root.PersistentFlags().StringVar(&f.state, "state", config.DefaultState, "folder of everything the cluster writes")
	root.PersistentFlags().StringVar(&f.source, "source", "",
		"folder test/cluster/programs of the repository (default: found above this program or the working folder)")
	root.AddCommand(newUp(&f), newDown(&f), newStatus(&f), newKubeconfig(&f), newLoad(&f), newImage(), newAssets(&f))
	root.AddCommand(newNode(&f), newAddon(&f), newTool(&f))
	return root
}

// hinted is an error of a command line, with where to read what the command takes.
func hinted(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath())
}

// arguments checks that there are low to high of them; high below 0: any number.
func arguments(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return hinted(cmd, fmt.Errorf("an argument is missing: want %q", cmd.UseLine()))
		case high >= 0 && len(args) > high:
			return hinted(cmd, fmt.Errorf("unexpected argument %q: want %q", args[high], cmd.UseLine()))
		}
		return nil
	}
}

// programs is the folder test/cluster/programs.
func (f *common) programs() (string, error) {
	if f.source != "" {
		return filepath.Abs(f.source)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return build.FindSource(filepath.Dir(exe), cwd)
}

// read reads the cluster for a command that changes nothing.
func (f *common) read(cmd *cobra.Command) (*cluster.Cluster, error) {
	programs, err := f.programs()
	if err != nil {
		return nil, err
	}
	return cluster.Read(f.state, programs, cmd.OutOrStdout())
}

type runE = func(*cobra.Command, []string) error

// change returns what runs a command on the cluster while no other command does.
func (f *common) change(do func(context.Context, *cluster.Cluster, []string) error) runE {
	return func(cmd *cobra.Command, args []string) error {
		programs, err := f.programs()
		if err != nil {
			return err
		}
		c, release, err := cluster.Open(cmd.Context(), f.state, programs, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		defer func() { _ = release() }()
		return do(cmd.Context(), c, args)
	}
}

func newUp(f *common) *cobra.Command {
	want := config.Default("")
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or what of it does not run, and wait until it can be used",
		Args:  arguments(0, 0),
	}
	fl := cmd.Flags()
	fl.StringVar(&want.NodeName, "node-name", want.NodeName, "name of the first node")
	fl.TextVar(&want.ServiceRange, "service-range", want.ServiceRange, "range of cluster IPs")
	fl.TextVar(&want.PodRange, "pod-range", want.PodRange, "range of pod addresses; the first node has its first one")
	fl.StringVar(&want.SystemReservedCPU, "system-reserved-cpu", want.SystemReservedCPU,
		"CPU that the kubelet keeps back for everything but pods")
	fl.DurationVar(&want.HPASync, "hpa-sync", want.HPASync,
		"interval of the HPA controller; it stabilises and initialises for 20 times, its readiness delay is twice that")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		programs, err := f.programs()
		if err != nil {
			return err
		}
		want.State = f.state
		chosen := false
		for _, name := range []string{"node-name", "service-range", "pod-range", "system-reserved-cpu", "hpa-sync"} {
			chosen = chosen || fl.Changed(name)
		}
		return cluster.Up(cmd.Context(), want, chosen, programs, cmd.OutOrStdout())
	}
	return cmd
}

func newDown(f *common) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it; the cache of built programs stays",
		Args:  arguments(0, 0),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cache of built programs too (building takes minutes)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cluster.Down(cmd.Context(), f.state, cmd.OutOrStdout()); err != nil || !purge {
			return err
		}
		root, err := build.Root()
		if err != nil {
			return err
		}
		return os.RemoveAll(root)
	}
	return cmd
}

func newStatus(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components, their health, and what kind of node this is",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read(cmd)
			if err != nil {
				return err
			}
			return c.Status(cmd.Context())
		},
	}
}

func newKubeconfig(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Read(f.state, "", cmd.OutOrStdout())
			if err != nil {
				return err
			}
			path := c.Kubeconfig("admin")
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%w; run up", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
}

func newLoad(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Import image archives into every node",
		Args:  arguments(1, -1),
		RunE: f.change(func(ctx context.Context, c *cluster.Cluster, archives []string) error {
			return c.Load(ctx, archives...)
		}),
	}
}

func newImage() *cobra.Command {
	var name, out, base string
	cmd := &cobra.Command{
		Use:   "image --name NAME -o ARCHIVE [--base ROOT.tar] PROGRAM",
		Short: "Build an image archive from a static program, without a container engine",
		Long: "Build an image archive (for docker load, ctr images import, mbcas-cluster load).\n" +
			"The program is all of it, in the root folder, unless --base names a root file system to put below it:\n" +
			"a tar archive, such as mmdebstrap writes. The same program gives the same bytes.",
		Example: "  mbcas-cluster image --name mbcas.io/agent:dev -o out/agent.tar bin/mbcas-agent",
		Args:    arguments(1, 1),
		RunE:    func(_ *cobra.Command, args []string) error { return image.Write(name, args[0], base, out) },
	}
	cmd.Flags().StringVar(&name, "name", "", "name with registry and tag, such as mbcas.io/agent:dev")
	cmd.Flags().StringVarP(&out, "output", "o", "", "archive to write")
	cmd.Flags().StringVar(&base, "base", "", "tar archive of the root file system below the program (default none)")
	for _, flag := range []string{"name", "output"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
	return cmd
}

func newAssets(f *common) *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Build what is missing; print the folder with etcd, kube-apiserver and kubectl (for KUBEBUILDER_ASSETS)",
		Args:  arguments(0, 0),
	}
	cmd.Flags().StringVar(&version, "version", "",
		"another version of Kubernetes, such as 1.35, with the control plane alone (default the cluster's own)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		programs, err := f.programs()
		if err != nil {
			return err
		}
		// Progress goes to standard error: the folder is read by a script.
		cache, err := cluster.Assets(cmd.Context(), programs, version, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), cache.Dir())
		return nil
	}
	return cmd
}

func newTool(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "tool NAME",
		Short: "Build the programs of a tool unless they are built; print their folder (needs no cluster)",
		Long: "Build the programs of a tool unless they are built; print their folder. It needs no cluster.\n\n" +
			"There are " + strings.Join(build.ToolNames(), ", ") + ".",
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, names []string) error {
			programs, err := f.programs()
			if err != nil {
				return err
			}
			cache, err := build.OpenTool(cmd.Context(), programs, names[0])
			if err != nil {
				return err
			}
			// Progress goes to standard error: the folder is read by a script.
			if err := cache.Ensure(cmd.Context(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), cache.Dir())
			return nil
		},
	}
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/image"
)

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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see %s --help", errUsage, err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&f.state, "state", "",
		"folder of everything the cluster writes (default /var/lib/mbcas-cluster as root, else ~/.local/state/mbcas-cluster)")
	root.PersistentFlags().StringVar(&f.source, "source", "",
		"folder test/cluster/programs of the repository (default: found above this program or the working folder)")
	root.AddCommand(newUp(&f), newDown(&f), newStatus(&f), newKubeconfig(&f), newLoad(&f), newImage(), newAssets(&f), newNode(&f), newAddon(&f))
	return root
}

// args makes a wrong number of arguments a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := check(cmd, a); err != nil {
			return fmt.Errorf("%w: %w; see %s --help", errUsage, err, cmd.CommandPath())
		}
		return nil
	}
}

func (f *common) stateFolder() (string, error) {
	if f.state == "" {
		return config.DefaultState()
	}
	return filepath.Abs(f.state)
}

func (f *common) sources() (string, error) {
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

// existing is the cluster in the state folder; it is an error if there is none.
func (f *common) existing(cmd *cobra.Command) (cluster.Cluster, error) {
	state, err := f.stateFolder()
	if err != nil {
		return cluster.Cluster{}, err
	}
	c, ok, err := cluster.Recorded(state)
	if err == nil && !ok {
		err = fmt.Errorf("no cluster in %s; start one with: mbcas-cluster up", state)
	}
	return cluster.Cluster{Config: c, Out: cmd.OutOrStdout()}, err
}

// upFlags are the flags of up that are not settings themselves.
type upFlags struct {
	requireNode, noNode    bool
	serviceRange, podRange string
}

func newUp(f *common) *cobra.Command {
	var u upFlags
	want := config.Default("", true)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or what of it does not run, and wait until it can be used",
		Args:  args(cobra.NoArgs),
	}
	fl := cmd.Flags()
	fl.BoolVar(&u.requireNode, "require-node", false, "fail if no node can run here, rather than start the control plane alone")
	fl.BoolVar(&u.noNode, "no-node", false, "start the control plane alone")
	fl.StringVar(&want.NodeName, "node-name", want.NodeName, "name of the node")
	fl.StringVar(&u.serviceRange, "service-range", want.ServiceRange.String(), "range of cluster IPs")
	fl.StringVar(&u.podRange, "pod-range", want.PodRange.String(), "range of pod addresses; the node has its first one")
	fl.StringVar(&want.Bridge, "bridge", want.Bridge, "network interface to make for the cluster")
	fl.IntVar(&want.PortOffset, "port-offset", 0, "added to every port but the API server's")
	fl.IntVar(&want.APIPort, "api-port", 0, "port of the API server (default 443 with a node, which pods use; else 6443)")
	fl.StringVar(&want.SystemReservedCPU, "system-reserved-cpu", want.SystemReservedCPU, "CPU that the kubelet keeps back for everything but pods")
	fl.DurationVar(&want.HPASync, "hpa-sync", want.HPASync,
		"interval of the HPA controller; its stabilisation and CPU initialisation are 20 times, its readiness delay twice that long")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return up(cmd, f, u, want) }
	return cmd
}

func up(cmd *cobra.Command, f *common, u upFlags, want config.Config) error {
	var err error
	if want.State, err = f.stateFolder(); err != nil {
		return err
	}
	var err1, err2 error
	want.ServiceRange, err1 = netip.ParsePrefix(u.serviceRange)
	want.PodRange, err2 = netip.ParsePrefix(u.podRange)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	settings := false
	for _, name := range []string{"node-name", "service-range", "pod-range", "bridge", "port-offset", "api-port", "system-reserved-cpu", "hpa-sync", "no-node"} {
		settings = settings || cmd.Flags().Changed(name)
	}
	want.Node, err = nodeWanted(cmd, u, want)
	if err != nil {
		return err
	}
	if want.APIPort == 0 {
		want.APIPort = config.Default("", want.Node).APIPort
	}
	if want, err = cluster.Settings(want, settings); err != nil {
		return err
	}
	if err := want.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	source, err := f.sources()
	if err != nil {
		return err
	}
	return cluster.Cluster{Config: want, Out: cmd.OutOrStdout()}.Up(cmd.Context(), source)
}

// nodeWanted returns whether a node is to run, and prints why not.
func nodeWanted(cmd *cobra.Command, u upFlags, want config.Config) (bool, error) {
	if u.noNode {
		return false, nil
	}
	have, exists, err := cluster.Recorded(want.State)
	if err != nil || (exists && have.Node) {
		return true, err // what is missing now is an error of that cluster
	}
	if exists && u.requireNode {
		return false, fmt.Errorf("the cluster in %s was started as a control plane alone; for a node run down, then up", want.State)
	}
	if exists {
		fmt.Fprintln(cmd.OutOrStdout(), "no node: the cluster was started as a control plane alone; for a node run down, then up")
		return false, nil
	}
	missing, err := cluster.Obstacles(want)
	if err != nil {
		return false, err
	}
	if len(missing) == 0 {
		return true, nil
	}
	why := strings.Join(missing, "; ")
	if u.requireNode {
		return false, fmt.Errorf("no node can run here: %s", why)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "no node: %s. Control plane alone: no pod will run.\n", why)
	return false, nil
}

func newDown(f *common) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it; the cache of built programs stays",
		Args:  args(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cache of built programs too (building takes minutes)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		state, err := f.stateFolder()
		if err != nil {
			return err
		}
		c, _, err := cluster.Recorded(state)
		if err != nil {
			return err
		}
		c.State = state
		if err := (cluster.Cluster{Config: c, Out: cmd.OutOrStdout()}).Down(cmd.Context()); err != nil {
			return err
		}
		if !purge {
			return nil
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
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			source, err := f.sources()
			if err != nil {
				return err
			}
			cache, err := build.Open(cmd.Context(), source, build.Kubernetes)
			if err != nil {
				return err
			}
			return c.Status(cmd.Context(), cache)
		},
	}
}

func newKubeconfig(f *common) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			path := c.Config.Kubeconfig("admin")
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is not written yet; run up", path)
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
		Args:  args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, archives []string) error {
			c, err := f.existing(cmd)
			if err != nil {
				return err
			}
			return c.Load(cmd.Context(), archives...)
		},
	}
}

func newImage() *cobra.Command {
	s := image.Spec{}
	var out string
	cmd := &cobra.Command{
		Use:     "image --name NAME -o ARCHIVE FILE[:PATH]...",
		Short:   "Build an image archive from static programs, without a container engine",
		Long:    "Build an image archive (for docker load, ctr images import, mbcas-cluster load).\nThe image has no base: the files are all of it. A file without PATH goes to the root.\nThe same files give the same bytes.",
		Example: "  mbcas-cluster image --name mbcas.io/agent:dev --entrypoint /mbcas-agent -o out/agent.tar bin/mbcas-agent",
		Args:    args(cobra.MinimumNArgs(1)),
	}
	cmd.Flags().StringVar(&s.Name, "name", "", "name with registry and tag, such as mbcas.io/agent:dev")
	cmd.Flags().StringSliceVar(&s.Entrypoint, "entrypoint", nil, "program in the image, and its fixed arguments (default: the first file)")
	cmd.Flags().StringVar(&s.User, "user", image.NonRoot, "uid:gid to run as")
	cmd.Flags().StringVarP(&out, "output", "o", "", "archive to write")
	cmd.RunE = func(_ *cobra.Command, files []string) error {
		if s.Name == "" || out == "" {
			return fmt.Errorf("%w: --name and --output are needed", errUsage)
		}
		for _, arg := range files {
			file, err := image.ParseFile(arg)
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			s.Files = append(s.Files, file)
		}
		if len(s.Entrypoint) == 0 {
			s.Entrypoint = []string{s.Files[0].To}
		}
		return image.Write(s, out)
	}
	return cmd
}

func newAssets(f *common) *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Build what is missing and print the folder with etcd, kube-apiserver and kubectl (for KUBEBUILDER_ASSETS)",
		Args:  args(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&version, "version", "",
		"another version of Kubernetes, such as 1.35: etcd, kube-apiserver and kube-controller-manager alone (default the cluster's own, with all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		source, err := f.sources()
		if err != nil {
			return err
		}
		// Progress goes to standard error: the folder is read by a script.
		cache, err := cluster.Assets(cmd.Context(), source, version, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), cache.Dir())
		return nil
	}
	return cmd
}

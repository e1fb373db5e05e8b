package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
)

// Plugin is what the commands need of the plugin.
type Plugin struct {
	Out io.Writer
	// Version is that of the plugin, whose images are installed.
	Version string
	// Run connects a command to its cluster.
	Run    func(func(context.Context, *cluster.Access, []string) error) func(*cobra.Command, []string) error
	NoArgs cobra.PositionalArgs
}

// Commands are install, upgrade and uninstall.
func Commands(p Plugin) []*cobra.Command {
	return []*cobra.Command{installCommand(p), upgradeCommand(p), uninstallCommand(p)}
}

func installCommand(p Plugin) *cobra.Command {
	var o Options
	var output string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install MBCAS in this cluster",
		Long: "Install MBCAS in the namespace " + kube.SystemNamespace + ", with the manifests of the plugin's version.\n" +
			"In mode recommend it changes no pod. It needs the rights of a cluster administrator, and nothing else\n" +
			"in the cluster.",
		Example: "  kubectl mbcas install\n  kubectl mbcas install --namespace-to-manage shop\n" +
			"  kubectl mbcas install --registry registry.example.com/mbcas -o yaml | kubectl diff -f -",
		Args: p.NoArgs,
	}
	bind := bindOptions(cmd, &o, p.Version)
	cmd.Flags().StringVarP(&output, "output", "o", "", "yaml: print the manifests, ask no cluster and install nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := bind(); err != nil {
			return err
		}
		switch output {
		case "":
		case "yaml":
			if len(o.Namespaces) > 0 || o.DryRun {
				return program.UsageError{Err: errors.New("-o yaml writes to no cluster: leave out --namespace-to-manage and --dry-run")}
			}
			return Print(p.Out, o)
		default:
			return program.UsageError{Err: fmt.Errorf("-o %s: want yaml", output)}
		}
		return p.Run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			return Install(ctx, a, p.Out, o)
		})(cmd, args)
	}
	return cmd
}

func upgradeCommand(p Plugin) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Change the installation to the version of the plugin",
		Long: "Change the installation of MBCAS to the manifests of the plugin's version, and say what changes. Registry\n" +
			"and mode stay as they are unless they are given. No pod is resized unless the mode changes. If the API\n" +
			"server refuses a part, nothing is written. Objects of the plugin that this version does not have are\n" +
			"deleted. To go back, use the plugin of the version before.",
		Example: "  kubectl mbcas upgrade --dry-run\n  kubectl mbcas upgrade\n  kubectl mbcas upgrade --mode enforce",
		Args:    p.NoArgs,
	}
	bind := bindOptions(cmd, &o, p.Version)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := bind(); err != nil {
			return err
		}
		return p.Run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			return Upgrade(ctx, a, p.Out, o)
		})(cmd, args)
	}
	return cmd
}

// The forms of names of images, as registries have them (github.com/distribution/reference): a host with a port, and
// a path in lower case; and a tag.
var (
	registryForm = regexp.MustCompile(`^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]+)?` +
		`(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// bindOptions adds the flags that install and upgrade share. What it returns checks them once they are read.
func bindOptions(cmd *cobra.Command, o *Options, version string) (check func() error) {
	f := cmd.Flags()
	wait, timeout := true, 3*time.Minute
	f.StringVar(&o.Mode, "mode", "",
		"mode of namespaces without a label: recommend or enforce (default recommend, or as installed)")
	f.StringSliceVar(&o.Namespaces, "namespace-to-manage", nil,
		"label this `namespace` "+kube.ModeLabel+"=enforce; may be repeated")
	f.StringVar(&o.Registry, "registry", "",
		"registry, and path in it, of the images agent and controller (default "+registry+", or as installed)")
	f.StringVar(&o.Tag, "tag", tagOf(version), "tag of these images")
	f.BoolVar(&o.Force, "force-conflicts", false, "overwrite fields that another client has set")
	f.BoolVar(&o.DryRun, "dry-run", false, "print what would change, and write nothing")
	f.BoolVar(&wait, "wait", wait, "wait until every agent and replica is ready")
	f.DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return func() error {
		var err error
		o.TagGiven = f.Changed("tag")
		switch {
		case o.Mode != "" && o.Mode != string(kube.ModeRecommend) && o.Mode != string(kube.ModeEnforce):
			err = fmt.Errorf("--mode %q: want recommend or enforce", o.Mode)
		case o.Registry != "" && !registryForm.MatchString(o.Registry):
			err = fmt.Errorf("--registry %q: want one such as ghcr.io/mbcas or localhost:5000/mbcas, without https://, a last / "+
				"or a tag, which --tag has", o.Registry)
		case !tagForm.MatchString(o.Tag):
			err = fmt.Errorf("--tag %q: want one such as v0.1.0", o.Tag)
		case timeout <= 0:
			err = errors.New("--timeout: want more than 0; with --wait=false nothing is waited for")
		}
		if err != nil {
			return program.UsageError{Err: err}
		}
		if wait {
			o.Wait = timeout
		}
		return nil
	}
}

func uninstallCommand(p Plugin) *cobra.Command {
	var o RemoveOptions
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Restore every pod, then remove MBCAS",
		Long: "Return every pod to its declared limits, in a Job that pauses MBCAS first, and delete MBCAS with its\n" +
			"namespace. If a pod cannot be restored, nothing is deleted. The CRDs stay unless --keep-crds=false is\n" +
			"given, as they hold your DemandSignals; so do the labels " + kube.ModeLabel + " of namespaces.",
		Example: "  kubectl mbcas uninstall --dry-run\n  kubectl mbcas uninstall\n" +
			"  kubectl mbcas uninstall --keep-crds=false",
		Args: p.NoArgs,
		RunE: p.Run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			if o.Timeout <= 0 {
				return program.UsageError{Err: errors.New("--timeout: want more than 0")}
			}
			return Uninstall(ctx, a, p.Out, o)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.KeepCRDs, "keep-crds", true, "keep the CRDs with all PodAllocations, NodeAllocations and DemandSignals")
	f.BoolVar(&o.Force, "force", false, "go on if pods are not restored; the records of their declared limits stay")
	f.BoolVar(&o.DryRun, "dry-run", false, "print what would be restored and deleted, and write nothing")
	f.DurationVar(&o.Timeout, "timeout", 30*time.Minute, "time for the restore, and again for what is deleted to go")
	return cmd
}

// Print writes the manifests of an installation.
func Print(out io.Writer, o Options) error {
	objects, err := manifests(settingsFor(o))
	if err != nil {
		return err
	}
	for i, u := range objects {
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(u), err)
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/format"
)

func versionCommand(s Streams, f *flags, version string) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, the installation and the cluster",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := &format.Table{}
			t.Add("plugin", version)
			var failed error
			if !clientOnly {
				failed = f.addVersions(cmd.Context(), t)
			}
			if _, err := fmt.Fprint(s.Out, t.String()); err != nil {
				return err
			}
			return failed
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the plugin's version only")
	return cmd
}

// addVersions adds the versions of the installation and the cluster, or the error of each.
func (f *flags) addVersions(ctx context.Context, t *format.Table) error {
	a, err := f.connect()
	if err != nil {
		return err
	}
	v, err := a.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the API server: %w", err)
	}
	add := func(name, image string, err error) {
		switch {
		case err != nil:
			image = format.OneLine(err.Error())
		case image == "":
			image = "not installed in namespace " + a.System
		}
		t.Add(name, image)
	}
	image := ""
	d, err := cluster.Get(ctx, a.Client, "Deployment", &appsv1.Deployment{},
		client.ObjectKey{Namespace: a.System, Name: cluster.ControllerName})
	if d != nil {
		image = doctor.Image(d.Spec.Template.Spec)
	}
	add("controller", image, err)
	image = ""
	ds, err := cluster.Get(ctx, a.Client, "DaemonSet", &appsv1.DaemonSet{},
		client.ObjectKey{Namespace: a.System, Name: cluster.AgentName})
	if ds != nil {
		image = doctor.Image(ds.Spec.Template.Spec)
	}
	add("agent", image, err)
	t.Add("Kubernetes", v.GitVersion)
	return nil
}

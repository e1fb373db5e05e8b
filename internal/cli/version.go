package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	d, ds := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	for _, part := range []struct {
		name, object string
		into         client.Object
		spec         *corev1.PodSpec
	}{
		{"controller", cluster.ControllerName, d, &d.Spec.Template.Spec},
		{"agent", cluster.AgentName, ds, &ds.Spec.Template.Spec},
	} {
		key := client.ObjectKey{Namespace: a.System, Name: part.object}
		found, err := cluster.Get(ctx, a.Client, part.into, key)
		text := doctor.Image(*part.spec)
		switch {
		case err != nil:
			text = format.OneLine(err.Error())
		case found == nil:
			text = "not installed in namespace " + a.System
		}
		t.Add(part.name, text)
	}
	t.Add("Kubernetes", v.GitVersion)
	return nil
}

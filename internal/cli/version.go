package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/format"
)

func versionCommand(s Streams, f *flags, version string) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, of what is installed, and of the cluster",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := &format.Table{}
			t.Add("plugin", version)
			var failed error
			if !clientOnly {
				failed = f.installed(cmd.Context(), t)
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

// installed adds what the cluster is and what it has; what cannot be read says why.
func (f *flags) installed(ctx context.Context, t *format.Table) error {
	a, err := f.connect()
	if err != nil {
		return err
	}
	v, err := a.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	add := func(name string, spec *corev1.PodSpec, err error) {
		switch {
		case err != nil:
			t.Add(name, format.OneLine(err.Error()))
		case spec == nil:
			t.Add(name, "not installed in namespace "+a.System)
		default:
			t.Add(name, doctor.Image(*spec))
		}
	}
	d, err := cluster.Get(ctx, a.Client, "deployment", &appsv1.Deployment{}, a.System, cluster.ControllerName)
	if d != nil {
		add("controller", &d.Spec.Template.Spec, nil)
	} else {
		add("controller", nil, err)
	}
	ds, err := cluster.Get(ctx, a.Client, "daemonset", &appsv1.DaemonSet{}, a.System, cluster.AgentName)
	if ds != nil {
		add("agent", &ds.Spec.Template.Spec, nil)
	} else {
		add("agent", nil, err)
	}
	t.Add("Kubernetes", v.GitVersion)
	return nil
}

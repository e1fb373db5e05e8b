package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func versionCommand(s Streams, f *flags, version string) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, of what is installed, and of the cluster",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := &table{}
			t.add("plugin", version)
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
func (f *flags) installed(ctx context.Context, t *table) error {
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
			t.add(name, oneLine(err.Error()))
		case spec == nil:
			t.add(name, "not installed in namespace "+a.System)
		default:
			t.add(name, image(*spec))
		}
	}
	d, err := get(ctx, a.Client, "deployment", &appsv1.Deployment{}, a.System, controllerName)
	if d != nil {
		add("controller", &d.Spec.Template.Spec, nil)
	} else {
		add("controller", nil, err)
	}
	ds, err := get(ctx, a.Client, "daemonset", &appsv1.DaemonSet{}, a.System, agentName)
	if ds != nil {
		add("agent", &ds.Spec.Template.Spec, nil)
	} else {
		add("agent", nil, err)
	}
	t.add("Kubernetes", v.GitVersion)
	return nil
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
)

func versionCommand(s Streams, f *flags, version string) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, of what is installed, and of the cluster",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &table{}
			t.add("plugin", version)
			if !clientOnly {
				a, err := f.connect()
				if err != nil {
					return err
				}
				installed(cmd.Context(), a, t)
			}
			_, err := fmt.Fprint(s.Out, t.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the plugin's version only")
	return cmd
}

// installed adds what the cluster has; what cannot be read says why.
func installed(ctx context.Context, a *Access, t *table) {
	d, err := get(ctx, a.Client, &appsv1.Deployment{}, a.System, controllerName)
	switch {
	case err != nil:
		t.add("controller", oneLine(err.Error()))
	case d == nil:
		t.add("controller", "not installed in namespace "+a.System)
	default:
		t.add("controller", image(d.Spec.Template.Spec))
	}
	ds, err := get(ctx, a.Client, &appsv1.DaemonSet{}, a.System, agentName)
	switch {
	case err != nil:
		t.add("agent", oneLine(err.Error()))
	case ds == nil:
		t.add("agent", "not installed in namespace "+a.System)
	default:
		t.add("agent", image(ds.Spec.Template.Spec))
	}
	v, err := a.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		t.add("Kubernetes", oneLine(err.Error()))
		return
	}
	t.add("Kubernetes", v.GitVersion)
}

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/bundle"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
)

func bundleCommand(s Streams, f *flags, version string) *cobra.Command {
	o := bundle.Options{Version: version, Nodes: 5}
	cmd := &cobra.Command{
		Use:   "bundle -o FILE.zip",
		Short: "Collect what a report of a fault needs into one zip file",
		Long: "Collect the findings of doctor, versions, PodAllocations, NodeAllocations, Events, and of a few nodes the\n" +
			"recordings and logs into one file. What cannot be read is left out and named in its index. Secrets, environment,\n" +
			"labels and images of your pods are not in it; names are, unless --anonymize replaces them. Nothing is sent.",
		Example: "  kubectl mbcas bundle -o mbcas.zip\n  kubectl mbcas bundle -o mbcas.zip --anonymize --nodes 2",
		Args:    noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			switch {
			case o.File == "":
				return UsageError{Err: errors.New("-o: want the name of the zip file to write, such as mbcas.zip")}
			case o.Nodes < 0:
				return UsageError{Err: fmt.Errorf("--nodes %d: want 0 or more", o.Nodes)}
			}
			o.Versions = func(ctx context.Context) (string, error) {
				t := &format.Table{}
				t.Add("plugin", version)
				err := f.addVersions(ctx, t)
				return t.String(), err
			}
			return bundle.Write(ctx, a, s, o)
		}),
	}
	cmd.Flags().StringVarP(&o.File, "output", "o", "", "zip `file` to write")
	cmd.Flags().BoolVar(&o.Anonymize, "anonymize", false, "replace names by pseudonyms; the key to them is thrown away")
	cmd.Flags().IntVar(&o.Nodes, "nodes", o.Nodes, "of how many nodes to read the recording and the log, those with the highest prices")
	return cmd
}

func doctorCommand(s Streams, f *flags) *cobra.Command {
	var o output.Form
	var quiet bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this cluster, its nodes and the installation support MBCAS",
		Long: "Check the cluster, the installation, every node and every namespace with pods that MBCAS may manage.\n" +
			"Nothing is written. The exit code is 1 if a check fails; warnings do not count.",
		Example: "  kubectl mbcas doctor\n  kubectl mbcas doctor --quiet\n" +
			"  kubectl mbcas doctor -o json | jq '.findings[] | select(.level != \"OK\")'",
		Args: noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			report := doctor.NewReport(doctor.Judge(doctor.Gather(ctx, a)))
			err := o.Encode(s.Out, report, func() string { return report.Text(quiet) })
			if err == nil && report.Failures > 0 {
				return ErrFindings
			}
			return err
		}),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "leave out findings that are OK")
	o.Bind(cmd, output.JSON, output.YAML)
	return cmd
}

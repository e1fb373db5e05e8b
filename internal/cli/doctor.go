package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/output"
)

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

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/advise"
	"github.com/mbcas/mbcas/internal/cli/advice"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
)

// The forms of advise beside JSON.
const (
	asTable output.Form = "table"
	asPatch output.Form = "patch"
)

func adviseCommand(s Streams, f *flags) *cobra.Command {
	cfg := advise.DefaultConfig()
	o := asTable
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Advise CPU requests and limits from the demand that was recorded",
		Long: "Advise the requests and limits of the containers of a namespace. They are percentiles of the demand of each\n" +
			"second in the recordings of the nodes, of all pods of a workload together, with headroom. While nothing\n" +
			"hindered a container its demand is its usage; while it was throttled or waited for a CPU, the estimate of the\n" +
			"market. Agents keep half an hour: advice for a day needs the peak of the day in it. Nothing is changed.",
		Example: "  kubectl mbcas advise -n shop\n  kubectl mbcas advise -n shop -o patch > patch.yaml\n" +
			"  kubectl mbcas advise -A --least 1m --limit-percentile 99.9",
		Args: noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return UsageError{Err: err}
			}
			v, err := advice.Read(ctx, a, s, cfg)
			if err != nil {
				return err
			}
			return o.Encode(s.Out, v, func() string {
				if o == asPatch {
					return v.Patch()
				}
				style := format.Style{}
				if s.Screen != nil {
					style.Width = s.Screen().Width
				}
				return v.Text(style)
			})
		}),
	}
	f.allNamespacesFlag(cmd)
	cmd.Flags().Float64Var(&cfg.RequestPercentile, "request-percentile", cfg.RequestPercentile, "a request covers the demand of this share of the seconds, in percent")
	cmd.Flags().Float64Var(&cfg.LimitPercentile, "limit-percentile", cfg.LimitPercentile, "a limit covers the demand of this share of the seconds, in percent")
	cmd.Flags().Float64Var(&cfg.Headroom, "headroom", cfg.Headroom, "share that is added to both")
	cmd.Flags().DurationVar(&cfg.Least, "least", cfg.Least, "advise only about containers that were seen for this long, all pods together")
	o.Bind(cmd, asTable, asPatch, output.JSON)
	return cmd
}

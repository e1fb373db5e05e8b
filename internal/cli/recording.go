package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/history"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/whatif"
)

// source is the recording that a command line names.
type source struct{ past.Source }

func newSource(f *flags) *source { return &source{past.Source{Connect: f.connect}} }

func (s *source) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.Node, "node", "", "the recording of this node")
}

// args takes a file or a pod, or neither with --node.
func (s *source) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && past.IsFile(args[0]) && s.Node == "" {
		s.File = args[0]
		return nil
	}
	if err := podArgs(0)(cmd, args); err != nil {
		return err
	}
	if (len(args) == 0) == (s.Node == "") {
		return UsageError{Err: fmt.Errorf("%q needs a file, a pod, or --node", cmd.CommandPath())}
	}
	if len(args) == 1 {
		s.Pod = args[0]
	}
	return nil
}

func recordCommand(s Streams, f *flags) *cobra.Command {
	from := newSource(f)
	var out string
	var follow time.Duration
	cmd := &cobra.Command{
		Use:   "record [POD]",
		Short: "Save the recording of a node: what its rounds were given",
		Long: "Save what the agent of a node has recorded: the counters and settings of the rounds of the last half hour,\n" +
			"and of the minutes around incidents. The file has the names of namespaces, pods and containers, and CPU figures;\n" +
			"no labels, images or environment. \"story\", \"replay\" and \"explain --at\" read it, without a cluster.",
		Example: "  kubectl mbcas record --node node-1\n  kubectl mbcas record cart-7d9f -n shop --follow 10m -o cart" + past.Extension,
		Args:    from.args, ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			if from.File != "" {
				return UsageError{Err: fmt.Errorf("%s is a file: record needs a pod or --node", from.File)}
			}
			return past.Save(ctx, a, s, &from.Source, out, follow)
		}),
	}
	from.bind(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write; by default NODE-TIME"+past.Extension)
	cmd.Flags().DurationVar(&follow, "follow", 0, "go on recording for this long, such as 10m")
	return cmd
}

func replayCommand(s Streams, f *flags) *cobra.Command {
	from := newSource(f)
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run the rounds of a recording again, and compare the results",
		Long: "Run all rounds of a recording again, and compare each result with the one of the agent: limits, what binds them,\n" +
			"what is published. The same version of MBCAS gives the same results on each machine.",
		Example: "  kubectl mbcas replay node-1-20261121T120000" + past.Extension,
		Args:    from.args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := from.Read(cmd.Context(), s)
			if err != nil {
				return err
			}
			return past.Replay(s, rec)
		},
	}
	from.bind(cmd)
	return cmd
}

func storyCommand(s Streams, f *flags) *cobra.Command {
	from := newSource(f)
	var o output.Form
	cmd := &cobra.Command{
		Use:   "story FILE|POD",
		Short: "Tell in sentences what happened on a node, or to a pod",
		Long: "Tell in sentences with times what happened: when CPU became scarce, which limits were changed and why, which pods\n" +
			"came and went, and what that has brought and cost. It replays a recording: of a file, or of an agent.",
		Example: "  kubectl mbcas story --node node-1\n  kubectl mbcas story cart-7d9f -n shop\n  kubectl mbcas story node-1-20261121T120000" + past.Extension,
		Args:    from.args, ValidArgsFunction: f.completePods,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := from.Read(cmd.Context(), s)
			if err != nil {
				return err
			}
			told, err := story.Tell(rec, from.About)
			if err != nil {
				return err
			}
			return o.Encode(s.Out, told, told.Text)
		},
	}
	from.bind(cmd)
	o.Bind(cmd, output.JSON, output.YAML)
	return cmd
}

func logCommand(s Streams, f *flags) *cobra.Command {
	var o output.Form
	cmd := &cobra.Command{
		Use:   "log POD",
		Short: "Tell what happened to a pod: changes of its limit with why, and Events",
		Long: "Tell by time what happened to a pod: when its limit was changed and why, from the recording of its node, which\n" +
			"has the last half hour and incidents, and the Events of the pod and of its PodAllocation.",
		Example: "  kubectl mbcas log cart-7d9f -n shop\n  kubectl mbcas log cart-7d9f -n shop -o json",
		Args:    podArgs(1), ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			l, err := history.Read(ctx, a, s, args[0])
			if err != nil {
				return err
			}
			return o.Encode(s.Out, l, l.Text)
		}),
	}
	o.Bind(cmd, output.JSON, output.YAML)
	return cmd
}

// moment is a time of a recording.
type moment struct{ at, file string }

func (m *moment) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.at, "at", "", "explain the limit at this `time` of the recording, such as 12:03, 12:03:07 (UTC) or 2026-11-21T12:03:07Z")
	cmd.Flags().StringVar(&m.file, "recording", "", "`file` with the recording; by default that of the node's agent")
}

func (m *moment) asked() bool { return m.at != "" || m.file != "" }

// explain explains the limit of a pod at that time. A file needs no cluster; its pod is sought in the namespace of the
// command line, or in all if none is given.
func (m *moment) explain(ctx context.Context, f *flags, s Streams, pod string) (story.Answer, error) {
	from := past.Source{Pod: pod, File: m.file, Connect: f.connect}
	if m.at == "" {
		return story.Answer{}, UsageError{Err: errors.New("--recording needs a time: give one with --at")}
	}
	rec, err := from.Read(ctx, s)
	if err != nil {
		return story.Answer{}, err
	}
	if m.file != "" {
		namespace := f.overrides.Context.Namespace
		from.About = func(n record.Name) bool { return n.Name == pod && (namespace == "" || n.Namespace == namespace) }
	}
	to := time.Time{}
	if n := len(rec.Minutes); n > 0 {
		to = rec.Minutes[n-1].To
	}
	at, err := past.ParseMoment(m.at, to)
	if err != nil {
		return story.Answer{}, UsageError{Err: err}
	}
	return story.At(rec, from.About, at)
}

func whatIfCommand(s Streams, f *flags) *cobra.Command {
	from := newSource(f)
	var o output.Form
	var reserve float64
	var off bool
	var priorities, requests, most, optOut []string
	cmd := &cobra.Command{
		Use:   "what-if FILE|POD",
		Short: "Decide on a recording with other settings, and compare the limits",
		Long: "Run the rounds of a recording with another reserve, other priorities or requests, or without MBCAS, and compare the limits\n" +
			"that the market would have decided. The counters stay as recorded: what the pods would have done with other limits is\n" +
			"not played. PODS is NAMESPACE/NAME, with * for any characters.",
		Example: "  kubectl mbcas what-if --node node-1 --reserve 0.05\n" +
			"  kubectl mbcas what-if node-1-20261121T120000" + past.Extension + " --priority 'shop/cart-*=100000' --max-cpu 'batch/*=1'\n" +
			"  kubectl mbcas what-if cart-7d9f -n shop --off",
		Args: from.args, ValidArgsFunction: f.completePods,
		RunE: func(cmd *cobra.Command, _ []string) error {
			change := whatif.Change{Off: off}
			if cmd.Flags().Changed("reserve") {
				change.Reserve = &reserve
			}
			if err := past.ChangePods(&change, priorities, requests, most, optOut); err != nil {
				return UsageError{Err: err}
			}
			if err := change.Validate(); err != nil {
				return UsageError{Err: err}
			}
			rec, err := from.Read(cmd.Context(), s)
			if err != nil {
				return err
			}
			c, err := whatif.Decide(rec, change)
			if err != nil {
				return err
			}
			if len(change.Pods) > 0 && c.Matched == 0 {
				return errors.New("no managed pod of the recording is one of those named: check the patterns; they are NAMESPACE/NAME")
			}
			return o.Encode(s.Out, c, c.Text)
		},
	}
	from.bind(cmd)
	cmd.Flags().Float64Var(&reserve, "reserve", 0, "share of the node's allocatable CPU that is not sold, 0 to below 1")
	cmd.Flags().BoolVar(&off, "off", false, "MBCAS is off: every pod has its declared limits")
	cmd.Flags().StringArrayVar(&priorities, "priority", nil, "`PODS=VALUE`: these pods have a PriorityClass of that value")
	cmd.Flags().StringArrayVar(&requests, "request", nil, "`PODS=CPU`: these pods request that")
	cmd.Flags().StringArrayVar(&most, "max-cpu", nil, "`PODS=CPU`: these pods get no higher limit")
	cmd.Flags().StringArrayVar(&optOut, "opt-out", nil, "`PODS` that MBCAS does not manage")
	o.Bind(cmd, output.JSON, output.YAML)
	return cmd
}

// csvForm is a form of report alone, which writes it.
const csvForm output.Form = "csv"

func reportCommand(s Streams, f *flags) *cobra.Command {
	node, by := "", past.Groups[0]
	var o output.Form
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report what MBCAS brings and costs, by workload, namespace or node",
		Long: "Add up what the agents have recorded, about half an hour: how long pods were throttled, and for how much of that CPU was\n" +
			"idle; what they used beyond their declared limits, and what was withheld. Where limits are only recommended it estimates\n" +
			"what enforcing them would bring and cost.",
		Example: "  kubectl mbcas report -A\n  kubectl mbcas report -n shop --by pod\n  kubectl mbcas report -A --by namespace -o csv",
		Args:    noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			if !slices.Contains(past.Groups, by) {
				return UsageError{Err: fmt.Errorf("--by %q: want one of %s", by, strings.Join(past.Groups, ", "))}
			}
			r, err := past.ReportOf(ctx, a, s, node, by)
			if err != nil {
				return err
			}
			if o == csvForm {
				text, err := r.CSV()
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(s.Out, text)
				return err
			}
			return o.Encode(s.Out, r, r.Text)
		}),
	}
	f.allNamespacesFlag(cmd)
	cmd.Flags().StringVar(&node, "node", "", "only the pods of this node")
	cmd.Flags().StringVar(&by, "by", by, "a row for each "+orList(past.Groups))
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(past.Groups, cobra.ShellCompDirectiveNoFileComp))
	o.Bind(cmd, output.JSON, output.YAML, csvForm)
	return cmd
}

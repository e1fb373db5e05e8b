// Package cli is the kubectl plugin. Each command gathers facts from the API server, hands them to
// a pure function that decides or writes text, and prints.
//
// What it promises, each a test of the same name:
//   - ReadsOnly: list, usage, nodes, explain and doctor write nothing.
//   - RefusesUnsafe: resize makes no change that harms the pod or that Kubernetes refuses.
//   - TouchesLimitsOnly: resize and restore change CPU limits of containers that have one, and nothing else.
//   - RestoreIsExact: restore returns a pod to exactly its declared limits.
//   - DryRunChangesNothing: with --dry-run nothing is written.
package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/program"
)

// Streams are where a command writes.
type Streams = format.Streams

// UsageError is an invalid command line. The plugin exits with 2 for it.
type UsageError = program.UsageError

// ErrFindings is the error of doctor if a check failed. The findings have been printed.
var ErrFindings = errors.New("doctor found failures: see the findings marked FAIL")

// Command is the whole plugin.
func Command(s Streams, version string) *cobra.Command { return command(s, version, newFlags()) }

func command(s Streams, version string, flags *flags) *cobra.Command {
	if s.Screen == nil {
		s.Screen = output.ScreenOf(s.Out)
	}
	root := &cobra.Command{
		Use:   "kubectl-mbcas",
		Short: "Show and control the CPU limits that MBCAS sets",
		Long: "MBCAS resizes the CPU limits of running pods by what the kernel's counters report.\n" +
			"These commands show what it does and why, and resize, restore or pause by hand.",
		Example: "  kubectl mbcas doctor            # will it work here?\n" +
			"  kubectl mbcas nodes             # where is CPU scarce?\n" +
			"  kubectl mbcas list -A           # what does it do to each pod?\n" +
			"  kubectl mbcas explain POD       # why is this limit what it is?",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mbcas"},
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
		Args:                       noArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return program.FlagError(cmd.CommandPath(), err) })
	flags.bind(root)
	root.AddCommand(
		listCommand(s, flags),
		usageCommand(s, flags),
		nodesCommand(s, flags),
		dashboardCommand(s, flags),
		explainCommand(s, flags),
		reportCommand(s, flags),
		storyCommand(s, flags),
		logCommand(s, flags),
		recordCommand(s, flags),
		replayCommand(s, flags),
		whatIfCommand(s, flags),
		adviseCommand(s, flags),
		resizeCommand(s, flags),
		restoreCommand(s, flags),
		modeCommand(s, flags),
		pauseCommand(s, flags),
		resumeCommand(s, flags),
		doctorCommand(s, flags),
		bundleCommand(s, flags, version),
		versionCommand(s, flags, version),
	)
	return root
}

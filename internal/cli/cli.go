// Package cli is the kubectl plugin. Each command gathers facts from the API server, hands them to a pure
// function that decides or writes text, and prints.
//
// What it promises, each a test of the same name:
//   - ReadsOnly: list, usage, explain and doctor write nothing.
//   - RefusesUnsafe: resize changes nothing that would harm the pod or that Kubernetes would refuse.
//   - TouchesLimitsOnly: resize and restore change CPU limits of containers that have one, and nothing else.
//   - RestoreIsExact: restore returns a pod to exactly its declared limits.
//   - DryRunChangesNothing: with --dry-run nothing is written.
package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// Streams are where a command writes.
type Streams = format.Streams

// UsageError is a command line that cannot be understood; main exits with 2 for it.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// ErrFindings is returned by doctor when a check failed: everything has been printed already.
var ErrFindings = errors.New("doctor found failures")

// Command is the whole plugin.
func Command(s Streams, version string) *cobra.Command { return command(s, version, newFlags()) }

func command(s Streams, version string, flags *flags) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-mbcas",
		Short: "Look at and steer the CPU limits that MBCAS sets",
		Long: "MBCAS moves CPU limits of running pods to where the kernel's counters say they are needed.\n" +
			"These commands show what it does and why, and do by hand what it does by itself.",
		Example: "  kubectl mbcas doctor            # will it work here?\n" +
			"  kubectl mbcas list -A           # what does it do to which pod?\n" +
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	flags.bind(root)
	root.AddCommand(
		listCommand(s, flags),
		usageCommand(s, flags),
		explainCommand(s, flags),
		resizeCommand(s, flags),
		restoreCommand(s, flags),
		modeCommand(s, flags),
		pauseCommand(s, flags),
		resumeCommand(s, flags),
		doctorCommand(s, flags),
		versionCommand(s, flags, version),
	)
	return root
}

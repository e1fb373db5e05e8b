// Package cli is the commands of mbcas-lab. Each command is in a file of its name.
//
// What it promises, each a test of the same name:
//   - OneErrorPerLine: a command line that cannot be parsed reports what is wrong, and what is
//     possible instead.
//   - SameAnswer: the same command line prints the same text and writes the same files.
package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/program"
)

// Streams are where a command writes: answers to Out, progress and warnings to Err.
type Streams struct{ Out, Err io.Writer }

// UsageError is a command line that cannot be parsed; main exits with 2 for it.
type UsageError = program.UsageError

func usage(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }

// Command is the whole program.
func Command(s Streams, version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "mbcas-lab",
		Short: "Simulate pods and their load on nodes, without a cluster",
		Long: "Simulate pods and their load on nodes, under MBCAS or another policy.\n" +
			"No cluster is needed. The same command gives the same figures.",
		Example: "  mbcas-lab scenarios                                          # list the scenarios\n" +
			"  mbcas-lab sim contended-services-hogs --policy static        # run one with limits as declared\n" +
			"  mbcas-lab sim shop.yaml --out out/shop                       # a scenario of your own; series as CSV\n" +
			"  mbcas-lab compare --quick                                    # compare all policies\n" +
			"  mbcas-lab what-if node-1.mbcas --played --off                # what a node recorded, played without MBCAS",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
		Args:                       checkArgs(0, 0, ""),
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return program.FlagError(cmd.CommandPath(), err) })
	root.AddCommand(scenariosCommand(s), policiesCommand(s), simCommand(s), compareCommand(s), fairnessCommand(s),
		replayCommand(s), whatIfCommand(s), scenarioCommand(s))
	root.AddCommand(realCommands(s)...)
	return root
}

// checkArgs accepts low to high arguments; what names one of them in errors.
func checkArgs(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && cmd.HasSubCommands():
			text := fmt.Sprintf("unknown command %q: see \"%s --help\"", args[0], cmd.CommandPath())
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				text = fmt.Sprintf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return usage("%s", text)
		case len(args) < low:
			return usage("%q needs %s", cmd.CommandPath(), what)
		case len(args) > high:
			return usage("%q takes no argument %q", cmd.CommandPath(), args[high])
		}
		return nil
	}
}

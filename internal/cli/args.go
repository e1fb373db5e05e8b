package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// noArgs refuses words that no command takes, with the nearest command where there is one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return UsageError{fmt.Errorf("%q takes no argument, got %q", cmd.CommandPath(), args[0])}
	}
	text := fmt.Sprintf("unknown command %q: see \"%s --help\"", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text = fmt.Sprintf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return UsageError{fmt.Errorf("%s", text)}
}

// podArgs wants at least low and at most high pod names; "pod/web" is taken for "web".
func podArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return UsageError{fmt.Errorf("%q needs the name of a pod", cmd.CommandPath())}
		case len(args) > high:
			return UsageError{fmt.Errorf("%q takes %s, got %d", cmd.CommandPath(), atMost(high), len(args))}
		}
		for i := range args {
			kind, name, ok := strings.Cut(args[i], "/")
			switch {
			case !ok:
			case name != "" && (kind == "pod" || kind == "pods" || kind == "po"):
				args[i] = name
			default:
				return UsageError{fmt.Errorf("%q is not a pod: write its name or pod/NAME", args[i])}
			}
		}
		return nil
	}
}

func atMost(n int) string {
	if n == 1 {
		return "one pod"
	}
	return fmt.Sprintf("at most %d pods", n)
}

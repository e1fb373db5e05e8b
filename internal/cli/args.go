package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noArgs refuses arguments. For an unknown command it names the most similar ones.
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

// podArgs accepts low to high pod names; "pod/web" means "web".
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

// completePods completes one pod name.
func (f *flags) completePods(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var pods corev1.PodList
	return f.complete(cmd, &pods, prefix, func() (names []string) {
		for _, p := range pods.Items {
			names = append(names, p.Name)
		}
		return names
	})
}

// completeNamespaces completes a namespace, then a mode.
func (f *flags) completeNamespaces(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		var list corev1.NamespaceList
		f.all = true
		return f.complete(cmd, &list, prefix, func() (names []string) {
			for _, n := range list.Items {
				names = append(names, n.Name)
			}
			return names
		})
	case 1:
		return modeNames(), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (f *flags) complete(
	cmd *cobra.Command, into client.ObjectList, prefix string, names func() []string,
) ([]string, cobra.ShellCompDirective) {
	a, err := f.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if err := a.Client.List(cmd.Context(), into, client.InNamespace(a.Namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := slices.DeleteFunc(names(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	return list, cobra.ShellCompDirectiveNoFileComp
}

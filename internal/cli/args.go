package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noArgs refuses arguments. For an unknown command it names the most similar ones.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return UsageError{Err: fmt.Errorf("%q takes no argument, got %q", cmd.CommandPath(), args[0])}
	}
	text := fmt.Sprintf("unknown command %q: see \"%s --help\"", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text = fmt.Sprintf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return UsageError{Err: fmt.Errorf("%s", text)}
}

// podArgs accepts one pod name, or none if low is 0; "pod/web" means "web".
func podArgs(low int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return UsageError{Err: fmt.Errorf("%q needs the name of a pod", cmd.CommandPath())}
		case len(args) > 1:
			return UsageError{Err: fmt.Errorf("%q takes one pod, got %d", cmd.CommandPath(), len(args))}
		}
		for i := range args {
			kind, name, ok := strings.Cut(args[i], "/")
			switch {
			case !ok:
			case name != "" && (kind == "pod" || kind == "pods" || kind == "po"):
				args[i] = name
			default:
				return UsageError{Err: fmt.Errorf("%q is not a pod: write its name or pod/NAME", args[i])}
			}
		}
		return nil
	}
}

func (f *flags) completePods(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.complete(cmd, &corev1.PodList{}, prefix)
}

// completeNamespaces completes a namespace, then a mode.
func (f *flags) completeNamespaces(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		f.all = true
		return f.complete(cmd, &corev1.NamespaceList{}, prefix)
	case 1:
		return modeNames, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (f *flags) complete(
	cmd *cobra.Command, list client.ObjectList, prefix string,
) (names []string, directive cobra.ShellCompDirective) {
	a, err := f.connect()
	if err == nil {
		err = a.Client.List(cmd.Context(), list, client.InNamespace(a.Namespace))
	}
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok && strings.HasPrefix(object.GetName(), prefix) {
				names = append(names, object.GetName())
			}
			return nil
		})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

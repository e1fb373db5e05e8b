package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completePods offers the pods of the namespace, once.
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

// completeNamespaces offers namespaces, then modes.
func (f *flags) completeNamespaces(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
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

func (f *flags) complete(cmd *cobra.Command, into client.ObjectList, prefix string, names func() []string) ([]string, cobra.ShellCompDirective) {
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

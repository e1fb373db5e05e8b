package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// listing is what the list command was asked for.
type listing struct {
	selector, node, sort string
	unmanaged            bool
	output               output
}

func listCommand(s Streams, f *flags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List pods with request, limit, use, throttling and what MBCAS decided",
		Long: "List the pods that MBCAS manages: what they request, how they are limited, what they use, and where\n" +
			"their allocation stands. Below the table is counted what is not managed, and why.\n" +
			"Use, throttling, demand and price come from the agent of the pod's node, or, where it cannot be asked,\n" +
			"from the pod's last published decision; -o wide shows how old they are.",
		Example: "  kubectl mbcas list -A --sort throttled\n  kubectl mbcas list -n shop -l app=cart -o wide\n  kubectl mbcas list --all -o json",
		Args:    noArgs,
		RunE: f.run(func(ctx context.Context, a *Access, _ []string) error {
			return list(ctx, a, s, l)
		}),
	}
	f.scope(cmd)
	cmd.Flags().StringVarP(&l.selector, "selector", "l", "", "label selector")
	cmd.Flags().StringVar(&l.node, "node", "", "only pods of this node")
	cmd.Flags().StringVar(&l.sort, "sort", "name", "sort by name, use, limit, demand or throttled")
	cmd.Flags().BoolVar(&l.unmanaged, "all", false, "list pods that are not managed, too")
	outputFlag(cmd, &l.output, wide, asJSON, asYAML)
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sortKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func list(ctx context.Context, a *Access, s Streams, l listing) error {
	order, ok := orders[l.sort]
	if !ok {
		return UsageError{fmt.Errorf("--sort %q: want one of %s", l.sort, strings.Join(sortKeys(), ", "))}
	}
	selector, err := labels.Parse(l.selector)
	if err != nil {
		return UsageError{fmt.Errorf("-l %q: %w", l.selector, err)}
	}
	w, err := gather(ctx, a, selection{namespace: a.Namespace, node: l.node, labels: selector})
	if err != nil {
		return err
	}
	readLive(ctx, a, w)
	rows := standings(w, a.System)
	order(rows)
	view := newListView(rows, l.unmanaged, w.Notes)
	view.scope = scope{a.Namespace, l.node, l.selector}
	if done, err := encode(s.Out, l.output, view); done {
		return err
	}
	_, err = fmt.Fprint(s.Out, view.text(l.output == wide, a.Now()))
	return err
}

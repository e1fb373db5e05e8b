package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// effects say what each mode does.
var effects = map[kube.Mode]string{
	kube.ModeOff:       "its pods return to their declared limits and are not managed",
	kube.ModeRecommend: "limits are decided and recorded, not applied; limits below the declared ones go back to them, higher ones stay",
	kube.ModeEnforce:   "limits are decided and applied",
	kube.ModeRestore:   "its pods return to their declared limits and stay there; decisions are still recorded",
	"":                 "the controller's default mode applies",
}

// defaultMode removes the label, so that the controller's default mode applies.
const defaultMode = "default"

var modeNames = []string{
	string(kube.ModeOff), string(kube.ModeRecommend), string(kube.ModeEnforce), string(kube.ModeRestore), defaultMode,
}

func modeCommand(s Streams, f *flags) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "mode [NAMESPACE [off|recommend|enforce|restore|default]]",
		Short: "Show or set what MBCAS does in a namespace",
		Long: "Show the mode of all namespaces or of one, or set it by the label " + kube.ModeLabel + ".\n\n" +
			"  off        pods are not managed; resized pods return to their declared limits\n" +
			"  recommend  limits are decided and recorded, not applied; pods below their declared limits return to them\n" +
			"  enforce    limits are decided and applied\n" +
			"  restore    pods return to their declared limits and stay there\n" +
			"  default    the label is removed, so that the controller's default mode applies",
		Example: "  kubectl mbcas mode\n  kubectl mbcas mode shop enforce\n  kubectl mbcas mode shop restore --dry-run",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 2:
				return UsageError{Err: fmt.Errorf("mode takes a namespace and a mode, got %d arguments", len(args))}
			case len(args) == 2 && !slices.Contains(modeNames, args[1]):
				return UsageError{Err: fmt.Errorf("mode %q: want one of %s", args[1], strings.Join(modeNames, ", "))}
			}
			return nil
		},
		ValidArgsFunction: f.completeNamespaces,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			switch len(args) {
			case 2:
				return setMode(ctx, a, s, args[0], args[1], dryRun)
			case 1:
				return showModes(ctx, a, s, args[0])
			}
			return showModes(ctx, a, s, "")
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the change, and write nothing")
	return cmd
}

func showModes(ctx context.Context, a *cluster.Access, s Streams, namespace string) error {
	note := ""
	settings, err := cluster.ReadSettings(ctx, a)
	if err != nil {
		note = fmt.Sprintf("Note: The default mode is unknown: %s.\n", format.OneLine(err.Error()))
	}
	namespaces, err := cluster.ReadNamespaces(ctx, a.Client, namespace)
	if err != nil {
		return err
	}
	t := &format.Table{Header: []string{"NAMESPACE", "MODE", "FROM"}}
	for _, ns := range namespaces {
		mode, from := modeText(&ns, settings.Mode(), a.System)
		t.Add(ns.Name, mode, from)
	}
	_, err = fmt.Fprint(s.Out, t.String(), note)
	return err
}

// modeText is a namespace's mode and where it comes from.
func modeText(ns *corev1.Namespace, byDefault kube.Mode, system string) (mode, from string) {
	if kube.AlwaysUnmanaged(ns.Name, system) {
		return string(kube.ModeOff), "system namespace"
	}
	m, valid := kube.ModeOf(ns.Labels, byDefault)
	label, labelled := ns.Labels[kube.ModeLabel]
	switch {
	case !valid:
		return string(m), fmt.Sprintf("label %q is not a mode", label)
	case labelled:
		return string(m), "label"
	}
	return cmp.Or(string(m), "unknown"), "default"
}

func setMode(ctx context.Context, a *cluster.Access, s Streams, namespace, to string, dryRun bool) error {
	if kube.AlwaysUnmanaged(namespace, a.System) {
		return fmt.Errorf("namespace %s: MBCAS never manages its pods, whatever its mode", namespace)
	}
	namespaces, err := cluster.ReadNamespaces(ctx, a.Client, namespace)
	if err != nil {
		return err
	}
	ns := &namespaces[0]
	settings, _ := cluster.ReadSettings(ctx, a) // without them the default mode is unknown
	byDefault := settings.Mode()
	from, how := modeText(ns, byDefault, a.System)
	var label *string // nil removes it
	mode, now := byDefault, cmp.Or(string(byDefault), "unknown")+" (default)"
	if to != defaultMode {
		label, mode, now = &to, kube.Mode(to), to
	}
	labels := map[string]*string{kube.ModeLabel: label}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	var options []client.PatchOption
	suffix := ""
	if dryRun {
		options, suffix = append(options, client.DryRunAll), " (dry run)"
	}
	if err := a.Client.Patch(ctx, ns, client.RawPatch(types.MergePatchType, patch), options...); err != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("namespace %s: you may not label it: %w", namespace, err)
		}
		return fmt.Errorf("label namespace %s: %w", namespace, err)
	}
	_, err = fmt.Fprintf(s.Out, "namespace %s: %s (%s) -> %s%s: %s.\n", namespace, from, how, now, suffix, effects[mode])
	return err
}

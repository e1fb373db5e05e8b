package install

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// labelled are the namespaces with a label.
func (r *run) labelled(ctx context.Context, key string) ([]corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := r.Client.List(ctx, &list, client.HasLabels{key}); err != nil {
		return nil, fmt.Errorf("list namespaces with the label %s: %w", key, err)
	}
	return list.Items, nil
}

// enforced are the namespaces whose label has pods resized, whatever the default mode is.
func (r *run) enforced(ctx context.Context) (names []string, err error) {
	namespaces, err := r.labelled(ctx, kube.ModeLabel)
	for _, ns := range namespaces {
		mode, valid := kube.ModeOf(ns.Labels, "")
		if valid && mode == kube.ModeEnforce && !kube.AlwaysUnmanaged(ns.Name, r.System) {
			names = append(names, ns.Name)
		}
	}
	return names, err
}

// sayEnforced says which namespaces have a label from before an installation that acts as soon as it runs.
func (r *run) sayEnforced(ctx context.Context) error {
	names, err := r.enforced(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	r.say("Namespaces that have the label %s=%s already: %s. Their pods are resized as soon as MBCAS runs.\n"+
		"To prevent that, first: %s", kube.ModeLabel, kube.ModeEnforce, format.Few(names), removal(kube.ModeLabel+"="+string(kube.ModeEnforce), kube.ModeLabel))
	return nil
}

// sayLabels says which labels outlive an uninstallation, and how to remove them.
func (r *run) sayLabels(ctx context.Context) error {
	for _, key := range []string{kube.ModeLabel, kube.DefaultLimitKey} {
		namespaces, err := r.labelled(ctx, key)
		if err != nil {
			return err
		}
		var names []string
		for _, ns := range namespaces {
			names = append(names, ns.Name)
		}
		if len(names) > 0 {
			r.say("The label %s stays on %s, and acts again once MBCAS is installed again. To remove it: %s", key,
				format.Few(names), removal(key, key))
		}
	}
	return nil
}

// removal is the command that removes a label from the namespaces of a selector.
func removal(selector, key string) string {
	return fmt.Sprintf("kubectl label namespace -l %s %s-", selector, key)
}

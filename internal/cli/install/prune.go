package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// installedByLabel is on every object that the plugin applies. By it, a later version finds what it does not have itself.
const installedByLabel = "mbcas.io/installed-by"

// formerKinds are kinds of which an earlier version had objects and this one has none: there are none yet. A kind that
// leaves config comes here.
var formerKinds []schema.GroupVersionKind

// label marks objects as the plugin's.
func label(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[installedByLabel] = kube.PluginFieldManager
		o.SetLabels(labels)
	}
}

// stale are the objects that another version of the plugin has installed and that this one does not have, in the order in
// which they are deleted. An object is the plugin's only if it has the label and the plugin has applied it: a copy under
// another name has the label, too. A CRD or a namespace is never stale, as what it holds would go with it.
func (r *run) stale(ctx context.Context, ours []*unstructured.Unstructured) (found []*unstructured.Unstructured, err error) {
	known, kinds, namespaces := map[string]bool{}, slices.Clone(formerKinds), []string{r.System}
	for _, o := range ours {
		known[nameOf(o)] = true
		kinds, namespaces = append(kinds, o.GroupVersionKind()), append(namespaces, o.GetNamespace())
	}
	for i, kind := range kinds {
		if kind.Kind == crdKind || kind.Kind == "Namespace" || slices.Contains(kinds[:i], kind) {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := r.Client.List(ctx, list, client.MatchingLabels{installedByLabel: kube.PluginFieldManager})
		if meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			o := &unstructured.Unstructured{}
			o.SetKind(kind.Kind)
			return nil, explained("list", o, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if !known[nameOf(o)] && slices.Contains(append(namespaces, ""), o.GetNamespace()) && appliedByPlugin(o) {
				found = append(found, o)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *unstructured.Unstructured) int { return rank(b) - rank(a) })
	return found, nil
}

// appliedByPlugin says whether the plugin has applied an object as a whole.
func appliedByPlugin(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == kube.PluginFieldManager && m.Operation == metav1.ManagedFieldsOperationApply
	})
}

// prune deletes what this version does not have. A dry run only says so.
func (r *run) prune(ctx context.Context, now *installation) error {
	for _, o := range now.stale {
		r.say("  %s: deleted, as this version does not have it", nameOf(o))
		if r.o.DryRun {
			continue
		}
		uid := o.GetUID()
		if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return explained("delete", o, err)
		}
	}
	return nil
}

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// readVPAs adds the VerticalPodAutoscalers of a namespace, or all for "", and notes those whose
// pods are unknown.
func readVPAs(ctx context.Context, a *Access, s *snapshot.Snapshot, namespace string) {
	if len(s.Pods) == 0 {
		return
	}
	if err := AddVPAs(ctx, a.Client, s.Objects, namespace); err != nil {
		s.Note("The VerticalPodAutoscalers are unknown: %s.", format.OneLine(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Objects)) {
		n := s.Objects[name]
		for _, v := range n.VPAs {
			if err := n.Unresolved[v.Target]; err != nil {
				s.Note("The pods of VerticalPodAutoscaler %s/%s are unknown: %s.", name, v.Name,
					format.OneLine(err.Error()))
			}
		}
	}
}

// AddVPAs lists the VerticalPodAutoscalers of a namespace, or all for "". A cluster that does not
// serve the kind has none.
func AddVPAs(ctx context.Context, c client.Client, objects snapshot.ObjectsByNamespace, namespace string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(constraints.VPAKind.GroupVersion().WithKind(constraints.VPAKind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		if NotInstalled(err) {
			return nil
		}
		return fmt.Errorf("list verticalpodautoscalers: %w", err)
	}
	for i := range list.Items {
		v := constraints.VPAOf(&list.Items[i])
		n := objects.Get(v.Namespace)
		n.VPAs = append(n.VPAs, v)
		if v.Mode != "Off" {
			ResolveTarget(ctx, c, n, v.Namespace, v.Target)
		}
	}
	return nil
}

// ResolveTarget finds the selector of a scale target whose pods cannot be told by their owner
// references.
func ResolveTarget(
	ctx context.Context, c client.Client, n *snapshot.NamespaceObjects, namespace string, t kube.Target,
) {
	if t.KnownByOwner() || n.Selectors[t] != nil || n.Unresolved[t] != nil {
		return
	}
	selector, err := readSelector(ctx, c, namespace, t)
	if err != nil {
		n.Unresolved[t] = err
		return
	}
	n.Selectors[t] = selector
}

// readSelector reads the label selector of a target's pods from its scale subresource, as the
// controller and autoscalers do. A target that does not exist has no pods.
func readSelector(ctx context.Context, c client.Client, namespace string, t kube.Target) (labels.Selector, error) {
	o, scale, err := kube.ScaleOf(namespace, t)
	if err != nil {
		return nil, fmt.Errorf("its target %s: %w", t, err)
	}
	switch err := c.SubResource("scale").Get(ctx, o, scale); {
	case apierrors.IsNotFound(err) || NotInstalled(err):
		return labels.Nothing(), nil
	case err != nil:
		return nil, fmt.Errorf("read the scale of %s %s/%s: %w", t.Kind, namespace, t.Name, err)
	}
	return kube.SelectorOf(scale)
}

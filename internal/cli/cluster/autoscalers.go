package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/autoscalers"
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
	list := autoscalers.VPAList()
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
	selector, err := autoscalers.ReadSelector(ctx, c, namespace, t)
	switch {
	case err == nil:
		n.Selectors[t] = selector
	case NotInstalled(err): // a target that does not exist has no pods
		n.Selectors[t] = labels.Nothing()
	default:
		n.Unresolved[t] = err
	}
}

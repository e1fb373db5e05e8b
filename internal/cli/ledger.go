package cli

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// records are the declared limits of pods: those of their allocations, and, for pods without one, those
// of the controller's second record, which survives the loss of the allocation.
func records(ctx context.Context, a *Access, w *World) (map[types.UID][]v1alpha1.ContainerLimit, error) {
	found := map[types.UID][]v1alpha1.ContainerLimit{}
	var ledgers corev1.ConfigMapList
	err := a.Client.List(ctx, &ledgers, client.InNamespace(a.System), client.MatchingLabels{kube.LedgerLabel: "true"})
	for _, cm := range ledgers.Items {
		for uid, line := range cm.Data {
			var entry struct{ Limits []v1alpha1.ContainerLimit }
			if json.Unmarshal([]byte(line), &entry) == nil && len(entry.Limits) > 0 {
				found[types.UID(uid)] = entry.Limits
			}
		}
	}
	for uid, pa := range w.Allocations {
		if len(pa.Status.DeclaredLimits) > 0 {
			found[uid] = pa.Status.DeclaredLimits
		}
	}
	if err != nil {
		return found, fmt.Errorf("list the ConfigMaps of namespace %s: %w", a.System, err)
	}
	return found, nil
}

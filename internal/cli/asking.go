package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// asking says whose demand on a node is taken for more, and who asks for that; "" where nobody does. Who may not see the PodAllocations
// of all namespaces is told of those that w has.
func asking(ctx context.Context, a *Access, w *World, node string) string {
	var list v1alpha1.PodAllocationList
	if err := a.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		list.Items = nil
		for _, pa := range w.Allocations {
			list.Items = append(list.Items, *pa)
		}
	}
	pods, seen := 0, map[string]bool{}
	var by []string
	for i := range list.Items {
		pa := &list.Items[i]
		t := pa.Status.Constraints
		if pa.Spec.NodeName != node || t == nil || t.DemandPercent == nil || *t.DemandPercent <= 100 {
			continue
		}
		pods++
		for _, one := range strings.Split(t.DemandBy, ", ") {
			name := "a DemandSignal of namespace " + pa.Namespace
			if _, after, ok := strings.Cut(one, "/"); ok {
				name = "DemandSignal " + pa.Namespace + "/" + after
			}
			if name = fmt.Sprintf("%s (%d%%)", name, *t.DemandPercent); !seen[name] {
				seen[name], by = true, append(by, name)
			}
		}
	}
	if pods == 0 {
		return ""
	}
	verb := "asks"
	if len(by) > 1 {
		verb = "ask"
	}
	slices.Sort(by)
	if most := 3; len(by) > most {
		by = append(by[:most], fmt.Sprintf("%d more", len(by)-most))
	}
	return fmt.Sprintf("CPU is to be kept free for %s, as %s %s.", plural(pods, "pod"), and(by), verb)
}

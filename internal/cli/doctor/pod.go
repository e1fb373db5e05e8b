package doctor

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// checkPods counts the managed pods, and names those whose resize failed.
func checkPods(f *findings, s subject) {
	const all = "all"
	snap := &snapshot.Snapshot{
		Pods: s.Pods, Allocations: s.Allocations, Modes: map[string]kube.Mode{}, Objects: s.Objects,
		System: s.System, Settings: s.Settings,
	}
	for _, ns := range s.Namespaces {
		snap.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, s.Settings.Mode())
	}
	rows := snap.Rows()
	slices.SortFunc(rows, snapshot.ByName)
	managed, without := 0, 0
	for _, r := range rows {
		switch {
		case r.Managed:
			managed++
		case r.Reason == snapshot.ReasonNoAllocation:
			without++
		}
	}
	f.ok(all, "%d of %s managed", managed, format.Plural(len(rows), "pod"))
	if without > 0 && s.CRD != nil {
		f.warn(all, fmt.Sprintf("%s can be managed and have no allocation", format.Plural(without, "pod")),
			"Wait some seconds; if it stays so, check the controller's log.")
	}
	for _, r := range rows {
		if r.Managed && r.Phase == v1alpha1.PhaseFailed {
			f.warn(r.Namespace+"/"+r.Pod, fmt.Sprintf("%s: %s", r.Reason, format.OneLine(r.Message)),
				"The controller tries again; see kubectl mbcas explain "+r.Pod+" -n "+r.Namespace)
		}
	}
}

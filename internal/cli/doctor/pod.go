package doctor

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

// checkPods counts the managed pods, and names those whose resize failed.
func checkPods(f *findings, s subject) {
	const all = "all"
	rows := s.Rows()
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

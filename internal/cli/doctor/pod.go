package doctor

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// diagnosePods sums up how the managed pods stand, and names those with trouble.
func diagnosePods(c *Facts) []Finding {
	f := &findings{check: "pod"}
	if err := c.Unread["pods"]; err != nil {
		f.unread("pods", err)
		return f.list
	}
	if err := c.Unread["allocations"]; err != nil {
		f.unread("allocations", err)
		return f.list
	}
	w := &snapshot.Snapshot{Pods: c.Pods, Allocations: c.Allocations, Modes: map[string]kube.Mode{}, Objects: c.Objects, System: c.System, DefaultMode: c.defaultMode()}
	for _, ns := range c.Namespaces {
		w.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, w.DefaultMode)
	}
	rows := w.Rows()
	slices.SortFunc(rows, snapshot.ByName)
	managed, waiting := 0, 0
	for _, r := range rows {
		switch {
		case r.Managed:
			managed++
		case r.Reason == snapshot.ReasonNoAllocation:
			waiting++
		}
	}
	f.ok("all", "%d of %s managed", managed, format.Plural(len(rows), "pod"))
	if waiting > 0 && c.CRD != nil {
		f.warn("all", fmt.Sprintf("%s could be managed and have no allocation", format.Plural(waiting, "pod")), "Wait some seconds; if it stays so, look at the controller's log.")
	}
	for _, r := range rows {
		if r.Managed && r.Phase == v1alpha1.PhaseFailed {
			f.warn(r.Namespace+"/"+r.Pod, fmt.Sprintf("%s: %s", r.Reason, format.OneLine(r.Message)), "It is tried again by itself; kubectl mbcas explain "+r.Pod+" -n "+r.Namespace)
		}
	}
	return f.list
}

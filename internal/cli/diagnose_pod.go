package cli

import (
	"fmt"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// diagnosePods sums up how the managed pods stand, and names those with trouble.
func diagnosePods(c *Checkup) []Finding {
	f := &findings{check: "pod"}
	if err := c.Unread["pods"]; err != nil {
		f.unread("pods", err)
		return f.list
	}
	if err := c.Unread["allocations"]; err != nil {
		f.unread("allocations", err)
		return f.list
	}
	w := &World{Pods: c.Pods, Allocations: c.Allocations, Modes: map[string]kube.Mode{}, Around: c.Around, Default: c.defaultMode()}
	for _, ns := range c.Namespaces {
		w.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, w.Default)
	}
	rows := standings(w, c.System)
	orders["name"](rows)
	view := newListView(rows, false, nil)
	waiting := 0
	for _, n := range view.NotManaged {
		if n.Reason == ReasonNoAllocation {
			waiting = n.Count
		}
	}
	f.ok("all", "%d of %s managed", view.Managed, plural(view.Total, "pod"))
	if waiting > 0 && c.CRD != nil {
		f.warn("all", fmt.Sprintf("%s could be managed and have no allocation", plural(waiting, "pod")), "Wait some seconds; if it stays so, look at the controller's log.")
	}
	for _, r := range view.Pods {
		if r.Phase == v1alpha1.PhaseFailed {
			f.warn(r.Namespace+"/"+r.Pod, fmt.Sprintf("%s: %s", r.Reason, oneLine(r.Message)), "It is tried again by itself; kubectl mbcas explain "+r.Pod+" -n "+r.Namespace)
		}
	}
	return f.list
}

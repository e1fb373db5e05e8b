package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
)

// diagnoseNamespaces looks at every namespace that has pods to manage, or a label about it.
func diagnoseNamespaces(c *Facts) []Finding {
	f := &findings{check: "namespace"}
	for _, what := range []string{"namespaces", "limitranges", "resourcequotas", "horizontalpodautoscalers", "poddisruptionbudgets"} {
		if err := c.Unread[what]; err != nil {
			f.unread(what, err)
		}
	}
	for i := range c.Namespaces {
		ns := &c.Namespaces[i]
		if kube.AlwaysOut(ns.Name, c.System) {
			continue
		}
		mode, valid := kube.ModeOf(ns.Labels, c.defaultMode())
		pods, left := c.candidates(ns.Name, mode, ""), c.candidates(ns.Name, mode, reasons.ManagedByVPA)
		label, labelled := ns.Labels[kube.ModeLabel]
		if !valid {
			f.warn(ns.Name, fmt.Sprintf("label %s=%q is not a mode, so it counts as recommend", kube.ModeLabel, label), fmt.Sprintf("kubectl mbcas mode %s enforce (or recommend, restore, off)", ns.Name))
		}
		if len(pods)+len(left) == 0 && !labelled {
			continue
		}
		if valid {
			f.ok(ns.Name, "mode %s%s, %s to manage", mode, map[bool]string{true: "", false: " by default"}[labelled], format.Plural(len(pods), "pod"))
		}
		if mode == kube.ModeOff {
			continue
		}
		n := c.Objects.Get(ns.Name)
		diagnoseVPAs(f, c, ns.Name, n, left, pods)
		if len(pods) == 0 {
			continue
		}
		free := diagnoseBars(f, ns.Name, n, pods)
		diagnoseLimitRanges(f, ns.Name, n, pods)
		diagnoseQuotas(f, c, ns.Name, n, free)
		diagnoseHPAs(f, ns.Name, n, pods)
		diagnoseBudgets(f, ns.Name, n, pods)
	}
	return f.list
}

// defaultMode is the mode of namespaces without a label.
func (c *Facts) defaultMode() kube.Mode {
	if c.Controller == nil {
		return kube.ModeRecommend
	}
	return cluster.ModeFlag(c.Controller)
}

// candidates are the pods of a namespace that MBCAS may resize, or those that it may not for this reason.
func (c *Facts) candidates(namespace string, mode kube.Mode, why reasons.Reason) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Namespace != namespace {
			continue
		}
		facts := kube.Facts(p, mode, c.System)
		facts.VPA = c.Objects.VPA(p) != ""
		if r, _ := eligibility.Eligible(facts); r == why {
			pods = append(pods, p)
		}
	}
	return pods
}

// remedies are what to do about pods that cannot be resized.
var remedies = map[reasons.Reason]string{
	reasons.AdmissionWouldMutate: "Recreate these pods, so that they get the values at the start.",
	reasons.LimitRangeRefused:    "Bring these pods within the LimitRange, or change it.",
	reasons.QuotaNeedsLimits:     "Give every container of these pods the value.",
}

// diagnoseBars finds pods of which every resize would be refused, or would change more than a limit, and returns the others.
func diagnoseBars(f *findings, namespace string, n *snapshot.NamespaceObjects, pods []*corev1.Pod) (free []*corev1.Pod) {
	type bar struct {
		why  reasons.Reason
		said string
	}
	var bars []bar
	barred := map[bar][]*corev1.Pod{}
	for _, p := range pods {
		why, said := n.Bars(p)
		if why == "" {
			free = append(free, p)
			continue
		}
		b := bar{why, said}
		if barred[b] == nil {
			bars = append(bars, b)
		}
		barred[b] = append(barred[b], p)
	}
	for _, b := range bars {
		f.warn(namespace, fmt.Sprintf("%s cannot be resized (%s): %s", format.Plural(len(barred[b]), "pod"), format.Few(podNames(barred[b])), b.said), remedies[b.why])
	}
	return free
}

func podNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Name
	}
	return names
}

// diagnoseLimitRanges names those that stand in no pod's way.
func diagnoseLimitRanges(f *findings, namespace string, n *snapshot.NamespaceObjects, pods []*corev1.Pod) {
	for i := range n.LimitRanges {
		l := &n.LimitRanges[i]
		bars := false
		for _, p := range pods {
			why, _ := constraints.Obstacle(p, n.LimitRanges[i:i+1])
			bars = bars || why != ""
		}
		if !bars {
			f.ok(namespace, "LimitRange %s: limits stay within it%s", l.Name, most(l))
		}
	}
}

// most names the CPU maxima of a LimitRange.
func most(l *corev1.LimitRange) string {
	var parts []string
	for _, item := range l.Spec.Limits {
		if q, ok := item.Max[corev1.ResourceCPU]; ok {
			parts = append(parts, fmt.Sprintf("%s CPU per %s", q.String(), strings.ToLower(string(item.Type))))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ", at most " + format.Join(parts)
}

// tenth is the part of a quota that raises leave free.
func tenth(hard cpu.Milli) cpu.Milli { return cpu.FromCores(kube.QuotaHeadroom * hard.Cores()) }

// diagnoseQuotas says what quotas leave for raises.
func diagnoseQuotas(f *findings, c *Facts, namespace string, n *snapshot.NamespaceObjects, pods []*corev1.Pod) {
	for i := range n.Quotas {
		q := &n.Quotas[i]
		room, bounded := constraints.QuotaRoomOf(q)
		var counted, above []*corev1.Pod
		for _, p := range pods {
			if !constraints.QuotaCounts(q, p) {
				continue
			}
			counted = append(counted, p)
			if pa := c.Allocations[p.UID]; pa != nil && kube.Total(kube.Limits(p)) > kube.Total(pa.Status.DeclaredLimits) {
				above = append(above, p)
			}
		}
		if !bounded || len(counted) == 0 {
			continue
		}
		left := max(0, room.Hard-room.Used)
		share := fmt.Sprintf("ResourceQuota %s has %v of %v limits.cpu free", q.Name, left, room.Hard)
		switch {
		case !room.Known:
			f.warn(namespace, fmt.Sprintf("ResourceQuota %s is not counted yet, so raises wait", q.Name), "Wait some seconds; if it stays so, look at kube-controller-manager, which counts quotas.")
		case left >= tenth(room.Hard):
			f.ok(namespace, "%s; raises stop at a tenth, which is left to new pods", share)
		case len(above) > 0:
			f.warn(namespace, fmt.Sprintf("%s, and %s above the declared limits (%s): they give back until a tenth is free, and raises wait", share, format.Are(len(above), "pod"), format.Few(podNames(above))),
				"Wait some minutes; if it stays so, raise limits.cpu of the quota.")
		default:
			f.warn(namespace, share+", less than the tenth that is left to new pods: raises wait", "Raise limits.cpu of the quota, or expect pods to stay near their declared limits.")
		}
	}
}

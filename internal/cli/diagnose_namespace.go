package cli

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/kube"
)

// diagnoseNamespaces looks at every namespace that has pods to manage, or a label about it.
func diagnoseNamespaces(c *Checkup) []Finding {
	f := &findings{check: "namespace"}
	for _, what := range []string{"namespaces", "limitranges", "resourcequotas", "horizontalpodautoscalers"} {
		if err := c.Unread[what]; err != nil {
			f.unread(what, err)
		}
	}
	byDefault := kube.ModeRecommend
	if c.Controller != nil {
		byDefault = modeFlag(c.Controller)
	}
	for i := range c.Namespaces {
		ns := &c.Namespaces[i]
		if kube.AlwaysOut(ns.Name, c.System) {
			continue
		}
		mode, valid := kube.ModeOf(ns.Labels, byDefault)
		pods := eligible(c, ns.Name, mode)
		label, labelled := ns.Labels[kube.ModeLabel]
		if !valid {
			f.warn(ns.Name, fmt.Sprintf("label %s=%q is not a mode, so it counts as recommend", kube.ModeLabel, label), fmt.Sprintf("kubectl mbcas mode %s enforce (or recommend, restore, off)", ns.Name))
		}
		if len(pods) == 0 && !labelled {
			continue
		}
		if valid {
			f.ok(ns.Name, "mode %s%s, %s to manage", mode, map[bool]string{true: "", false: " by default"}[labelled], plural(len(pods), "pod"))
		}
		if mode == kube.ModeOff {
			continue
		}
		diagnoseLimitRanges(f, c, ns.Name, pods)
		diagnoseQuotas(f, c, ns.Name, pods)
		diagnoseHPAs(f, c, ns.Name)
	}
	return f.list
}

// eligible are the pods of a namespace that MBCAS may resize.
func eligible(c *Checkup, namespace string, mode kube.Mode) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Namespace == namespace {
			if _, ok := actuator.Eligible(kube.Facts(p, mode, c.System)); ok {
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// diagnoseLimitRanges finds pods that a LimitRange would change in passing: on a resize it gives defaults
// to every container that lacks a value, and those can never be removed again.
func diagnoseLimitRanges(f *findings, c *Checkup, namespace string, pods []*corev1.Pod) {
	for i := range c.LimitRanges {
		l := &c.LimitRanges[i]
		if l.Namespace != namespace {
			continue
		}
		var touched []string
		for _, p := range pods {
			if wouldDefault(l, p) {
				touched = append(touched, p.Name)
			}
		}
		if len(touched) > 0 {
			f.warn(namespace, fmt.Sprintf("LimitRange %s would add requests or limits to containers of %s (%s) on a resize, so they are held", l.Name, plural(len(touched), "pod"), few(touched)),
				"Recreate these pods, so that they get the values at the start.")
			continue
		}
		f.ok(namespace, "LimitRange %s leaves the pods as they are%s", l.Name, bounds(l))
	}
}

// wouldDefault says whether the LimitRange has a default for a resource that a container of the pod lacks.
func wouldDefault(l *corev1.LimitRange, pod *corev1.Pod) bool {
	for _, item := range l.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			// A max without a default is the default, and a default limit is the default request.
			for _, d := range []struct{ defaults, has corev1.ResourceList }{
				{item.Max, c.Resources.Limits}, {item.Default, c.Resources.Limits},
				{item.Max, c.Resources.Requests}, {item.Default, c.Resources.Requests},
				{item.DefaultRequest, c.Resources.Requests}, {item.Min, c.Resources.Requests},
			} {
				for name := range d.defaults {
					if _, ok := d.has[name]; !ok {
						return true
					}
				}
			}
		}
	}
	return false
}

// bounds names the CPU bounds of a LimitRange.
func bounds(l *corev1.LimitRange) string {
	for _, item := range l.Spec.Limits {
		if q, ok := item.Max[corev1.ResourceCPU]; ok {
			return fmt.Sprintf("; at most %s CPU per %s", q.String(), item.Type)
		}
	}
	return ""
}

// diagnoseQuotas finds quotas that leave no room to raise a limit.
func diagnoseQuotas(f *findings, c *Checkup, namespace string, pods []*corev1.Pod) {
	for i := range c.Quotas {
		q := &c.Quotas[i]
		hard, limited := q.Status.Hard[corev1.ResourceLimitsCPU]
		if q.Namespace != namespace || !limited || len(pods) == 0 {
			continue
		}
		used := q.Status.Used[corev1.ResourceLimitsCPU]
		free := hard.DeepCopy()
		free.Sub(used)
		var unlimited []string
		for _, p := range pods {
			if slices.ContainsFunc(running(p), func(c container) bool { return c.limit == 0 }) {
				unlimited = append(unlimited, p.Name)
			}
		}
		switch {
		case len(unlimited) > 0:
			f.warn(namespace, fmt.Sprintf("ResourceQuota %s refuses every resize of %s with a container that has no CPU limit (%s)", q.Name, plural(len(unlimited), "pod"), few(unlimited)), "Give every container of these pods a CPU limit.")
		case free.Cmp(tenth(hard)) < 0:
			f.warn(namespace, fmt.Sprintf("ResourceQuota %s leaves %s of %s limits.cpu: raises will be refused", q.Name, free.String(), hard.String()), "Raise limits.cpu of the quota, or expect pods to stay near their declared limits.")
		default:
			f.ok(namespace, "ResourceQuota %s has %s of %s limits.cpu free", q.Name, free.String(), hard.String())
		}
	}
}

func tenth(q resource.Quantity) resource.Quantity {
	return *resource.NewMilliQuantity(q.MilliValue()/10, resource.DecimalSI)
}

// diagnoseHPAs finds autoscalers that a low limit would blind: they compare use with the request, and use
// stops at the limit.
func diagnoseHPAs(f *findings, c *Checkup, namespace string) {
	for i := range c.HPAs {
		h := &c.HPAs[i]
		if h.Namespace != namespace {
			continue
		}
		for _, m := range h.Spec.Metrics {
			target := cpuTarget(m)
			switch {
			case target == nil:
			case target.AverageUtilization != nil && *target.AverageUtilization > 80:
				f.warn(namespace, fmt.Sprintf("HPA %s scales at %d%% of the CPU request; a limit near the request would hide the load from it", h.Name, *target.AverageUtilization),
					"Lower the target to 80% or less, or raise the declared request.")
			case target.AverageUtilization != nil:
				f.ok(namespace, "HPA %s scales at %d%% of the CPU request, which every limit leaves room for", h.Name, *target.AverageUtilization)
			case target.AverageValue != nil:
				f.warn(namespace, fmt.Sprintf("HPA %s scales at %s CPU per pod; a limit below that would hide the load from it", h.Name, target.AverageValue.String()),
					"Make sure that the request of its pods is above that value: no limit goes below the request.")
			}
		}
	}
}

func cpuTarget(m autoscalingv2.MetricSpec) *autoscalingv2.MetricTarget {
	switch {
	case m.Resource != nil && m.Resource.Name == corev1.ResourceCPU:
		return &m.Resource.Target
	case m.ContainerResource != nil && m.ContainerResource.Name == corev1.ResourceCPU:
		return &m.ContainerResource.Target
	}
	return nil
}

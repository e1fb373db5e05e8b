package doctor

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
)

// namespace is a namespace with its pods, sorted by what can be done with them.
type namespace struct {
	name        string
	meta        metav1.Object
	label       string // its mode label
	mode        kube.Mode
	labelled    bool
	validMode   bool
	objects     *snapshot.NamespaceObjects
	candidates  []*corev1.Pod // pods that may be managed
	vpaPods     []*corev1.Pod // pods whose CPU a VPA writes
	resizable   []*corev1.Pod // candidates that nothing refuses to resize
	refusals    []refusal     // in the order of their first pod
	refusedPods map[refusal][]*corev1.Pod
}

// refusal is why the API server would refuse or change every resize of a pod.
type refusal struct {
	reason  reasons.Reason
	message string
}

// newNamespace is nil for a namespace that is none of MBCAS's concern: it has no pods to manage and
// no mode label.
func newNamespace(c *Facts, ns *corev1.Namespace) *namespace {
	if kube.AlwaysUnmanaged(ns.Name, c.System) {
		return nil
	}
	n := &namespace{name: ns.Name, meta: ns, objects: c.Objects.Get(ns.Name), refusedPods: map[refusal][]*corev1.Pod{}}
	n.label, n.labelled = ns.Labels[kube.ModeLabel]
	n.mode, n.validMode = kube.ModeOf(ns.Labels, c.Settings.Mode())
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Namespace != ns.Name {
			continue
		}
		pod := eligibility.Pod{Pod: p, Mode: n.mode, System: c.System, VPA: c.Objects.VPA(p) != ""}
		switch reason, eligible := eligibility.Eligible(pod); {
		case eligible:
			n.candidates = append(n.candidates, p)
		case reason == reasons.ManagedByVPA:
			n.vpaPods = append(n.vpaPods, p)
		}
	}
	if len(n.candidates)+len(n.vpaPods) == 0 && !n.labelled {
		return nil
	}
	for _, p := range n.candidates {
		reason, message := n.objects.Refusal(p)
		if reason == "" {
			n.resizable = append(n.resizable, p)
			continue
		}
		r := refusal{reason, message}
		if n.refusedPods[r] == nil {
			n.refusals = append(n.refusals, r)
		}
		n.refusedPods[r] = append(n.refusedPods[r], p)
	}
	return n
}

func switchedOn(s subject) bool    { return reachable(s) && s.namespace.mode != kube.ModeOff }
func hasCandidates(s subject) bool { return switchedOn(s) && len(s.namespace.candidates) > 0 }

func checkMode(f *findings, s subject) {
	n := s.namespace
	if !n.validMode {
		f.warn(n.name, fmt.Sprintf("label %s=%q is not a mode, so it counts as recommend", kube.ModeLabel, n.label),
			fmt.Sprintf("kubectl mbcas mode %s enforce (or recommend, restore, off)", n.name))
		return
	}
	mode := cmp.Or(string(n.mode), "unknown")
	if n.mode != "" && !n.labelled {
		mode += " by default"
	}
	f.ok(n.name, "mode %s, %s to manage", mode, format.Plural(len(n.candidates), "pod"))
}

// checkBelowDeclared says whether the namespace forbids limits below the declared ones.
func checkBelowDeclared(f *findings, s subject) {
	n := s.namespace
	switch value, forbids := kube.ForbidsBelowDeclared(n.meta); {
	case !forbids:
	case value != kube.BelowDeclaredNever:
		f.warn(n.name, fmt.Sprintf("%s=%q is not a known value, so it counts as %s", kube.BelowDeclaredKey, value, kube.BelowDeclaredNever),
			fmt.Sprintf("Set it to %s, or remove it to let the market cap pods below their declared limits.", kube.BelowDeclaredNever))
	default:
		f.ok(n.name, "limits stay at the declared ones or above (%s=%s)", kube.BelowDeclaredKey, kube.BelowDeclaredNever)
	}
}

// checkMaxRaise says how far the namespace lets limits rise, if it says so.
func checkMaxRaise(f *findings, s subject) {
	n := s.namespace
	switch raise, fault := kube.MaxRaise(n.meta, 0); {
	case fault != "":
		f.warn(n.name, fault+". Until it is, the controller's --max-raise counts", "Mend the label or annotation of the namespace, or remove it.")
	case raise > 0:
		f.ok(n.name, "limits rise to at most %d times the declared ones (%s)", raise, kube.MaxRaiseKey)
	}
}

// remedies are what to do about pods that cannot be resized.
var remedies = map[reasons.Reason]string{
	reasons.AdmissionWouldMutate: "Recreate these pods, so that they get the values at their creation.",
	reasons.LimitRangeRefused:    "Bring these pods within the LimitRange, or change it.",
	reasons.QuotaNeedsLimits:     "Set the value on every container of these pods.",
}

func checkRefused(f *findings, s subject) {
	for _, r := range s.namespace.refusals {
		pods := s.namespace.refusedPods[r]
		f.warn(s.namespace.name, fmt.Sprintf("%s cannot be resized (%s): %s",
			format.Plural(len(pods), "pod"), format.Few(podNames(pods)), r.message), remedies[r.reason])
	}
}

func podNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Name
	}
	return names
}

// checkLimitRanges names the LimitRanges that refuse no pod.
func checkLimitRanges(f *findings, s subject) {
	n := s.namespace
	for i := range n.objects.LimitRanges {
		l := &n.objects.LimitRanges[i]
		refuses := false
		for _, p := range n.candidates {
			why, _ := constraints.LimitRangeRefusal(p, n.objects.LimitRanges[i:i+1])
			refuses = refuses || why != ""
		}
		if !refuses {
			f.ok(n.name, "LimitRange %s: limits stay within it%s", l.Name, maxima(l))
		}
	}
}

// maxima are the CPU maxima of a LimitRange.
func maxima(l *corev1.LimitRange) string {
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

// checkQuotas says how much room quotas leave for increases.
func checkQuotas(f *findings, s subject) {
	n := s.namespace
	headroom, known := s.Settings.Share(kube.QuotaHeadroomFlag)
	for i := range n.objects.Quotas {
		q := &n.objects.Quotas[i]
		room, limits := constraints.CPUQuotaOf(q)
		var counted, above []*corev1.Pod
		for _, p := range n.resizable {
			if !constraints.QuotaSelects(q, p) {
				continue
			}
			counted = append(counted, p)
			pa := s.Allocations[p.UID]
			if pa != nil && kube.Total(kube.Limits(p)) > kube.Total(pa.Status.DeclaredLimits) {
				above = append(above, p)
			}
		}
		if !limits || len(counted) == 0 {
			continue
		}
		free := max(0, room.Hard-room.Used)
		text := fmt.Sprintf("ResourceQuota %s has %v of %v limits.cpu free", q.Name, free, room.Hard)
		reserved := cpu.FromCores(headroom * room.Hard.Cores())
		switch {
		case !room.Known:
			f.warn(n.name, fmt.Sprintf("ResourceQuota %s has no usage yet, so increases wait", q.Name),
				"Wait some seconds; if it stays so, check kube-controller-manager, which counts quotas.")
		case !known:
			f.ok(n.name, "%s; increases leave the controller's --%s to new pods", text, kube.QuotaHeadroomFlag)
		case free >= reserved:
			f.ok(n.name, "%s; increases leave %v to new pods", text, reserved)
		case len(above) > 0:
			f.warn(n.name, fmt.Sprintf("%s, less than the %v for new pods; %s above the declared limits (%s): "+
				"these decrease, and increases wait",
				text, reserved, format.Are(len(above), "pod"), format.Few(podNames(above))),
				"Wait some minutes; if it stays so, raise limits.cpu of the quota.")
		default:
			f.warn(n.name, fmt.Sprintf("%s, less than the %v for new pods: increases wait", text, reserved),
				"Raise limits.cpu of the quota, or expect pods to stay near their declared limits.")
		}
	}
}

// checkHPAs says what MBCAS does for autoscalers that scale on CPU usage. They compare usage with
// the request, and usage cannot exceed the limit.
func checkHPAs(f *findings, s subject) {
	n := s.namespace
	for i := range n.objects.HPAs {
		h := &n.objects.HPAs[i]
		if err := n.objects.Unresolved[kube.HPATarget(h)]; err != nil {
			f.unresolved(n.name, "HPA "+h.Name+" scales", err)
			continue
		}
		only := constraints.NamespaceObjects{HPAs: n.objects.HPAs[i : i+1], Selectors: n.objects.Selectors}
		scaled := 0
		for _, p := range n.candidates {
			if _, constrains := only.ConstraintsOf(p, nil); constrains {
				scaled++
			}
		}
		text := fmt.Sprintf("HPA %s scales %s on CPU usage: their limits stay high enough for it to see load", h.Name,
			format.Plural(scaled, "pod"))
		switch {
		case scaled == 0:
		case h.Annotations[kube.AllowDecreaseKey] == "true":
			f.ok(n.name, "%s, and may decrease to that (%s=true)", text, kube.AllowDecreaseKey)
		default:
			f.ok(n.name, "%s, and do not decrease unless it is annotated %s=true", text, kube.AllowDecreaseKey)
		}
	}
}

// checkBudgets counts the pods whose limits do not decrease because no disruption is allowed.
func checkBudgets(f *findings, s subject) {
	n := s.namespace
	var names []string
	affected := map[*corev1.Pod]bool{}
	for i := range n.objects.PDBs {
		only := constraints.NamespaceObjects{PDBs: n.objects.PDBs[i : i+1]}
		applies := false
		for _, p := range n.candidates {
			if c, _ := only.ConstraintsOf(p, nil); c.NoDecrease != "" {
				affected[p], applies = true, true
			}
		}
		if applies {
			names = append(names, n.objects.PDBs[i].Name)
		}
	}
	if len(names) == 0 {
		return
	}
	kind, verb := "PodDisruptionBudget", "allows"
	if len(names) > 1 {
		kind, verb = "PodDisruptionBudgets", "allow"
	}
	text := fmt.Sprintf("%s %s %s no disruption now: the limits of %d of %s do not decrease",
		kind, format.Few(names), verb, len(affected), format.Plural(len(n.candidates), "pod"))
	if 2*len(affected) <= len(n.candidates) {
		f.ok(n.name, "%s", text)
		return
	}
	f.warn(n.name, text+", so the market has little room here",
		fmt.Sprintf("If a lower CPU limit does no harm there: kubectl annotate pdb -n %s %s %s=true", n.name,
			strings.Join(names, " "), kube.AllowDecreaseKey))
}

// checkVPAs says which pods MBCAS leaves to VerticalPodAutoscalers, and where the two may still
// interfere.
func checkVPAs(f *findings, s subject) {
	n := s.namespace
	for _, v := range n.objects.VPAs {
		if err := n.objects.Unresolved[v.Target]; err != nil {
			f.unresolved(n.name, "VPA "+v.Name+" changes", err)
			continue
		}
		var written, allocated, shared []*corev1.Pod
		for _, p := range n.vpaPods {
			if s.Objects.VPA(p) == v.Name {
				written = append(written, p)
				if s.Allocations[p.UID] != nil {
					allocated = append(allocated, p)
				}
			}
		}
		for _, p := range n.candidates {
			if v.Target.Owns(p, n.objects.Selectors[v.Target]) {
				shared = append(shared, p)
			}
		}
		if len(written) > 0 {
			f.ok(n.name, "%s left to VPA %s, which writes CPU requests and limits", format.Are(len(written), "pod"),
				v.Name)
		}
		if len(allocated) > 0 {
			f.warn(n.name, fmt.Sprintf("VPA %s writes the CPU of %s that MBCAS still manages (%s)",
				v.Name, format.Plural(len(allocated), "pod"), format.Few(podNames(allocated))),
				"Wait some seconds; if it stays so, check the controller's log.")
		}
		// Its updater evicts a pod whose resize failed or hangs, also a resize by MBCAS (VPA 1.8,
		// pkg/updater/restriction/pods_inplace_restriction.go). A VPA that writes no CPU may still
		// change memory.
		if v.Mode == "InPlaceOrRecreate" && len(shared) > 0 {
			f.warn(n.name, fmt.Sprintf("VPA %s does not write CPU and may resize %s in place (%s); it evicts a "+
				"pod whose resize hangs, including resizes by MBCAS",
				v.Name, format.Plural(len(shared), "managed pod"), format.Few(podNames(shared))),
				"Set its updateMode to Initial, or label these pods "+kube.ManagedKey+"=false.")
		}
	}
}

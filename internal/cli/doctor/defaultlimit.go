package doctor

import (
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// coresOfLabel are the values of the label of a namespace that the policy takes.
var coresOfLabel = regexp.MustCompile(`^[0-9]{1,5}([.][0-9]{1,3})?$`)

// defaultLimits is the policy, as a fact and in findings.
const defaultLimits = "default limits"

// asksForDefaultLimits says whether a namespace has the label.
func (c *Facts) asksForDefaultLimits() bool {
	return slices.ContainsFunc(c.Namespaces, func(ns corev1.Namespace) bool {
		_, labelled := ns.Labels[kube.DefaultLimitKey]
		return labelled
	})
}

func asksForDefaultLimits(s subject) bool { return reachable(s) && s.Facts.asksForDefaultLimits() }

// checkDefaultLimits says whether the policy is there.
func checkDefaultLimits(f *findings, s subject) {
	if s.DefaultLimits == nil {
		f.warn(defaultLimits, fmt.Sprintf("namespaces have the label %s, and there is no policy %s, so new pods get no limit",
			kube.DefaultLimitKey, cluster.DefaultLimits),
			"kubectl apply -f config/components/default-limits/policy.yaml, on Kubernetes 1.36 or newer")
		return
	}
	f.ok(defaultLimits, "the policy %s gives new pods of namespaces with the label %s a CPU limit", cluster.DefaultLimits,
		kube.DefaultLimitKey)
}

// checkDefaultLimit says which pods have a CPU limit that the policy mbcas-default-limits gave, and what keeps new pods
// from one, or would be harmed by it.
func checkDefaultLimit(f *findings, s subject) {
	n := s.namespace
	label, set := n.meta.GetLabels()[kube.DefaultLimitKey]
	if len(n.defaulted) > 0 {
		text := fmt.Sprintf("%s got a CPU limit by default (%s): %s", format.Plural(len(n.defaulted), "pod"),
			kube.DefaultLimitKey, format.Few(podNames(n.defaulted)))
		if !set {
			text += "; the namespace no longer has the label, and the limit stays until a pod is recreated"
		}
		f.ok(n.name, "%s", text)
	}
	if !set {
		return
	}
	if len(n.unlimited) > 0 {
		f.ok(n.name, "%s without a CPU limit: older than the label or the policy, or without a CPU request below it (%s)",
			format.Plural(len(n.unlimited), "pod"), format.Few(podNames(n.unlimited)))
	}
	largest := largestNode(s.Nodes)
	if !coresOfLabel.MatchString(label) {
		f.warn(n.name, fmt.Sprintf("label %s=%q is not a number of cores, so new pods get no limit", kube.DefaultLimitKey, label),
			fmt.Sprintf("kubectl label namespace %s --overwrite %s=%s", n.name, kube.DefaultLimitKey, sizeOf(largest)))
		return
	}
	limit := resource.MustParse(label)
	if largest != nil && limit.Cmp(*largest.Status.Capacity.Cpu()) < 0 {
		f.warn(n.name, fmt.Sprintf("%s=%s is less than node %s has (%s CPUs): it throttles new pods there", kube.DefaultLimitKey,
			label, largest.Name, sizeOf(largest)),
			fmt.Sprintf("kubectl label namespace %s --overwrite %s=%s", n.name, kube.DefaultLimitKey, sizeOf(largest)))
	}
	checkDefaultLimitFits(f, n, limit)
}

// checkDefaultLimitFits names the objects that refuse pods with the limit.
func checkDefaultLimitFits(f *findings, n *namespace, limit resource.Quantity) {
	remedy := fmt.Sprintf("Change it, or: kubectl label namespace %s %s-", n.name, kube.DefaultLimitKey)
	for _, q := range n.objects.Quotas {
		if _, counts := q.Spec.Hard[corev1.ResourceLimitsCPU]; counts {
			f.warn(n.name, fmt.Sprintf("ResourceQuota %s on limits.cpu counts %s for each container with the default limit, "+
				"and refuses pods beyond that", q.Name, limit.String()), remedy)
		}
	}
	for _, r := range n.objects.LimitRanges {
		for _, item := range r.Spec.Limits {
			most, bounds := item.Max[corev1.ResourceCPU]
			if item.Type == corev1.LimitTypePod && bounds && most.Cmp(limit) < 0 {
				f.warn(n.name, fmt.Sprintf("LimitRange %s allows %s CPU per pod, and refuses new pods with the default limit "+
					"of %s", r.Name, most.String(), limit.String()), remedy)
			}
		}
	}
}

// largestNode is the node with the most CPUs; nil if none is known.
func largestNode(nodes []corev1.Node) (largest *corev1.Node) {
	for i := range nodes {
		n := &nodes[i]
		if size := n.Status.Capacity.Cpu(); !size.IsZero() && (largest == nil || size.Cmp(*largest.Status.Capacity.Cpu()) > 0) {
			largest = n
		}
	}
	return largest
}

// sizeOf is the CPU capacity of a node as the label has it; N if it is not known.
func sizeOf(node *corev1.Node) string {
	if node == nil {
		return "N"
	}
	return fmt.Sprint(node.Status.Capacity.Cpu().Value())
}

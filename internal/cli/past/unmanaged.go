package past

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// Unmanaged are the workloads that MBCAS does not manage because of the requests and limits that they declare.
type Unmanaged struct {
	Guaranteed, Unlimited, BestEffort []string
}

// Add adds the workload of a pod, if MBCAS does not manage it for such a reason.
func (u *Unmanaged) Add(pod *corev1.Pod) {
	if kube.AlwaysUnmanaged(pod.Namespace, kube.SystemNamespace) || pod.Spec.Resources != nil ||
		pod.Labels[kube.ManagedKey] == "false" || pod.Annotations[kube.ManagedKey] == "false" {
		return
	}
	list := &u.Unlimited
	switch {
	case pod.Status.QOSClass == corev1.PodQOSGuaranteed:
		list = &u.Guaranteed
	case pod.Status.QOSClass == corev1.PodQOSBestEffort:
		list = &u.BestEffort
	case len(kube.Limits(pod)) > 0:
		return
	}
	if name := pod.Namespace + "/" + kube.Workload(pod); !slices.Contains(*list, name) {
		*list = append(*list, name)
	}
}

// Changes are sentences about what would have to change for MBCAS to manage them.
func (u *Unmanaged) Changes() (all []string) {
	for _, x := range []struct {
		names []string
		text  string
	}{
		{u.Guaranteed, "is Guaranteed: a change of its limits alone would change its QoS class. With a CPU request below the limit its " +
			"pods become Burstable, and lose exclusive CPUs where a static CPU manager gives them"},
		{u.Unlimited, "has no CPU limit. Declare the size of the node, or label the namespace with " + kube.DefaultLimitKey},
		{u.BestEffort, "has no request. It needs a CPU request and a higher CPU limit"},
	} {
		if slices.Sort(x.names); len(x.names) > 0 {
			all = append(all, fmt.Sprintf("%s not managed (%s): each %s.", format.Are(len(x.names), "workload"), format.Few(x.names), x.text))
		}
	}
	return all
}

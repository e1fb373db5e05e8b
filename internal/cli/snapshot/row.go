package snapshot

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
)

// Row is how one pod stands with MBCAS: a row of list.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	// Mode is that of its namespace.
	Mode kube.Mode `json:"mode"`
	// Managed: the pod has an allocation, and nothing speaks against resizing it.
	Managed bool      `json:"managed"`
	Request cpu.Milli `json:"request"`
	// Limit is the sum of the CPU limits in the pod's spec.
	Limit cpu.Milli `json:"limit"`
	// Unlimited counts running containers without a CPU limit.
	Unlimited int `json:"unlimitedContainers,omitempty"`
	// Declared is the sum of the limits that the owner declared; nil: not recorded.
	Declared *cpu.Milli `json:"declared,omitempty"`
	// Desired is the limit that the market decided on; nil: nothing decided.
	Desired *cpu.Milli `json:"desired,omitempty"`
	// Phase is the allocation's; "" where there is none.
	Phase v1alpha1.Phase `json:"phase,omitempty"`
	// Reason is the allocation's, or why the pod is not managed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// VPA names the VerticalPodAutoscaler to which the pod is left; "" for none.
	VPA string `json:"vpa,omitempty"`
	// Terms are what the platform asks of the decisions about the pod; nil: nothing.
	Terms *v1alpha1.Constraints `json:"terms,omitempty"`
	// Figures are the newest that could be had; nil: none yet.
	Figures *Figures `json:"figures,omitempty"`
}

// Rows joins everything gathered, in no particular order.
func (w *Snapshot) Rows() []Row {
	rows := make([]Row, 0, len(w.Pods))
	for i := range w.Pods {
		rows = append(rows, w.Row(&w.Pods[i]))
	}
	return rows
}

// ReasonNoAllocation: nothing stands against managing the pod, and it has no allocation.
const ReasonNoAllocation = "NoAllocation"

// Row joins a pod with its allocation, with its figures of the last round, and with the VerticalPodAutoscaler that writes its
// CPU, as far as it has them.
func (w *Snapshot) Row(pod *corev1.Pod) Row {
	pa, vpa, mode := w.Allocations[pod.UID], w.Objects.VPA(pod), w.Mode(pod.Namespace)
	s := Row{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Mode: mode}
	for _, c := range RunningContainers(pod) {
		s.Request += c.Request
		s.Limit += c.Limit
		if c.Limit == 0 {
			s.Unlimited++
		}
	}
	facts := kube.Facts(pod, mode, w.System)
	facts.VPA = vpa != ""
	why, eligible := eligibility.Eligible(facts)
	if why == reasons.ManagedByVPA {
		s.VPA = vpa
	}
	if pa == nil || pa.Spec.PodRef.UID != pod.UID {
		s.Reason, s.Message = string(why), why.Sentence()
		if eligible {
			s.Reason, s.Message = ReasonNoAllocation, "the pod could be managed and has no PodAllocation yet; the controller makes one within seconds where it runs"
		}
		return s
	}
	s.Managed = eligible
	s.Phase, s.Reason, s.Message = pa.Status.Phase, pa.Status.Reason, pa.Status.Message
	if !eligible {
		s.Reason, s.Message = string(why), why.Sentence()
	}
	if len(pa.Status.DeclaredLimits) > 0 {
		total := kube.Total(pa.Status.DeclaredLimits)
		s.Declared = &total
	}
	s.Terms = pa.Status.Constraints
	s.Desired, s.Figures = pa.Spec.DesiredCPULimit, published(pa)
	if live := w.Live[pod.UID]; live != nil {
		s.Figures = live.weighed(s.Figures)
	}
	return s
}

// ByName orders rows by namespace and name.
func ByName(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
}

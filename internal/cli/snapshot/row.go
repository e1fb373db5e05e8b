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

// Row is one pod with its allocation, as list prints it.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	// Mode is that of its namespace.
	Mode kube.Mode `json:"mode"`
	// Managed: the pod has an allocation and may be resized.
	Managed bool      `json:"managed"`
	Request cpu.Milli `json:"request"`
	// Limit is the sum of the CPU limits in the pod's spec.
	Limit cpu.Milli `json:"limit"`
	// Unlimited counts running containers without a CPU limit.
	Unlimited int `json:"unlimitedContainers,omitempty"`
	// Declared is the sum of the limits that the owner declared; nil: no record.
	Declared *cpu.Milli `json:"declared,omitempty"`
	// Desired is the limit that the market decided on; nil: no decision.
	Desired *cpu.Milli `json:"desired,omitempty"`
	// Phase is the allocation's; "" without one.
	Phase v1alpha1.Phase `json:"phase,omitempty"`
	// Reason is the allocation's, or why the pod is not managed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// VPA names the VerticalPodAutoscaler that writes the pod's CPU; "" for none.
	VPA string `json:"vpa,omitempty"`
	// Constraints are those that Kubernetes objects put on the pod's limit; nil: none.
	Constraints *v1alpha1.Constraints `json:"constraints,omitempty"`
	// Figures are the newest available; nil: none yet.
	Figures *Figures `json:"figures,omitempty"`
}

// Rows has a row for each pod, in the order of Pods.
func (s *Snapshot) Rows() []Row {
	rows := make([]Row, 0, len(s.Pods))
	for i := range s.Pods {
		rows = append(rows, s.Row(&s.Pods[i]))
	}
	return rows
}

// ReasonNoAllocation says that the pod may be managed, and has no allocation.
const ReasonNoAllocation = "NoAllocation"

// ReasonNotInstalled says that the pod could be managed, and MBCAS is not there.
const ReasonNotInstalled = "NotInstalled"

// notInstalled is its sentence.
const notInstalled = "the pod could be managed; MBCAS has no controller and no agent in this cluster"

// Row joins a pod with its allocation, its figures and the VerticalPodAutoscaler that writes its
// CPU.
func (s *Snapshot) Row(pod *corev1.Pod) Row {
	pa, vpa, mode := s.Allocations[pod.UID], s.Objects.VPA(pod), s.Mode(pod.Namespace)
	r := Row{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Mode: mode}
	for _, c := range kube.Containers(pod) {
		if c.Spec.Name == v1alpha1.PodLevel && !kube.SharesLimit(pod) { // the containers count
			continue
		}
		r.Request += c.Request()
		r.Limit += c.Limit()
		if c.Limit() == 0 {
			r.Unlimited++
		}
	}
	why, eligible := eligibility.Eligible(eligibility.Pod{
		Pod: pod, Mode: mode, System: s.System, VPA: vpa != "", PodLevel: s.Settings.PodLevel(),
	})
	if why == reasons.ManagedByVPA {
		r.VPA = vpa
	}
	if pa == nil {
		r.Reason, r.Message = string(why), why.Sentence()
		switch {
		case eligible && s.Removed:
			r.Reason, r.Message = ReasonNotInstalled, notInstalled
		case eligible:
			r.Reason, r.Message = ReasonNoAllocation, "the pod can be managed and has no PodAllocation yet; a "+
				"running controller creates it within seconds"
		}
		return r
	}
	r.Managed = eligible && !s.Removed
	r.Phase, r.Reason, r.Message = pa.Status.Phase, pa.Status.Reason, pa.Status.Message
	switch {
	case !eligible:
		r.Reason, r.Message = string(why), why.Sentence()
	case s.Removed:
		r.Phase, r.Reason, r.Message = "", ReasonNotInstalled, notInstalled
	}
	if len(pa.Status.DeclaredLimits) > 0 {
		r.Declared = new(kube.Total(pa.Status.DeclaredLimits))
	}
	r.Constraints, r.Desired, r.Figures = s.Constraints[pod.UID], pa.Spec.DesiredCPULimit, publishedFigures(pa)
	if live := s.Live[pod.UID]; live != nil {
		r.Figures = live.withMultipliers(r.Figures)
	}
	return r
}

// ByName orders rows by namespace and name.
func ByName(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
}

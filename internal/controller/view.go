package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// View is one node as a decision sees it: everything that it may know.
type View struct {
	Now  time.Time
	Node Node
	// Blocked says why nothing may be resized anywhere; "" where it may.
	Blocked actuator.Reason
	Pods    []Pod
	// Strays are allocations of this node whose pod is not on it.
	Strays []*v1alpha1.PodAllocation
}

// Node is how the node stands.
type Node struct {
	Name        string
	Unknown     bool // the API server has no such node
	Ready       bool
	Pressure    bool           // short of disk or PIDs: its kubelet defers every resize
	Evicting    []corev1.Taint // NoExecute
	Allocatable cpu.Milli
	// Silence is how long its agent has not been heard, on our own clock.
	Silence time.Duration
}

// Pod is one pod with what is recorded and remembered of it.
type Pod struct {
	Pod  *corev1.Pod
	Mode kube.Mode
	PA   *v1alpha1.PodAllocation // nil: none
	// Declared are the limits that its owner declared; nil: not known.
	Declared []v1alpha1.ContainerLimit
	// Ledgered says whether the ledger holds Declared already.
	Ledgered bool
	// Progress is how far the kubelet is with the limits in the pod's spec, and what it says.
	Progress podresize.Progress
	Said     string
	// DecisionAge is how long ago the agent is known to have stood by the decision, on our own clock.
	DecisionAge time.Duration
	// RestoreRefused says whether the last refused resize was a restore.
	RestoreRefused bool
	// RetryAt is when to ask a server again that could not answer; zero: at once.
	RetryAt time.Time
}

// Purpose is what a resize is for.
type Purpose string

// Purposes, as audit lines and metrics write them.
const (
	Follow  Purpose = "follow"  // the market's decision
	Restore Purpose = "restore" // back to the declared limits
	Revert  Purpose = "revert"  // back to the limits in force, after the kubelet could not follow
)

// Task is what is to be done about one pod, in this order: record, create, resize, report, delete.
type Task struct {
	Pod Pod
	// Record is to be written down before anything else; nil: nothing new.
	Record []v1alpha1.ContainerLimit
	Create bool
	Move   *actuator.Move
	// Purpose is what Move is for, and Why what calls for it if not the market.
	Purpose Purpose
	Why     actuator.Reason
	// Status is what the allocation says when nothing is resized.
	Status v1alpha1.PodAllocationStatus
	// Done says that the resize on its way has just been found carried out.
	Done bool
	// Delete: the allocation is not needed any more.
	Delete bool
	// Again is when to look again even if nothing changes; zero: no need.
	Again time.Time
}

// pod is the task's pod; of a stray allocation the one that it claims to be of.
func (t *Task) pod() *corev1.Pod {
	if t.Pod.Pod != nil {
		return t.Pod.Pod
	}
	pa := t.Pod.PA
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Spec.PodRef.Name},
		Spec:       corev1.PodSpec{NodeName: pa.Spec.NodeName},
	}
}

// hold sets the phase with its reason, and the reason's sentence as message.
func (t *Task) hold(phase v1alpha1.Phase, r actuator.Reason) {
	t.Status.Phase, t.Status.Reason, t.Status.Message = phase, string(r), r.Sentence()
}

// sooner moves Again forward to at.
func (t *Task) sooner(at time.Time) {
	if !at.IsZero() && (t.Again.IsZero() || at.Before(t.Again)) {
		t.Again = at
	}
}

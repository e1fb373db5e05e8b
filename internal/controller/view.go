package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// View is one node as a decision sees it: everything that it may know.
type View struct {
	Now  time.Time
	Node Node
	// Blocked says why nothing may be resized anywhere; "" where it may.
	Blocked reasons.Reason
	Pods    []Pod
	// Strays are allocations of this node whose pod is not on it.
	Strays []*v1alpha1.PodAllocation
}

// Node is how the node stands.
type Node struct {
	Name     string
	Unknown  bool // the API server has no such node
	Ready    bool
	Since    time.Time      // when it last became Ready, or ceased to be; zero: not known
	Pressure bool           // short of disk or PIDs: its kubelet defers every resize
	Evicting []corev1.Taint // NoExecute
	// ShuttingDown and Draining: its kubelet is about to stop, or its pods are about to go. Cordoned: no new ones come.
	ShuttingDown, Draining, Cordoned bool
	Allocatable                      cpu.Milli
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
	// VPA names the VerticalPodAutoscaler that writes the pod's CPU; "" for none.
	VPA string
	// Unsure says what is not known of autoscalers: the pod may be one that is to be left to them. "" where all is known.
	Unsure string
	// Barred says why the API server refuses every resize of the pod, and Bar what stands in the way; "" where it does not.
	Barred reasons.Reason
	Bar    string
	// Terms are what the platform asks of decisions about the pod.
	Terms v1alpha1.Constraints
	// Cautious: an HPA watches the pod, so that it is lowered seldom.
	Cautious bool
	// Laws are those of its namespace.
	Laws laws
	// Mended: what the last resize was refused for has changed since.
	Mended bool
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
	Allocate Purpose = "allocate" // the market's decision
	Restore  Purpose = "restore"  // back to the declared limits
	Revert   Purpose = "revert"   // back to the limits in force, after the kubelet could not follow
	Rollback Purpose = "rollback" // back to the limits before a decrease that did harm
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
	Why     reasons.Reason
	// turn is when the budget of resizes may have come to Move; zero: it is not waited for.
	turn time.Time
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
func (t *Task) hold(phase v1alpha1.Phase, r reasons.Reason) { t.say(phase, r, "") }

// leaveStatus leaves the status as stored: what stops all resizes of the installation is said once, in the switch, and not in every
// PodAllocation. The observed generation says that the decision is still open.
func (t *Task) leaveStatus() {
	if t.Pod.PA != nil {
		t.Status.ObservedGeneration = t.Pod.PA.Status.ObservedGeneration
	}
}

// say is hold with what the sentence does not know.
func (t *Task) say(phase v1alpha1.Phase, r reasons.Reason, said string) {
	t.Status.Phase, t.Status.Reason, t.Status.Message = phase, string(r), sentence(r, said)
}

// sooner moves Again forward to at.
func (t *Task) sooner(at time.Time) { t.Again = earlier(t.Again, at) }

// earlier is the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

package resize

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
)

// Request is what the command line says.
type Request struct {
	Container string // "": the only one with a CPU limit
	Limit     cpu.Milli
	Force     bool
}

// Target is the pod before its resize.
type Target struct {
	Pod         *corev1.Pod
	Row         snapshot.Row
	Allocatable cpu.Milli // of its node; 0: unknown
}

// Objection is a reason not to resize.
type Objection struct {
	Why string
	// Final: --force does not help, because Kubernetes would refuse or could not undo it.
	Final bool
}

// Refuse is the error that the objections make; nil if there are none or --force overrides all.
func Refuse(pod *corev1.Pod, against []Objection, force bool) error {
	final := false
	var why []string
	for _, o := range against {
		final = final || o.Final
		why = append(why, o.Why)
	}
	if len(against) == 0 || (force && !final) {
		return nil
	}
	text := fmt.Sprintf("%s is not resized: %s", PodText(pod), strings.Join(why, "; "))
	if !final {
		text += "; --force overrides this"
	}
	return errors.New(text)
}

// Check turns a request into a move, with all objections. It is pure. Without a move an objection
// is final.
func Check(t Target, r Request) (actuator.Move, []Objection) {
	if why := notResizable(t.Pod); why != "" {
		return actuator.Move{}, []Objection{{why, true}}
	}
	c, problem := chooseContainer(t.Pod, r.Container)
	if problem != "" {
		return actuator.Move{}, []Objection{{problem, true}}
	}
	to := r.Limit.RoundUp(cpu.Quantum)
	move := actuator.Move{UID: string(t.Pod.UID),
		Changes: []actuator.Change{{Container: c.Spec.Name, From: c.Limit(), To: to}}}
	return move, append(impossible(c, to), harmful(t, c, r.Limit, to)...)
}

// notResizable says why no container of the pod can be resized; "" if one can.
func notResizable(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "the pod is being deleted"
	case pod.Status.Phase != corev1.PodRunning:
		return fmt.Sprintf("the pod is %s, not Running", pod.Status.Phase)
	}
	for _, reason := range eligibility.Reasons(eligibility.Pod{Pod: pod}) {
		switch reason {
		case reasons.StaticPod, reasons.WindowsPod, reasons.GuaranteedQoS, reasons.BestEffortQoS, reasons.NodeCannotResize:
			return reason.Sentence()
		}
	}
	return ""
}

// impossible is what Kubernetes or the kernel would refuse.
func impossible(c kube.Container, to cpu.Milli) []Objection {
	switch {
	case to < cpu.Quantum:
		return []Objection{{fmt.Sprintf("the kernel accepts no CPU limit below %v", cpu.Quantum), true}}
	case to < c.Request():
		return []Objection{{fmt.Sprintf("%v is below the CPU request of container %s, %v: Kubernetes requires a "+
			"limit of at least the request", to, c.Spec.Name, c.Request()), true}}
	}
	return nil
}

// harmful is what Kubernetes accepts and may harm the pod.
func harmful(t Target, c kube.Container, requested, to cpu.Milli) (against []Objection) {
	caution := func(format string, args ...any) {
		against = append(against, Objection{Why: fmt.Sprintf(format, args...)})
	}
	if t.Allocatable > 0 && to > t.Allocatable {
		hint := ""
		if requested%cpu.Core == 0 && requested/cpu.Core < t.Allocatable {
			hint = fmt.Sprintf(" (did you mean %dm?)", requested/cpu.Core)
		}
		caution("%v is more than the allocatable CPU of node %s, %v%s", to, t.Pod.Spec.NodeName, t.Allocatable, hint)
	}
	if t.Pod.Spec.RuntimeClassName != nil {
		caution("%s", reasons.RuntimeClass.Sentence())
	}
	if c.RestartsOnResize() {
		caution("the resizePolicy of container %s restarts it when its CPU changes", c.Spec.Name)
	}
	if progress, message := Unfinished(t.Pod); progress != actuator.Done {
		caution("an earlier resize is not finished: %s (%s)", format.OneLine(message), progress)
	}
	if f := t.Row.Figures; f != nil && to < c.Limit() && t.Row.Unlimited == 0 {
		if total := t.Row.Limit - c.Limit() + to; total < f.Usage {
			caution("the last known usage of the pod is %v, so it would be throttled hard at %v", f.Usage, total)
		}
	}
	return against
}

// chooseContainer finds the container of that name, or the only one with a limit for "". The string
// says why there is none.
func chooseContainer(pod *corev1.Pod, name string) (c kube.Container, problem string) {
	all := kube.Containers(pod)
	if name == "" {
		limited := slices.DeleteFunc(all, func(c kube.Container) bool { return c.Limit() == 0 })
		switch len(limited) {
		case 1:
			return limited[0], ""
		case 0:
			return c, "no container has a CPU limit, and a limit once added cannot be removed"
		}
		return c, fmt.Sprintf("%d containers have a CPU limit: choose one with -c %s", len(limited),
			joinNames(limited, " or "))
	}
	i := slices.IndexFunc(all, func(c kube.Container) bool { return c.Spec.Name == name })
	switch {
	case i < 0:
		return c, fmt.Sprintf("the pod has no container or sidecar %q; it has %s", name, joinNames(all, ", "))
	case all[i].Limit() == 0:
		return c, fmt.Sprintf("container %s has no CPU limit, and a limit once added cannot be removed", name)
	}
	return all[i], ""
}

func joinNames(list []kube.Container, separator string) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Spec.Name
	}
	return strings.Join(names, separator)
}

// Unfinished says how far the kubelet is with the limits in the pod's spec.
func Unfinished(pod *corev1.Pod) (actuator.Progress, string) {
	return podresize.Check(pod, kube.ByName(kube.Limits(pod)), pod.Generation)
}

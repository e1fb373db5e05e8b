package resize

import (
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

// Request is what a person asks resize to do.
type Request struct {
	Container string // "": the only one with a CPU limit
	Limit     cpu.Milli
	Force     bool
}

// Target is what is known of the pod before it is resized.
type Target struct {
	Pod         *corev1.Pod
	Row         snapshot.Row
	Allocatable cpu.Milli // of its node; 0: not known
}

// Objection is a reason not to resize.
type Objection struct {
	Why string
	// Final: --force does not help, because Kubernetes would refuse or could not undo it.
	Final bool
}

// Check turns what is asked into a move, or says everything that speaks against it. It is pure.
func Check(t Target, o Request) (actuator.Move, []Objection) {
	if why := unfit(t.Pod); why != "" {
		return actuator.Move{}, []Objection{{why, true}}
	}
	c, problem := choose(t.Pod, o.Container)
	if problem != "" {
		return actuator.Move{}, []Objection{{problem, true}}
	}
	to := o.Limit.RoundUp(cpu.Quantum)
	move := actuator.Move{UID: string(t.Pod.UID), Changes: []actuator.Change{{Container: c.Name, From: c.Limit, To: to}}}
	return move, append(impossible(c, to), harmful(t, c, o.Limit, to)...)
}

// unfit says why nothing of the pod can be resized; "" if something can.
func unfit(pod *corev1.Pod) string {
	facts := kube.Facts(pod, kube.ModeEnforce, "")
	switch {
	case pod.DeletionTimestamp != nil:
		return "the pod is being deleted"
	case pod.Status.Phase != corev1.PodRunning:
		return fmt.Sprintf("the pod is %s, not Running", pod.Status.Phase)
	case facts.Static:
		return reasons.StaticPod.Sentence()
	case facts.Windows:
		return reasons.WindowsPod.Sentence()
	case facts.QOS == eligibility.QOSGuaranteed:
		return reasons.GuaranteedQoS.Sentence()
	case facts.QOS == eligibility.QOSBestEffort:
		return reasons.BestEffortQoS.Sentence()
	case facts.StatusWithoutResources:
		return reasons.NodeCannotResize.Sentence()
	}
	return ""
}

// impossible is what Kubernetes or the kernel would refuse.
func impossible(c snapshot.Container, to cpu.Milli) []Objection {
	switch {
	case to < cpu.Quantum:
		return []Objection{{fmt.Sprintf("the kernel takes no CPU limit below %v", cpu.Quantum), true}}
	case to < c.Request:
		return []Objection{{fmt.Sprintf("%v is below the CPU request of container %s, %v: Kubernetes wants a limit to be at least the request", to, c.Name, c.Request), true}}
	}
	return nil
}

// harmful is what would be done, and had better not be.
func harmful(t Target, c snapshot.Container, asked, to cpu.Milli) (against []Objection) {
	caution := func(format string, args ...any) {
		against = append(against, Objection{Why: fmt.Sprintf(format, args...)})
	}
	if t.Allocatable > 0 && to > t.Allocatable {
		hint := ""
		if asked%cpu.Core == 0 && asked/cpu.Core < t.Allocatable {
			hint = fmt.Sprintf(" (did you mean %dm?)", asked/cpu.Core)
		}
		caution("%v is more than node %s has to give, %v%s", to, t.Pod.Spec.NodeName, t.Allocatable, hint)
	}
	if t.Pod.Spec.RuntimeClassName != nil {
		caution("%s", reasons.RuntimeClass.Sentence())
	}
	if c.Restarts {
		caution("the resizePolicy of container %s restarts it when its CPU changes", c.Name)
	}
	if progress, said := Unfinished(t.Pod); progress != podresize.Done {
		caution("an earlier resize is not finished: %s (%s)", format.OneLine(said), progress)
	}
	if f := t.Row.Figures; f != nil && to < c.Limit && t.Row.Unlimited == 0 {
		if total := t.Row.Limit - c.Limit + to; total < f.Usage {
			caution("the pod used %v of CPU when last seen, and would be throttled hard at %v", f.Usage, total)
		}
	}
	return against
}

// choose finds the container that is meant.
func choose(pod *corev1.Pod, name string) (snapshot.Container, string) {
	all := snapshot.RunningContainers(pod)
	limited := slices.DeleteFunc(slices.Clone(all), func(c snapshot.Container) bool { return c.Limit == 0 })
	if name == "" {
		switch len(limited) {
		case 1:
			return limited[0], ""
		case 0:
			return snapshot.Container{}, "no container has a CPU limit, and a limit once added cannot be removed"
		}
		return snapshot.Container{}, fmt.Sprintf("%d containers have a CPU limit: choose one with -c %s", len(limited), strings.Join(names(limited), " or "))
	}
	for _, c := range all {
		if c.Name == name {
			if c.Limit == 0 {
				return snapshot.Container{}, fmt.Sprintf("container %s has no CPU limit, and a limit once added cannot be removed", name)
			}
			return c, ""
		}
	}
	return snapshot.Container{}, fmt.Sprintf("it has no container or sidecar %q; it has %s", name, strings.Join(names(all), ", "))
}

func names(list []snapshot.Container) []string {
	var n []string
	for _, c := range list {
		n = append(n, c.Name)
	}
	return n
}

// Unfinished says how far the kubelet is with the pod's present limits.
func Unfinished(pod *corev1.Pod) (podresize.Progress, string) {
	return podresize.Check(pod, snapshot.Limits(pod), pod.Generation)
}

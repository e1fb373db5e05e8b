package cli

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
)

// ask is what a person asks resize to do.
type ask struct {
	container string // "": the only one with a CPU limit
	limit     cpu.Milli
	force     bool
}

// target is what is known of the pod before it is resized.
type target struct {
	pod         *corev1.Pod
	standing    Standing
	allocatable cpu.Milli // of its node; 0: not known
}

// Objection is a reason not to resize.
type Objection struct {
	Why string
	// Final: --force does not help, because Kubernetes would refuse or could not undo it.
	Final bool
}

// guard turns what is asked into a move, or says everything that speaks against it. It is pure.
func guard(t target, o ask) (actuator.Move, []Objection) {
	if why := unfit(t.pod); why != "" {
		return actuator.Move{}, []Objection{{why, true}}
	}
	c, problem := choose(t.pod, o.container)
	if problem != "" {
		return actuator.Move{}, []Objection{{problem, true}}
	}
	to := o.limit.RoundUp(cpu.Quantum)
	move := actuator.Move{UID: string(t.pod.UID), Changes: []actuator.Change{{Container: c.name, From: c.limit, To: to}}}
	return move, append(impossible(c, to), harmful(t, c, o.limit, to)...)
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
func impossible(c container, to cpu.Milli) []Objection {
	switch {
	case to < cpu.Quantum:
		return []Objection{{fmt.Sprintf("the kernel takes no CPU limit below %v", cpu.Quantum), true}}
	case to < c.request:
		return []Objection{{fmt.Sprintf("%v is below the CPU request of container %s, %v: Kubernetes wants a limit to be at least the request", to, c.name, c.request), true}}
	}
	return nil
}

// harmful is what would be done, and had better not be.
func harmful(t target, c container, asked, to cpu.Milli) (against []Objection) {
	caution := func(format string, args ...any) {
		against = append(against, Objection{Why: fmt.Sprintf(format, args...)})
	}
	if t.allocatable > 0 && to > t.allocatable {
		hint := ""
		if asked%cpu.Core == 0 && asked/cpu.Core < t.allocatable {
			hint = fmt.Sprintf(" (did you mean %dm?)", asked/cpu.Core)
		}
		caution("%v is more than node %s has to give, %v%s", to, t.pod.Spec.NodeName, t.allocatable, hint)
	}
	if t.pod.Spec.RuntimeClassName != nil {
		caution("%s", reasons.RuntimeClass.Sentence())
	}
	if c.restarts {
		caution("the resizePolicy of container %s restarts it when its CPU changes", c.name)
	}
	if progress, said := unfinished(t.pod); progress != podresize.Done {
		caution("an earlier resize is not finished: %s (%s)", oneLine(said), progress)
	}
	if f := t.standing.Figures; f != nil && to < c.limit && t.standing.Unlimited == 0 {
		if total := t.standing.Limit - c.limit + to; total < f.Usage {
			caution("the pod used %v of CPU when last seen, and would be throttled hard at %v", f.Usage, total)
		}
	}
	return against
}

// choose finds the container that is meant.
func choose(pod *corev1.Pod, name string) (container, string) {
	all := running(pod)
	limited := slices.DeleteFunc(slices.Clone(all), func(c container) bool { return c.limit == 0 })
	if name == "" {
		switch len(limited) {
		case 1:
			return limited[0], ""
		case 0:
			return container{}, "no container has a CPU limit, and a limit once added cannot be removed"
		}
		return container{}, fmt.Sprintf("%d containers have a CPU limit: choose one with -c %s", len(limited), strings.Join(names(limited), " or "))
	}
	for _, c := range all {
		if c.name == name {
			if c.limit == 0 {
				return container{}, fmt.Sprintf("container %s has no CPU limit, and a limit once added cannot be removed", name)
			}
			return c, ""
		}
	}
	return container{}, fmt.Sprintf("it has no container or sidecar %q; it has %s", name, strings.Join(names(all), ", "))
}

func names(list []container) []string {
	var n []string
	for _, c := range list {
		n = append(n, c.name)
	}
	return n
}

// unfinished says how far the kubelet is with the pod's present limits.
func unfinished(pod *corev1.Pod) (podresize.Progress, string) {
	return podresize.Check(pod, limits(pod), pod.Generation)
}

// limits are the CPU limits in the pod's spec by container.
func limits(pod *corev1.Pod) map[string]cpu.Milli {
	m := map[string]cpu.Milli{}
	for _, l := range kube.Limits(pod) {
		m[l.Name] = l.CPULimit
	}
	return m
}

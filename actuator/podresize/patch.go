package podresize

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// newPatch encodes the move as a strategic merge patch: containers merge by name, absent fields stay as
// they are. The API server refuses it for any pod but the one that was read: the UID guards against
// another pod of the same name, the version against every other change. If the move does not fit the
// pod, ok is false, the result says why, and nothing must be sent.
func newPatch(pod *corev1.Pod, move actuator.Move) (body []byte, refusal Result, ok bool) {
	refuse := func(o Outcome, format string, args ...any) ([]byte, Result, bool) {
		message := fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, fmt.Sprintf(format, args...))
		return nil, Result{Outcome: o, Message: message}, false
	}
	switch {
	case pod.UID == "" || pod.ResourceVersion == "":
		return refuse(Invalid, "this copy has no uid or resourceVersion; read the pod from the API server first")
	case move.UID != string(pod.UID):
		return refuse(Replaced, "the move was decided for the pod with uid %s, this one has %s", move.UID, pod.UID)
	case len(move.Changes) == 0:
		return refuse(Invalid, "the move changes nothing")
	}
	spec := map[string][]any{}
	seen := map[string]bool{}
	for _, ch := range move.Changes {
		c, found := kube.Find(pod, ch.Container)
		switch {
		case !found:
			return refuse(Invalid, "no container or sidecar is named %q", ch.Container)
		case seen[ch.Container]:
			return refuse(Invalid, "the move changes container %q twice", ch.Container)
		case ch.To <= 0:
			return refuse(Invalid, "container %q: a CPU limit of %v cannot be set", ch.Container, ch.To)
		}
		limit, limited := c.Spec.Resources.Limits[corev1.ResourceCPU]
		switch {
		case !limited:
			return refuse(Invalid, "container %q has no CPU limit, and one that is added can never be removed", ch.Container)
		case kube.Compare(limit, kube.Quantity(ch.From)) != 0:
			return refuse(Conflict, "container %q: the CPU limit is %s, the move was decided at %v", ch.Container, limit.String(), ch.From)
		case ch.To > ch.From && !c.Runs():
			return refuse(NotRunning, "container %q does not run: with a higher limit than the pod's cgroup has it might never start", ch.Container)
		}
		seen[ch.Container] = true
		list := "containers"
		if c.Sidecar {
			list = "initContainers"
		}
		resources := map[string]any{"limits": map[string]any{"cpu": ch.To}}
		spec[list] = append(spec[list], map[string]any{"name": ch.Container, "resources": resources})
	}
	metadata := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return refuse(Invalid, "write the patch: %v", err)
	}
	return body, Result{}, true
}

// judge compares the server's answer with the previous pod and the move.
func judge(before *corev1.Pod, move actuator.Move, answer *corev1.Pod) Result {
	switch {
	case answer.UID == "":
		return Result{Outcome: Unknown, Message: fmt.Sprintf("pod %s/%s: the answer is not a pod", before.Namespace, before.Name)}
	case answer.UID != before.UID:
		return Result{Outcome: Replaced, Message: fmt.Sprintf("pod %s/%s: the API server answered with uid %s instead of %s",
			before.Namespace, before.Name, answer.UID, before.UID)}
	}
	limits, changed := map[string]cpu.Milli{}, false
	for _, ch := range move.Changes {
		limits[ch.Container] = ch.To
		changed = changed || ch.From != ch.To
	}
	if d := differences(kube.WithLimits(before, limits), answer); len(d) > 0 {
		return Result{Outcome: WouldMutate, Pod: answer, Message: fmt.Sprintf(
			"pod %s/%s: admission changes more than the requested CPU limits: %s", before.Namespace, before.Name, strings.Join(d, "; "))}
	}
	if !changed {
		return Result{Outcome: NoChange, Pod: answer}
	}
	return Result{Outcome: Accepted, Pod: answer}
}

// differences lists the differences between the resources of two pods. A resize can change resources
// and resize policies only: the API server drops everything else, from webhooks too.
func differences(want, got *corev1.Pod) []string {
	var d []string
	d = append(d, containerDifferences(want.Spec.Containers, got.Spec.Containers)...)
	d = append(d, containerDifferences(want.Spec.InitContainers, got.Spec.InitContainers)...)
	if !equality.Semantic.DeepEqual(want.Spec.Resources, got.Spec.Resources) {
		d = append(d, "the pod-level resources differ")
	}
	return d
}

func containerDifferences(want, got []corev1.Container) []string {
	if len(want) != len(got) {
		return []string{fmt.Sprintf("%d containers instead of %d", len(got), len(want))}
	}
	var d []string
	for i := range want {
		w, g := &want[i], &got[i]
		if w.Name != g.Name {
			d = append(d, fmt.Sprintf("container %q is named %q", w.Name, g.Name))
			continue
		}
		d = append(d, listDifferences(w.Name+" limits", w.Resources.Limits, g.Resources.Limits)...)
		d = append(d, listDifferences(w.Name+" requests", w.Resources.Requests, g.Resources.Requests)...)
		if !equality.Semantic.DeepEqual(w.Resources.Claims, g.Resources.Claims) {
			d = append(d, w.Name+" resource claims differ")
		}
		if !equality.Semantic.DeepEqual(w.ResizePolicy, g.ResizePolicy) {
			d = append(d, w.Name+" resize policy differs")
		}
	}
	return d
}

func listDifferences(what string, want, got corev1.ResourceList) []string {
	var d []string
	for _, name := range names(want, got) {
		w, inWant := want[name]
		g, inGot := got[name]
		switch {
		case !inGot:
			d = append(d, fmt.Sprintf("%s %s is removed", what, name))
		case !inWant:
			d = append(d, fmt.Sprintf("%s %s=%s is added", what, name, g.String()))
		case kube.Compare(w, g) != 0:
			d = append(d, fmt.Sprintf("%s %s=%s instead of %s", what, name, g.String(), w.String()))
		}
	}
	return d
}

// names are the resources named in either list, in order.
func names(a, b corev1.ResourceList) []corev1.ResourceName {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

package dispatch

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/flowcontrol"
)

// admission counts the dry runs of each pod. From a moment on it changes pods of a namespace, in answers to
// dry runs as in resizes, unless it supports no dry runs.
type admission struct {
	asked      map[string]int // dry runs, by namespace and name
	namespace  string         // that it changes; "": none
	noDryRuns  bool
	mutatedOne bool // a resize
}

func (a *admission) answer(pod *corev1.Pod) podresize.Result {
	if pod.Namespace == a.namespace {
		return podresize.Result{Outcome: podresize.WouldMutate}
	}
	return podresize.Result{Outcome: podresize.Accepted}
}

func (a *admission) DryRun(_ context.Context, pod *corev1.Pod, _ actuator.Move) podresize.Result {
	a.asked[pod.Namespace+"/"+pod.Name]++
	if a.noDryRuns {
		return podresize.Result{Outcome: podresize.NoDryRun}
	}
	return a.answer(pod)
}

func (a *admission) Apply(_ context.Context, pod *corev1.Pod, _ actuator.Move) podresize.Result {
	r := a.answer(pod)
	if r.Outcome == podresize.WouldMutate {
		r.Pod, a.mutatedOne = pod, true
	}
	return r
}

// TestAskedAnew: once a dry run or a resize has shown that admission changes pods of a namespace, each of its
// pods has a dry run before its next resize; pods of other namespaces do not.
func TestAskedAnew(t *testing.T) {
	for name, noDryRuns := range map[string]bool{"found by a dry run": false, "found by a resize": true} {
		t.Run(name, func(t *testing.T) {
			a := &admission{asked: map[string]int{}}
			b := newBench(flowcontrol.DefaultConfig(), nil)
			b.Resizer = a
			checked := map[string]string{}
			resize := func(namespace, pod string) {
				t.Helper()
				r := b.resizeOf(namespace, pod, "n", flowcontrol.Needed)
				r.Value.Checked, r.Value.Answer = checked[namespace+"/"+pod], &Answer{}
				if _, _, err := b.try(t.Context(), r.Value); err != nil {
					t.Fatal(err)
				}
				checked[namespace+"/"+pod] = r.Value.Checked
			}
			for range 3 {
				resize("a", "early")
				resize("b", "early")
			}
			a.namespace, a.noDryRuns = "a", noDryRuns
			resize("a", "late")
			if a.mutatedOne != noDryRuns {
				t.Fatalf("a resize was changed: %v", a.mutatedOne)
			}
			a.noDryRuns, a.mutatedOne = false, false
			resize("a", "early")
			resize("a", "late")
			resize("b", "early")
			want := map[string]int{"a/early": 2, "a/late": 2, "b/early": 1}
			if fmt.Sprint(a.asked) != fmt.Sprint(want) || a.mutatedOne {
				t.Errorf("dry runs %v, want %v; another resize was changed: %v", a.asked, want, a.mutatedOne)
			}
		})
	}
}

// TestMutationsAreBounded: however many namespaces admission changes pods of, few are remembered, and what
// was seen in one that is forgotten does not count as unseen.
func TestMutationsAreBounded(t *testing.T) {
	var m mutations
	before := m.last("a")
	m.found("a")
	after := m.last("a")
	for i := range 3 * mutationsMost {
		m.found(fmt.Sprint("other-", i))
	}
	if last := m.last("a"); last == before || after == before {
		t.Errorf("the last mutation was %d, then %d, and now is %d", before, after, last)
	}
	if len(m.of) > mutationsMost {
		t.Errorf("%d namespaces are remembered, want at most %d", len(m.of), mutationsMost)
	}
}

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
	during     func()         // what happens during a dry run
	asked      map[string]int // dry runs, by namespace and name
	namespace  string         // that it changes; "": none
	pod        string         // the only one of it; "": all
	noDryRuns  bool
	mutatedOne bool // a resize
}

func (a *admission) answer(pod *corev1.Pod) podresize.Result {
	if pod.Namespace == a.namespace && (a.pod == "" || pod.Name == a.pod) {
		return podresize.Result{Outcome: podresize.WouldMutate}
	}
	return podresize.Result{Outcome: podresize.Accepted}
}

func (a *admission) DryRun(_ context.Context, pod *corev1.Pod, _ actuator.Move) podresize.Result {
	a.asked[pod.Namespace+"/"+pod.Name]++
	if a.during != nil {
		a.during()
	}
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

// attempts returns a function that tries a resize of a pod, as its dry runs until then allow, and says whether
// it was tried.
func (b *bench) attempts(t *testing.T) func(namespace, pod string) bool {
	checked := map[string]string{}
	return func(namespace, pod string) bool {
		t.Helper()
		r := b.resizeOf(namespace, pod, "n", flowcontrol.Needed)
		r.Value.Checked, r.Value.Answer = checked[namespace+"/"+pod], &Answer{}
		_, tried, err := b.try(t.Context(), r.Value)
		if err != nil {
			t.Fatal(err)
		}
		checked[namespace+"/"+pod] = r.Value.Checked
		return tried
	}
}

// TestAskedAnew: once a dry run or a resize has shown that admission changes pods of a namespace, each of its
// pods has a dry run before its next resize; pods of other namespaces do not.
func TestAskedAnew(t *testing.T) {
	for name, noDryRuns := range map[string]bool{"found by a dry run": false, "found by a resize": true} {
		t.Run(name, func(t *testing.T) {
			a := &admission{asked: map[string]int{}}
			b := newBench(flowcontrol.DefaultConfig(), nil)
			b.Resizer = a
			resize := b.attempts(t)
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

// TestFoundDuringADryRun: a pod whose dry run began before admission was seen to change another pod of its
// namespace is not resized by it: it has another one.
func TestFoundDuringADryRun(t *testing.T) {
	a := &admission{asked: map[string]int{}}
	b := newBench(flowcontrol.DefaultConfig(), nil)
	b.Resizer = a
	resize := b.attempts(t)
	a.during = func() { // of another pod, whose answer comes first
		a.during = nil
		a.namespace = "a"
		resize("a", "other")
		a.namespace = ""
	}
	if resize("a", "web") {
		t.Error("a resize is tried, though its dry run is from before")
	}
	if !resize("a", "web") || a.asked["a/web"] != 2 {
		t.Errorf("then it has %d dry runs, want 2 and an attempt", a.asked["a/web"])
	}
}

// TestAPodThatIsAlwaysChanged: a pod that admission changes at each attempt voids the dry runs of its namespace
// once, and not at each retry.
func TestAPodThatIsAlwaysChanged(t *testing.T) {
	for name, before := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			a := &admission{asked: map[string]int{}}
			b := newBench(flowcontrol.DefaultConfig(), nil)
			b.Resizer = a
			resize := b.attempts(t)
			if before {
				resize("a", "labelled")
			}
			resize("a", "web")
			a.namespace, a.pod = "a", "labelled"
			for range 5 {
				resize("a", "labelled")
				resize("a", "web")
			}
			if n := a.asked["a/web"]; n != 2 {
				t.Errorf("another pod has %d dry runs, want 2", n)
			}
		})
	}
}

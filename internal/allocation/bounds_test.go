package allocation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// planned is what would be done about the pod now, where its containers are wanted at these limits,
// and how the plan sees it.
func planned(pod *corev1.Pod, declared, wanted []v1alpha1.ContainerLimit, given v1alpha1.Constraints) (actuator.Step, actuator.Pod) {
	facts := Facts(pod, declared, 4000, &given)
	state := facts.Planned(LimitsOf(wanted), given.NoDecrease != "")
	return actuator.Plan(actuator.DefaultConfig(), time.Now(), false, []actuator.Pod{state})[0], state
}

// TestDeclaredLimitIsLeft: a pod at its declared limit of what it requests, or hardly more, is not
// raised for the sake of its floor. Under a LimitRange that allows no more the API server would
// refuse that for ever.
func TestDeclaredLimitIsLeft(t *testing.T) {
	for _, c := range []struct {
		request, limit string
		item           corev1.LimitRangeItem
	}{
		{"1", "1", corev1.LimitRangeItem{}},
		{"50m", "50m", corev1.LimitRangeItem{}},
		{"1", "1", corev1.LimitRangeItem{Max: podtest.Amounts("cpu", "1")}},
		{"995m", "1", corev1.LimitRangeItem{Max: podtest.Amounts("cpu", "1")}},
		{"1", "1", corev1.LimitRangeItem{MaxLimitRequestRatio: podtest.Amounts("cpu", "1")}},
		{"1", "1", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: podtest.Amounts("cpu", "1")}},
		{"1", "1", corev1.LimitRangeItem{Type: corev1.LimitTypePod, MaxLimitRequestRatio: podtest.Amounts("cpu", "1")}},
		{"85m", "90m", corev1.LimitRangeItem{Max: podtest.Amounts("cpu", "90m")}},
	} {
		pod := podtest.Shop()
		pod.Spec.InitContainers, pod.Spec.Containers = nil, []corev1.Container{podtest.Container("app", c.request, c.limit)}
		declared := kube.Limits(pod)
		n := constraints.NamespaceObjects{LimitRanges: podtest.LimitRanges(c.item)}
		if r, said := n.Refusal(pod); r != "" {
			t.Errorf("%+v: %s, %s", c, r, said)
		}
		given, _ := n.ConstraintsOf(pod, declared)
		bid := DemandPod(pod, &v1alpha1.NodePod{UID: pod.UID, DeclaredLimits: declared, Constraints: &given}, 4000)
		floor, ceiling := bid.Containers[0].Floor, bid.Containers[0].Ceiling
		if bid.Ceiling > 0 {
			ceiling = min(ceiling, bid.Ceiling)
		}
		if limit := declared[0].CPULimit; floor > limit || c.item.Max != nil && ceiling > limit {
			t.Errorf("%+v: the agent decides from %v to %v, want it to leave %v", c, floor, ceiling, limit)
		}
		for _, want := range []cpu.Milli{floor, declared[0].CPULimit} {
			if s, _ := planned(pod, declared, podtest.Limits("app", int(want)), given); s.Move != nil || s.Reason != reasons.Settled {
				t.Errorf("%+v: wanted at %v it moves %v (%s)", c, want, s.Move, s.Reason)
			}
		}
	}
}

// TestNoMoveIsRefused draws pods and constraints: what is moved lies within the ceilings that the API
// server enforces, above the request or as declared, and what the agent may decide is what the
// controller carries out.
func TestNoMoveIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := func(what string, low, high int) cpu.Milli { return cpu.Milli(rapid.IntRange(low, high).Draw(t, what)) }
		maybe := func(what string, low, high int) *cpu.Milli {
			if rapid.Bool().Draw(t, "no "+what) {
				return nil
			}
			m := milli(what, low, high)
			return &m
		}
		pod := podtest.Shop()
		pod.Spec.InitContainers, pod.Spec.Containers = nil, nil
		var declared, wanted []v1alpha1.ContainerLimit
		given := v1alpha1.Constraints{Ceiling: maybe("total", 10, 4000)}
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "containers")] {
			request := milli("request", 1, 1000)
			d := request + milli("more", 0, 500)
			limit := d
			if rapid.Bool().Draw(t, "moved") {
				limit = request + cpu.Quantum + milli("above", 0, 2000)
			}
			quantities := func(m cpu.Milli) corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(m)}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: name, Resources: corev1.ResourceRequirements{Requests: quantities(request), Limits: quantities(limit)},
			})
			declared = append(declared, v1alpha1.ContainerLimit{Name: name, CPULimit: d})
			wanted = append(wanted, v1alpha1.ContainerLimit{Name: name, CPULimit: milli("want", 10, 4000)})
			given.Containers = append(given.Containers, v1alpha1.ContainerConstraints{Name: name, Floor: maybe("floor", 1, 3000), Ceiling: maybe("ceiling", 1, 3000)})
		}
		raise := rapid.IntRange(1, 10).Draw(t, "raise")
		given.MaxRaise = ptr.To(int32(raise))
		if rapid.Bool().Draw(t, "firm") {
			given.NoDecrease = string(reasons.ScaledByHPA)
		}
		told := &v1alpha1.NodePod{UID: pod.UID, DeclaredLimits: declared, Constraints: &given}
		bounds := constraints.BoundsOf(pod, declared, 4000, &given)
		for i, c := range DemandPod(pod, told, 4000).Containers {
			if c.Bounds != bounds.Containers[c.Name] {
				t.Fatalf("container %d: the agent decides within %+v, the controller within %+v", i, c.Bounds, bounds.Containers[c.Name])
			}
		}
		s, state := planned(pod, declared, wanted, given)
		if s.Move == nil {
			return
		}
		after := kube.ByName(kube.Limits(pod))
		for _, ch := range s.Move.Changes {
			after[ch.Container] = ch.To
		}
		raised := s.Move.Delta() > 0
		for i, c := range kube.Containers(pod) {
			to, from, most := after[c.Spec.Name], c.Limit(), given.Containers[i].Ceiling
			multiple := max(ptr.Deref(given.Containers[i].Floor, 0)+cpu.Quantum, cpu.Milli(raise)*max(cpu.Quantum, declared[i].CPULimit))
			switch {
			case to == from:
			case to < c.Request()+cpu.Quantum && to != declared[i].CPULimit:
				t.Fatalf("%v: %s is left with hardly more than its request of %v", s.Move, c.Spec.Name, c.Request())
			case to > from && (to > 4000 || to > multiple || most != nil && to > *most):
				t.Fatalf("%v: %s is raised above its ceiling, %+v", s.Move, c.Spec.Name, given)
			}
		}
		var sum cpu.Milli
		arrived := true // none is yet to be lowered, or by too little to be worth it
		for _, c := range state.Containers {
			sum += after[c.Name]
			arrived = arrived && after[c.Name] <= c.Desired
		}
		if raised && arrived && given.Ceiling != nil && sum > *given.Ceiling {
			t.Fatalf("%v: raised to %v together, above %v", s.Move, sum, *given.Ceiling)
		}
	})
}

package constraints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func TestBounds(t *testing.T) {
	p := podtest.Shop()
	declared := kube.Limits(p)
	m := func(m cpu.Milli) *cpu.Milli { return &m }
	for name, c := range map[string]struct {
		own         string // mbcas.io/max-cpu
		app         string // its limit
		allocatable cpu.Milli
		terms       *v1alpha1.Constraints
		want        Bounds
	}{
		"the node's": {"", "500m", 2005, nil, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}}},
		"max-cpu":    {"1.005", "500m", 2000, nil, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 1000}},
		"no ceiling is below the floors": {
			"10m", "500m", 2000, nil,
			Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 210},
		},
		"terms": {
			"1", "500m", 2000,
			&v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(333), Ceiling: m(777)}, {Name: "proxy", Ceiling: m(105)}}, Ceiling: m(904)},
			Bounds{Containers: map[string]Bound{"app": {340, 770}, "proxy": {100, 100}}, Ceiling: 900},
		},
		"a ceiling caps what is asked for": {
			"", "500m", 2000,
			&v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(3000), Ceiling: m(777)}, {Name: "proxy", Floor: m(3000)}}},
			Bounds{Containers: map[string]Bound{"app": {770, 770}, "proxy": {2000, 2000}}},
		},
		"so does that of the pod": {
			"", "500m", 2000,
			&v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(500)}, {Name: "proxy", Floor: m(300)}}, Ceiling: m(490)},
			// 390 and 240 above what they request and 10m share the 320 that 490 leaves above these.
			Bounds{Containers: map[string]Bound{"app": {300, 2000}, "proxy": {180, 2000}}, Ceiling: 490},
		},
		"but not the pod's own": {
			"300m", "500m", 2000, &v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(600)}}},
			Bounds{Containers: map[string]Bound{"app": {600, 2000}, "proxy": {100, 2000}}, Ceiling: 700},
		},
		"nothing fits a container's ceiling": {
			"", "500m", 2000, &v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(600), Ceiling: m(105)}}},
			Bounds{Containers: map[string]Bound{"app": {500, 500}, "proxy": {100, 2000}}},
		},
		"nothing fits the pod's ceiling": {
			"", "500m", 2000, &v1alpha1.Constraints{Ceiling: m(160)}, // 110 and 60 at least
			Bounds{Containers: map[string]Bound{"app": {500, 500}, "proxy": {200, 200}}, Ceiling: 700},
		},
		"a pod's own ceiling below that of its terms": {"800m", "500m", 2000, &v1alpha1.Constraints{Ceiling: m(900)}, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 800}},
		"not to be lowered": {
			"", "453m", 2000, &v1alpha1.Constraints{NoDecrease: "ScaledByHPA"},
			Bounds{Containers: map[string]Bound{"app": {453, 2000}, "proxy": {200, 2000}}}, // nor raised to a whole quantum
		},
		"not to be lowered, save to its ceiling": {
			"", "1500m", 2000, &v1alpha1.Constraints{NoDecrease: "ScaledByHPA", Ceiling: m(600)},
			// 390 and 100 above the floors share the 390 that 600 leaves above them.
			Bounds{Containers: map[string]Bound{"app": {420, 2000}, "proxy": {180, 2000}}, Ceiling: 600},
		},
		"not to be lowered, save to a container's ceiling": {
			"", "1500m", 2000, &v1alpha1.Constraints{NoDecrease: "ScaledByHPA", Containers: []v1alpha1.ContainerConstraints{{Name: "app", Ceiling: m(400)}}},
			Bounds{Containers: map[string]Bound{"app": {400, 400}, "proxy": {200, 2000}}},
		},
	} {
		delete(p.Annotations, kube.MaxCPUKey)
		if c.own != "" {
			p.Annotations[kube.MaxCPUKey] = c.own
		}
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(c.app)
		if diff := cmp.Diff(c.want, BoundsOf(p, declared, c.allocatable, c.terms)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestNoDecreaseKeepsWhatIsDeclared: a pod that must not be decreased comes down to what was declared or to the floor of its HPA, the
// higher of them, and no further; below that it stays where it is.
func TestNoDecreaseKeepsWhatIsDeclared(t *testing.T) {
	floor := cpu.Milli(700)
	for name, c := range map[string]struct {
		limit, declared string
		floor           *cpu.Milli
		want            cpu.Milli
	}{
		"raised to the node's size":          {"4", "500m", nil, 500},
		"raised, and the floor is higher":    {"4", "500m", &floor, 700},
		"raised, and the declared is higher": {"4", "900m", &floor, 900},
		"at its declared limit":              {"500m", "500m", nil, 500},
		"lowered before":                     {"300m", "500m", nil, 300},
	} {
		pod := podtest.Shop()
		pod.Spec.InitContainers, pod.Spec.Containers = nil, []corev1.Container{podtest.Container("app", "100m", c.declared)}
		declared := kube.Limits(pod)
		pod.Spec.Containers[0].Resources.Limits = podtest.Amounts("cpu", c.limit)
		terms := v1alpha1.Constraints{NoDecrease: string(reasons.ScaledByHPA)}
		if c.floor != nil {
			terms.Containers = []v1alpha1.ContainerConstraints{{Name: "app", Floor: c.floor}}
		}
		if got := BoundsOf(pod, declared, 4000, &terms).Containers["app"].Floor; got != c.want {
			t.Errorf("%s: floor %v, want %v", name, got, c.want)
		}
	}
}

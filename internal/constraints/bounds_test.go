package constraints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestBounds: the pod has the containers app, which requests 100m and declares 500m, and proxy,
// which requests 50m and declares 200m.
func TestBounds(t *testing.T) {
	p := podtest.Shop()
	declared := kube.Limits(p)
	container := func(name string, floor, ceiling cpu.Milli) v1alpha1.ContainerConstraints {
		c := v1alpha1.ContainerConstraints{Name: name}
		if floor > 0 {
			c.Floor = &floor
		}
		if ceiling > 0 {
			c.Ceiling = &ceiling
		}
		return c
	}
	constraints := func(noDecrease string, ceiling cpu.Milli, containers ...v1alpha1.ContainerConstraints) *v1alpha1.Constraints {
		t := &v1alpha1.Constraints{NoDecrease: noDecrease, Containers: containers}
		if ceiling > 0 {
			t.Ceiling = &ceiling
		}
		return t
	}
	type interval struct{ floor, ceiling cpu.Milli }
	for name, c := range map[string]struct {
		maxCPU      string // mbcas.io/max-cpu
		limit       string // of app
		allocatable cpu.Milli
		constraints *v1alpha1.Constraints
		app, proxy  interval
		ceiling     cpu.Milli
	}{
		"the node's size":                   {"", "500m", 2005, nil, interval{110, 2000}, interval{100, 1600}, 0},
		"max-cpu":                           {"1.005", "500m", 2000, nil, interval{110, 2000}, interval{100, 1600}, 1000},
		"no ceiling is below the floors":    {"10m", "500m", 2000, nil, interval{110, 2000}, interval{100, 1600}, 210},
		"max-cpu below what a kernel takes": {"9m", "500m", 2000, nil, interval{110, 2000}, interval{100, 1600}, 210},
		"constraints": {
			"1", "500m", 2000, constraints("", 904, container("app", 333, 777), container("proxy", 0, 105)),
			interval{340, 770}, interval{100, 100}, 900,
		},
		"a container's ceiling comes before its floor": {
			"", "500m", 2000, constraints("", 0, container("app", 3000, 777), container("proxy", 3000, 0)),
			interval{770, 770}, interval{2000, 2000}, 0,
		},
		"the pod's ceiling comes before its floors": {
			// 390 and 240 above what they request and 10m share the 320 that 490 leaves above
			// these.
			"", "500m", 2000, constraints("", 490, container("app", 500, 0), container("proxy", 300, 0)),
			interval{300, 2000}, interval{180, 1600}, 490,
		},
		"max-cpu comes after the floors": {
			"300m", "500m", 2000, constraints("", 0, container("app", 600, 0)),
			interval{600, 2000}, interval{100, 1600}, 700,
		},
		"no settable limit within a container's ceiling": {
			"", "500m", 2000, constraints("", 0, container("app", 600, 105)),
			interval{500, 500}, interval{100, 1600}, 0,
		},
		"no settable limits within the pod's ceiling": { // 110 and 60 at least
			"", "500m", 2000, constraints("", 160), interval{500, 500}, interval{200, 200}, 700,
		},
		"max-cpu below the ceiling of a constraint": {"800m", "500m", 2000, constraints("", 900), interval{110, 2000}, interval{100, 1600}, 800},
		"no decrease, nor an increase to a whole quantum": {
			"", "453m", 2000, constraints("ScaledByHPA", 0), interval{453, 2000}, interval{200, 1600}, 0,
		},
		"no decrease, except to the pod's ceiling": {
			// 390 and 100 above the floors share the 390 that 600 leaves above them.
			"", "1500m", 2000, constraints("ScaledByHPA", 600), interval{420, 2000}, interval{180, 1600}, 600,
		},
		"no decrease, except to a container's ceiling": {
			"", "1500m", 2000, constraints("ScaledByHPA", 0, container("app", 0, 400)), interval{400, 400}, interval{200, 1600}, 0,
		},
	} {
		delete(p.Annotations, kube.MaxCPUKey)
		if c.maxCPU != "" {
			p.Annotations[kube.MaxCPUKey] = c.maxCPU
		}
		p.Spec.Containers[0].Resources.Limits = podtest.Amounts("cpu", c.limit)
		b := BoundsOf(p, declared, c.allocatable, c.constraints)
		app, proxy := b.Containers["app"], b.Containers["proxy"]
		if (interval{app.Floor, app.Ceiling}) != c.app || (interval{proxy.Floor, proxy.Ceiling}) != c.proxy || b.Ceiling != c.ceiling || len(b.Containers) != 2 {
			t.Errorf("%s: %+v, want app %v, proxy %v, ceiling %v", name, b, c.app, c.proxy, c.ceiling)
		}
	}
}

// TestMaxRaise: the ceiling of a container is a multiple of its declared limit, 500m: that of its pod, else of its
// namespace, else 8. The node is smaller, or a floor higher.
func TestMaxRaise(t *testing.T) {
	high := cpu.Milli(1200)
	for name, c := range map[string]struct {
		pod         string
		namespace   int // 0: the namespace and the installation say none
		allocatable cpu.Milli
		floor       *cpu.Milli
		want        cpu.Milli
	}{
		"nothing is said":       {"", 0, 64_000, nil, 4000},
		"the namespace says it": {"", 2, 64_000, nil, 1000},
		"the pod comes first":   {"3", 2, 64_000, nil, 1500},
		"the pod says the same": {"8", 2, 64_000, nil, 4000},
		"not at all":            {"1", 0, 64_000, nil, 500},
		"no bound but the node": {"1000", 0, 64_005, nil, 64_000},
		"a floor is higher":     {"2", 0, 64_000, &high, 1200},
		"the node is smaller":   {"2", 0, 905, &high, 900},
	} {
		p := podtest.Shop()
		declared := kube.Limits(p)
		if c.pod != "" {
			p.Annotations[kube.MaxRaiseKey] = c.pod
		}
		of := NamespaceObjects{MaxRaise: c.namespace}
		got, _ := of.ConstraintsOf(p, declared)
		if (got.MaxRaise == nil) != (c.want == 4000) {
			t.Errorf("%s: constraints %+v: want none for the default", name, got)
		}
		got.Containers = []v1alpha1.ContainerConstraints{{Name: "app", Floor: c.floor}}
		if b := BoundsOf(p, declared, c.allocatable, &got).Containers["app"]; b.Ceiling != c.want {
			t.Errorf("%s: ceiling %v, want %v", name, b.Ceiling, c.want)
		}
	}
	p := podtest.Shop()
	p.Spec.InitContainers, p.Spec.Containers = nil, []corev1.Container{podtest.Container("app", "500m", "500m")}
	declared := kube.Limits(p)
	p.Spec.Containers[0].Resources.Limits = podtest.Amounts("cpu", "4")
	b := BoundsOf(p, declared, 64_000, &v1alpha1.Constraints{MaxRaise: ptr.To[int32](1)}).Containers["app"]
	if b.Floor != 510 || b.Ceiling != 510 {
		t.Errorf("what requests its declared limit, and was raised, stays from %v to %v: want the least that a resize sets", b.Floor, b.Ceiling)
	}
}

// TestNoDecreaseKeepsWhatIsDeclared: a pod that must not be decreased comes down to what was
// declared or to the floor of its HPA, the higher of them, and no further; below that it stays
// where it is.
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
		constraints := v1alpha1.Constraints{NoDecrease: string(reasons.ScaledByHPA)}
		if c.floor != nil {
			constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "app", Floor: c.floor}}
		}
		if got := BoundsOf(pod, declared, 4000, &constraints).Containers["app"].Floor; got != c.want {
			t.Errorf("%s: floor %v, want %v", name, got, c.want)
		}
	}
}

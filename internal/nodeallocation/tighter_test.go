package nodeallocation

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
)

// TestTightened: ceilings only fall, and nothing else of others is taken but NoDecrease.
func TestTightened(t *testing.T) {
	m := func(m cpu.Milli) *cpu.Milli { return &m }
	percent := int32(120)
	bounds := func(by, name string, floor, ceiling *cpu.Milli) *v1alpha1.Constraints {
		return &v1alpha1.Constraints{
			CeilingBy: by, Containers: []v1alpha1.ContainerConstraints{{Name: name, Floor: floor, Ceiling: ceiling}},
		}
	}
	raise := func(n int32) *v1alpha1.Constraints { return &v1alpha1.Constraints{MaxRaise: &n} }
	for name, c := range map[string]struct{ told, others, want *v1alpha1.Constraints }{
		"nothing":            {nil, nil, nil},
		"nothing that binds": {nil, &v1alpha1.Constraints{CoordinationPercent: &percent, IncreaseOnNeed: true}, nil},
		"none any more":      {bounds("LimitRange/a", "app", nil, m(700)), nil, bounds("LimitRange/a", "app", nil, m(700))},
		"a floor alone":      {nil, bounds("", "app", m(300), nil), nil},
		"of a container":     {bounds("a", "app", m(100), m(700)), bounds("b", "app", m(200), m(600)), bounds("b", "app", m(100), m(600))},
		"a higher one":       {bounds("a", "app", m(100), m(700)), bounds("b", "app", nil, m(800)), bounds("a", "app", m(100), m(700))},
		"of another container": {bounds("a", "app", nil, m(700)), bounds("b", "web", nil, m(600)), &v1alpha1.Constraints{
			CeilingBy:  "b",
			Containers: []v1alpha1.ContainerConstraints{{Name: "app", Ceiling: m(700)}, {Name: "web", Ceiling: m(600)}},
		}},
		"a lower raise":          {raise(9), raise(2), raise(2)},
		"a higher one of raises": {raise(2), raise(9), raise(2)},
		"the default is higher":  {raise(4), nil, raise(4)},
		"the default is lower":   {raise(9), nil, &v1alpha1.Constraints{}},
		"another reason": {
			&v1alpha1.Constraints{NoDecrease: "ScaledByHPA", Ceiling: m(700)},
			&v1alpha1.Constraints{NoDecrease: "UnhealthyAfterDecrease"},
			&v1alpha1.Constraints{NoDecrease: "ScaledByHPA", Ceiling: m(700)},
		},
	} {
		if got := tightened(c.told, c.others); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

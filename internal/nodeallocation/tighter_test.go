package nodeallocation

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
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
		"weights of one":  {nil, &v1alpha1.Constraints{AllowWeights: true}, nil},
		"weights no more": {&v1alpha1.Constraints{AllowWeights: true, Ceiling: m(700)}, nil, &v1alpha1.Constraints{Ceiling: m(700)}},
		"weights of the other no more": {
			&v1alpha1.Constraints{AllowWeights: true, Ceiling: m(700)}, &v1alpha1.Constraints{Ceiling: m(700)},
			&v1alpha1.Constraints{Ceiling: m(700)},
		},
		"kept from weights by the other": {
			&v1alpha1.Constraints{AllowWeights: true}, &v1alpha1.Constraints{WeightsReason: "ScaledByHPA"},
			&v1alpha1.Constraints{WeightsReason: "ScaledByHPA"},
		},
		"weights of both": {
			&v1alpha1.Constraints{AllowWeights: true}, &v1alpha1.Constraints{AllowWeights: true},
			&v1alpha1.Constraints{AllowWeights: true},
		},
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

// TestSuspensionEndsOldOptIns: what is told of a pod that cannot be read stays, but class and weight end with a pause.
func TestSuspensionEndsOldOptIns(t *testing.T) {
	told := Told{
		"a": {UID: "a", Constraints: &v1alpha1.Constraints{AllowWeights: true, NoDecrease: "ScaledByHPA"}},
		"b": {UID: "b", Constraints: &v1alpha1.Constraints{WeightsReason: "ScaledByHPA"}},
		"c": {UID: "c"},
	}
	for suspended, want := range map[reasons.Reason]v1alpha1.Constraints{
		"":             {AllowWeights: true, NoDecrease: "ScaledByHPA"},
		reasons.Paused: {WeightsReason: "Paused", NoDecrease: "ScaledByHPA"},
	} {
		got := told.Of([]types.UID{"a", "b", "c", "unknown"}, suspended)
		if len(got) != 3 || !equality.Semantic.DeepEqual(got[0].Constraints, &want) {
			t.Errorf("%q: %+v, want %+v", suspended, got, want)
		}
		if why := got[1].Constraints.WeightsReason; why != "ScaledByHPA" || got[2].Constraints != nil {
			t.Errorf("%q: the others are told %q and %+v", suspended, why, got[2].Constraints)
		}
	}
	if !told["a"].Constraints.AllowWeights {
		t.Error("what is told has changed")
	}
}

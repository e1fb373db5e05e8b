package kube

import (
	"cmp"
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
)

// Milli is a quantity in thousandths of a core, rounded up as Kubernetes does; 0 where it is negative.
func Milli(q resource.Quantity) cpu.Milli {
	switch cores := q.AsApproximateFloat64(); {
	case cores >= math.MaxInt32/1000:
		return math.MaxInt32
	case cores <= 0:
		return 0
	}
	return cpu.Milli(q.MilliValue())
}

// largest is what amounts of tenants are bounded by: the API server stores amounts such as 1e20000000, of which
// Quantity.Add and Cmp compute every digit.
const largest = 1e18

// Bounded are these amounts, each at most 1e18.
func Bounded(amounts corev1.ResourceList) corev1.ResourceList {
	var bounded corev1.ResourceList
	for name, q := range amounts {
		if q.AsApproximateFloat64() <= largest {
			continue
		}
		if bounded == nil {
			bounded = maps.Clone(amounts)
		}
		bounded[name] = *resource.NewQuantity(largest, resource.DecimalSI)
	}
	if bounded == nil {
		return amounts
	}
	return bounded
}

// Compare is a.Cmp(b), where amounts of 1e18 and more are the same.
func Compare(a, b resource.Quantity) int {
	if x, y := a.AsApproximateFloat64(), b.AsApproximateFloat64(); max(math.Abs(x), math.Abs(y)) >= largest {
		return cmp.Compare(min(x, largest), min(y, largest))
	}
	return a.Cmp(b)
}

// Quantity is an amount as Kubernetes writes it, canonical in milli form below a core.
func Quantity(m cpu.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(m), resource.DecimalSI)
}

// MilliRoundedDown is a quantity in whole thousandths, rounded down: what must not be exceeded.
func MilliRoundedDown(q resource.Quantity) cpu.Milli {
	m := Milli(q)
	if back := Quantity(m); m > 0 && Compare(back, q) > 0 {
		m--
	}
	return m
}

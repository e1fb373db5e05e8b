package kube

import (
	"cmp"
	"math"

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

// Compare is a.Cmp(b), and approximate where one of them is 1e18 or more: the API server stores amounts such as
// 1e1000000000, of which Cmp computes every digit.
func Compare(a, b resource.Quantity) int {
	const huge = 1e18
	if x, y := a.AsApproximateFloat64(), b.AsApproximateFloat64(); max(math.Abs(x), math.Abs(y)) >= huge {
		return cmp.Compare(x, y)
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

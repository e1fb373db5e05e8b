package kube

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
)

// Milli is a quantity in thousandths of a core, rounded up as Kubernetes does.
func Milli(q resource.Quantity) cpu.Milli {
	if q.Cmp(largest) >= 0 {
		return math.MaxInt32
	}
	return cpu.Milli(q.MilliValue())
}

var largest = resource.MustParse("2147483")

// Quantity is an amount as Kubernetes writes it, canonical in milli form below a core.
func Quantity(m cpu.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(m), resource.DecimalSI)
}

// MilliRoundedDown is a quantity in whole thousandths, rounded down: what must not be exceeded.
func MilliRoundedDown(q resource.Quantity) cpu.Milli {
	m := Milli(q)
	if back := Quantity(m); m > 0 && back.Cmp(q) > 0 {
		m--
	}
	return m
}

package kube

import (
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels or annotations that bound what MBCAS may do to pods. On a Namespace they hold for all its pods.
const (
	// MaxFactorKey on a Namespace or a Pod is the highest CPU limit of a container, as a multiple of its
	// declared limit; at least 1. MinFactorKey is the lowest; at most 1.
	MaxFactorKey = "mbcas.io/max-declared-factor"
	MinFactorKey = "mbcas.io/min-declared-factor"
	// CanaryKey on a Namespace is the percentage of a workload's replicas that are resized first.
	CanaryKey = "mbcas.io/canary-percent"
	// NoChangeKey as annotation of a Namespace lists the windows of time in which the market changes no limit.
	NoChangeKey = "mbcas.io/no-change-windows"
)

// Factors bound the CPU limit of each container by multiples of its declared limit; 0: no bound.
type Factors struct{ Max, Min float64 }

// Validate says everything that is wrong.
func (f Factors) Validate() error {
	var errs []error
	if f.Max != 0 && !(f.Max >= 1 && f.Max <= maxFactor) {
		errs = append(errs, fmt.Errorf("max-declared-factor is %v: want 0 (no bound), or 1 to %d", f.Max, maxFactor))
	}
	if f.Min != 0 && !(f.Min > 0 && f.Min <= 1) {
		errs = append(errs, fmt.Errorf("min-declared-factor is %v: want 0 (no bound), or more than 0 and at most 1", f.Min))
	}
	return errors.Join(errs...)
}

const maxFactor = 1000

// FactorsOf are the bounds that a Namespace or a Pod sets. A value that cannot be read counts as 1, the
// strictest: the limit then does not leave the declared one on that side. The error names it.
func FactorsOf(o metav1.Object) (Factors, error) {
	high, errHigh := factorOf(o, MaxFactorKey, func(f float64) bool { return f >= 1 && f <= maxFactor }, "a multiple such as \"3\", 1 to 1000")
	low, errLow := factorOf(o, MinFactorKey, func(f float64) bool { return f > 0 && f <= 1 }, "a multiple such as \"0.5\", more than 0 and at most 1")
	return Factors{high, low}, errors.Join(errHigh, errLow)
}

func factorOf(o metav1.Object, key string, valid func(float64) bool, want string) (float64, error) {
	text, ok := textOf(o, key)
	if !ok {
		return 0, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && valid(f) {
		return f, nil
	}
	return 1, fmt.Errorf("%s of %s is %q: want %s; until then it counts as 1", key, o.GetName(), text, want)
}

// CanaryPercent is the percentage of a workload's replicas that a namespace has resized first; 100 where it says
// nothing. A value that cannot be read counts as 1, the strictest, and the error names it.
func CanaryPercent(namespace metav1.Object) (int, error) {
	text, ok := textOf(namespace, CanaryKey)
	if !ok {
		return 100, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= 100 {
		return n, nil
	}
	return 1, fmt.Errorf("%s of namespace %s is %q: want a percentage such as \"20\", 1 to 100; until then it counts as 1",
		CanaryKey, namespace.GetName(), text)
}

// NoChangeWindows is the text of the windows of a namespace; "": none.
func NoChangeWindows(namespace metav1.Object) string { return namespace.GetAnnotations()[NoChangeKey] }

// NamespaceSettings is the part of a Namespace that decisions depend on.
func NamespaceSettings(o metav1.Object) any {
	a := o.GetAnnotations()
	part := []any{o.GetLabels()}
	for _, key := range []string{BelowDeclaredKey, StartupBoostKey, MaxFactorKey, MinFactorKey, CanaryKey, NoChangeKey} {
		part = append(part, a[key])
	}
	return part
}

package demandsignal

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/demandsignal/control"
	"github.com/mbcas/mbcas/internal/kube"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// TestAggregate: one sample of many values.
func TestAggregate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods := map[string]bool{"a": true, "b": true, "c": true}
	v := func(pod string, value float64, age time.Duration) Value {
		return Value{pod, value, now.Add(-age)}
	}
	of, series, perPod := kube.Metric{Type: v1alpha1.PodsMetric}, kube.Metric{Type: v1alpha1.ExternalMetric}, kube.Metric{Type: v1alpha1.ExternalMetric, PerPod: true}
	const s, old = time.Second, time.Hour
	for name, tt := range map[string]struct {
		m      kube.Metric
		values []Value
		want   float64
		age    time.Duration
		none   bool
	}{
		"the mean of pods":               {of, []Value{v("a", 1, s), v("b", 3, 2*s), v("c", 5, s)}, 3, 2 * s, false},
		"of pods that tell":              {of, []Value{v("a", 1, s), v("b", 3, s)}, 2, s, false},
		"of its own":                     {of, []Value{v("a", 1, s), v("x", 99, s)}, 1, s, false},
		"none of its own":                {of, []Value{v("x", 99, s)}, 0, 0, true},
		"without the stale ones":         {of, []Value{v("a", 9, old), v("b", 3, s), v("c", 99, old)}, 3, s, false},
		"all stale: the newest speaks":   {of, []Value{v("a", 9, 2*old), v("b", 3, old), v("c", 3, 3*old)}, 5, old, false},
		"a pod that measured nothing":    {of, []Value{v("a", 0, s), v("b", 4, s)}, 2, s, false},
		"a pod below zero":               {of, []Value{v("a", -1, s), v("b", 4, s)}, math.NaN(), s, false},
		"the sum of series":              {series, []Value{v("", 1, s), v("", 3, s)}, 4, s, false},
		"the sum of series, for one pod": {perPod, []Value{v("", 1, s), v("", 5, s)}, 2, s, false},
		"an object that is called a pod": {series, []Value{v("x", 1, s)}, 1, s, false},
	} {
		r, some := aggregate(control.DefaultConfig(), tt.m, tt.values, pods, now)
		same := math.Abs(r.Value-tt.want) < 1e-9 || math.IsNaN(r.Value) && math.IsNaN(tt.want)
		if some == tt.none || some && (!same || now.Sub(r.At) != tt.age) {
			t.Errorf("%s: %+v (%v), want %v from %v ago", name, r, some, tt.want, tt.age)
		}
	}
}

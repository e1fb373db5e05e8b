package traffic

import (
	"cmp"
	"math"
	"slices"
)

// Quantile is the smallest of values that at least the share q of them does not exceed (nearest
// rank); ok is false where there are none. It sorts values.
func Quantile[T cmp.Ordered](values []T, q float64) (v T, ok bool) {
	if len(values) == 0 {
		return v, false
	}
	slices.Sort(values)
	rank := int(math.Ceil(q*float64(len(values)))) - 1
	return values[max(0, min(rank, len(values)-1))], true
}

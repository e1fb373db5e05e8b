package cli

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mbcas/mbcas/cpu"
)

// orders are the ways to sort a list; amounts put the largest first.
var orders = map[string]func([]Standing){
	"name":  func(rows []Standing) { slices.SortFunc(rows, byPodName) },
	"limit": func(rows []Standing) { descending(rows, func(s Standing) cpu.Milli { return s.Limit }) },
	"use": func(rows []Standing) {
		descending(rows, func(s Standing) cpu.Milli {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Usage
		})
	},
	"demand": func(rows []Standing) {
		descending(rows, func(s Standing) cpu.Milli {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Demand
		})
	},
	"throttled": func(rows []Standing) {
		descending(rows, func(s Standing) int32 {
			if s.Figures == nil {
				return -1
			}
			return s.Figures.Throttled
		})
	},
}

func sortKeys() []string { return slices.Sorted(maps.Keys(orders)) }

func byPodName(a, b Standing) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
}

func descending[T cmp.Ordered](rows []Standing, value func(Standing) T) {
	slices.SortFunc(rows, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), byPodName(a, b))
	})
}

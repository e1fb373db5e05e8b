package main

import (
	"fmt"
	"slices"
	"strings"
)

// The tiers. Each includes the first.
const (
	tierTest = "test" // every package, the API server, one end-to-end path
	tierCI   = "ci"   // the checks and the tier test
	tierAll  = "all"  // every suite but the checks
)

// choose returns the suites to run, in order.
func (r *repo) choose(o options) ([]suite, error) {
	all := r.suites()
	if o.only != "" {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == o.only })
		if i < 0 {
			return nil, fmt.Errorf("no suite %q; there are %s", o.only, names(all))
		}
		return all[i : i+1], nil
	}
	switch o.tier {
	case tierTest:
		return tier(all, func(name string) bool { return name == "unit" || name == "path" }), nil
	case tierCI:
		return tier(all, func(name string) bool { return name == "check" || name == "unit" || name == "path" }), nil
	case tierAll:
		return tier(all, func(name string) bool { return name != "check" }), nil
	}
	return nil, fmt.Errorf("no tier %q; there are %s, %s and %s", o.tier, tierTest, tierCI, tierAll)
}

// tier returns the suites of a tier in their order.
func tier(all []suite, has func(name string) bool) []suite {
	return slices.DeleteFunc(all, func(s suite) bool { return !has(s.name) })
}

func names(all []suite) string {
	var list []string
	for _, s := range all {
		list = append(list, s.name)
	}
	return strings.Join(list, " ")
}

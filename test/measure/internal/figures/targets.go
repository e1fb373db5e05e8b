package figures

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Check refuses a script with a figure or chart that does not exist.
func Check(s *script.Script) error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	where := func(at, figure string, w script.Where) {
		ofUsage := strings.HasPrefix(figure, "usage")
		need(ofUsage || w.Hog == "", "%s: figure %q is of services: want no hog", at, figure)
		need(!ofUsage || w.Workload() != "" && w.Phase != "", "%s: figure %q: want a service or a hog, and a phase",
			at, figure)
	}
	for _, r := range s.Rows {
		need(numbers[r.Figure] != nil, "row %s: figure %q is none of %s", r.Title, r.Figure, names(numbers))
		where("row "+r.Title, r.Figure, r.Where)
	}
	for _, t := range s.Targets {
		where("target "+t.Title, t.Figure, t.Where)
		bounds, wanted := 0, 0 // a number has one, a list none
		for _, b := range []*float64{t.AtMost, t.AtLeast, t.Below, t.Above} {
			if b != nil {
				bounds++
			}
		}
		if numbers[t.Figure] != nil {
			wanted = 1
		}
		need(wanted == 1 || nevers[t.Figure] != nil, "target %s: figure %q is none of %s, %s",
			t.Title, t.Figure, names(numbers), names(nevers))
		need(bounds == wanted, "target %s: %d bounds, want %d", t.Title, bounds, wanted)
		if t.Than != nil {
			need(wanted == 1 && numbers[t.Than.Figure] != nil, "target %s: than: figure %q is none of %s",
				t.Title, t.Than.Figure, names(numbers))
			where("target "+t.Title+": than", t.Than.Figure, t.Than.Where)
		}
	}
	for _, c := range s.Charts {
		need(charts[c.Kind] != nil, "chart %s: kind %q is none of %s", c.Title, c.Kind, names(charts))
	}
	return errors.Join(errs...)
}

func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// Result compares a figure with a target.
type Result struct {
	Title  string `json:"what"`
	Got    string `json:"got"`
	Target string `json:"target"`
	// Met is null where the figure was not measured.
	Met *bool `json:"met"`
}

const notMeasured = "not measured"

// results compares the figures with the script's targets.
func (f *Facts) results() (all []Result) {
	for _, t := range f.Script.Targets {
		r := Result{Title: t.Title, Got: notMeasured, Target: "none"}
		if never := nevers[t.Figure]; never != nil {
			if found, measured := never(f); measured {
				r.Met, r.Got = new(len(found) == 0), "none"
				if len(found) > 0 {
					r.Got = fmt.Sprintf("%d, first: %s", len(found), found[0])
				}
			}
		} else {
			r.number(t, f.value(t))
		}
		if t.Full && !f.Setup.Full {
			r.Met, r.Got = nil, notMeasured
		}
		all = append(all, r)
	}
	return all
}

// value is the figure of a target: of its run, or as a share of the figure to compare with.
func (f *Facts) value(t script.Target) *float64 {
	q := query{Where: t.Where, run: f.run(t.Run), over: f.run(t.Over), phases: t.Phases}
	figure, got := numbers[t.Figure], numbers[t.Figure](f, q)
	switch {
	case got == nil:
		return nil
	case t.Than != nil:
		figure, q.Where = numbers[t.Than.Figure], t.Than.Where
	case t.Over != "" && len(t.Phases) == 0:
		q.run = q.over
	default:
		return got
	}
	if than := figure(f, q); than != nil && *than > 0 {
		return new(*got / *than)
	}
	return nil
}

// number compares a value with the bound of a target.
func (r *Result) number(t script.Target, got *float64) {
	sign, bound, met := ">", t.Above, func(v, bound float64) bool { return v > bound }
	switch {
	case t.AtLeast != nil:
		sign, bound, met = ">=", t.AtLeast, func(v, bound float64) bool { return v >= bound }
	case t.AtMost != nil:
		sign, bound, met = "<=", t.AtMost, func(v, bound float64) bool { return v <= bound }
	case t.Below != nil:
		sign, bound, met = "<", t.Below, func(v, bound float64) bool { return v < bound }
	}
	r.Target = strings.TrimSpace(fmt.Sprintf("%s %g %s", sign, *bound, t.Unit))
	if got != nil {
		r.Got, r.Met = strings.TrimSpace(fmt.Sprintf("%.3g %s", *got, t.Unit)), new(met(*got, *bound))
	}
}

// Judged is how many targets are met, of those whose figure was measured.
func (s Summary) Judged() (met, judged int) {
	for _, c := range s.Checks {
		if c.Met != nil {
			judged++
			if *c.Met {
				met++
			}
		}
	}
	return met, judged
}

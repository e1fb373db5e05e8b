package figures

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/test/internal/verdict"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Check refuses a script with a figure or chart that does not exist.
func Check(s *script.Script) error {
	var errs []error
	for _, r := range s.Rows {
		if numbers[r.Figure] == nil {
			errs = append(errs, fmt.Errorf("row %s: figure %q is none of %s", r.Title, r.Figure, names(numbers)))
		}
	}
	for _, t := range s.Targets {
		bounds := 0
		for _, b := range []*float64{t.AtMost, t.Below, t.Above} {
			if b != nil {
				bounds++
			}
		}
		switch {
		case numbers[t.Figure] == nil && nevers[t.Figure] == nil:
			errs = append(errs, fmt.Errorf("target %s: figure %q is none of %s, %s", t.Title, t.Figure, names(numbers), names(nevers)))
		case numbers[t.Figure] != nil && bounds != 1 || nevers[t.Figure] != nil && bounds != 0:
			errs = append(errs, fmt.Errorf("target %s: %d bounds; a figure with a value has one, a list has none", t.Title, bounds))
		}
	}
	for _, c := range s.Charts {
		if charts[c.Kind] == nil {
			errs = append(errs, fmt.Errorf("chart %s: kind %q is none of %s", c.Title, c.Kind, names(charts)))
		}
	}
	return errors.Join(errs...)
}

func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// checks compares the figures with the script's targets.
func (f *Facts) checks() (all []verdict.Check) {
	for _, t := range f.Script.Targets {
		if never := nevers[t.Figure]; never != nil {
			found, measured := never(f)
			all = append(all, verdict.Never(t.Title, measured, found, "none"))
			continue
		}
		q := query{Where: t.Where, run: f.run(t.Run), over: f.run(t.Over), phases: t.Phases}
		got, form := numbers[t.Figure](f, q), "%.4g"
		if t.Unit != "" {
			form += " " + strings.ReplaceAll(t.Unit, "%", "%%")
		}
		unit := strings.TrimSuffix(" "+t.Unit, " ")
		switch {
		case t.Over != "" && len(t.Phases) == 0:
			than := numbers[t.Figure](f, query{Where: t.Where, run: q.over})
			all = append(all, verdict.Ratio(t.Title, got, than, *t.AtMost, fmt.Sprintf("<= %g", *t.AtMost)))
		case t.AtMost != nil:
			all = append(all, verdict.AtMost(t.Title, got, form, *t.AtMost, fmt.Sprintf("<= %g%s", *t.AtMost, unit)))
		case t.Below != nil:
			all = append(all, verdict.Below(t.Title, got, form, *t.Below, fmt.Sprintf("< %g%s", *t.Below, unit)))
		default:
			all = append(all, verdict.Above(t.Title, got, form, *t.Above, fmt.Sprintf("> %g%s", *t.Above, unit)))
		}
	}
	return all
}

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/test/evaluation/internal/results"
)

// having are the repeats of a row's cells with this verdict.
func (r Row) having(v results.Verdict) (repeats []int) {
	for _, c := range r.Control.Promise {
		if c.Verdict == v {
			repeats = append(repeats, c.Repeat)
		}
	}
	return repeats
}

// unchanged is in how many cells of a row every limit was always within a tenth of the final one.
func (r Row) unchanged() (cells int) {
	for _, c := range r.Control.Promise {
		if c.Verdict == results.Kept && c.After == 0 {
			cells++
		}
	}
	return cells
}

// converged is how long the slowest pod of a row took.
func converged(r Row) string {
	switch {
	case len(r.Cells) == 0:
		return "-"
	case r.Control.Converged == 0:
		return "no change"
	}
	return fmt.Sprintf("%.0f s", r.Control.Converged)
}

// promised says for each cell of a row whether its limits converged in time.
func promised(r Row) string {
	var all []string
	for _, v := range []results.Verdict{results.Kept, results.Missed, results.NotShown} {
		switch repeats := r.having(v); {
		case len(repeats) == 0:
		case len(repeats) == len(r.Cells):
			return fmt.Sprintf("%s in all %d", v, len(repeats))
		default:
			text := strings.Trim(fmt.Sprint(repeats), "[]")
			all = append(all, fmt.Sprintf("%s in repeat %s", v, strings.ReplaceAll(text, " ", ", ")))
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, "; ")
}

// Convergence says whether the limits of MBCAS converge in time.
func (p Page) Convergence() string {
	slowest, at, cells, kept, long, still := 0.0, "", 0, 0, 0, 0
	var broken []string
	for _, s := range p.Sections {
		for _, r := range s.Rows {
			if !r.Policy.MBCAS || len(r.Cells) == 0 {
				continue
			}
			cells, kept = cells+len(r.Cells), kept+len(r.having(results.Kept))
			if (s.Length - s.Event).Seconds() >= results.Promise+results.Settled {
				long += len(r.Cells)
			}
			still += r.unchanged()
			for _, v := range []results.Verdict{results.Missed, results.NotShown} {
				if n := len(r.having(v)); n > 0 {
					broken = append(broken, fmt.Sprintf("%s in %d of %d of %q, %s",
						v, n, len(r.Cells), s.Title, r.Policy.Title))
				}
			}
			if r.Control.Converged > slowest {
				slowest, at = r.Control.Converged, fmt.Sprintf(" (%s, %s)", s.Title, r.Policy.Title)
			}
		}
	}
	slices.Sort(broken) // what was missed comes first
	text := fmt.Sprintf("The promise is that each pod's limit is within a tenth of its final value less than %d s "+
		"after the load has changed.", results.Promise)
	if cells == 0 {
		return "not measured yet. " + text
	}
	text = fmt.Sprintf("kept in %d of %d cells with MBCAS, of which %d were watched for at least %d s after the "+
		"event; the slowest pod took %.0f s%s. %s", kept, cells, long,
		results.Promise+results.Settled, slowest, at, text)
	if len(broken) > 0 {
		text += " It was " + strings.Join(broken, "; ") + "."
	}
	if still > 0 { // such cells keep the promise whether MBCAS acts or not
		text += fmt.Sprintf(" In %d of the cells no limit differed by more than a tenth from that at the end.", still)
	}
	return text
}

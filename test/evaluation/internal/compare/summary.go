package compare

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/test/evaluation/internal/statistics"
)

// late is the generator's own delay, in ms, above which its latencies say little.
const late = 10

// Summary compares the two modes.
type Summary struct {
	// P99 and Throttled are the figure under enforce over that under the baseline: below 1 is better with MBCAS. nil:
	// there is no ratio, and the note says why.
	P99       *statistics.Ratio `json:"p99_ratio"`
	Throttled *statistics.Ratio `json:"throttled_ratio"`
	Notes     []string          `json:"notes,omitempty"`
}

// Summarise compares the pairs that are complete.
func Summarise(runs []Run, baseline string) (s Summary) {
	with, without := pairs(runs, baseline)
	ratio := func(what string, of func(Run) float64) *statistics.Ratio {
		r, ok := statistics.Paired(values(with, of), values(without, of))
		if !ok {
			s.Notes = append(s.Notes, what+" has no ratio: it wants two complete pairs, and no figure of 0")
			return nil
		}
		return &r
	}
	s.P99 = ratio("p99", func(r Run) float64 { return r.P99 })
	all := slices.Concat(with, without)
	if i := slices.IndexFunc(all, func(r Run) bool { return r.Throttled == nil }); i >= 0 {
		s.Notes = append(s.Notes, "throttling is unknown: "+all[i].Unknown)
	} else {
		s.Throttled = ratio("throttling", func(r Run) float64 { return *r.Throttled })
	}
	s.note(with, without)
	return s
}

// note says what speaks against the figures.
func (s *Summary) note(with, without []Run) {
	same, moved, slow, unserved := true, false, false, 0
	for i := range with {
		same = same && with[i].LimitM == without[i].LimitM
		moved = moved || without[i].LimitM != without[0].LimitM || with[i].Pods != without[0].Pods ||
			without[i].Pods != without[0].Pods
		slow = slow || with[i].LateP99 > late || without[i].LateP99 > late
		unserved += with[i].Unserved + without[i].Unserved
	}
	for _, x := range []struct {
		is   bool
		text string
	}{
		{
			same && len(with) > 0,
			"limits were the same at the end of both runs of every pair: either nothing competed for CPU, or MBCAS " +
				"does not manage these pods (see: kubectl mbcas doctor); the ratios are noise",
		},
		{
			moved,
			"pods or limits without MBCAS differed between pairs: pods came or went, or limits had no time to settle",
		},
		{
			slow,
			fmt.Sprintf("the generator was late by more than %d ms (p99): its machine is too slow for the rate", late),
		},
		{unserved > 0, fmt.Sprintf("%d requests were not served, and count as the timeout", unserved)},
	} {
		if x.is {
			s.Notes = append(s.Notes, x.text)
		}
	}
}

// pairs are the runs of complete pairs, by mode, in the order of the pairs.
func pairs(runs []Run, baseline string) (with, without []Run) {
	of := func(pair int, mode string) int {
		return slices.IndexFunc(runs, func(r Run) bool { return r.Pair == pair && r.Mode == mode })
	}
	for _, r := range runs {
		if r.Mode != Enforce {
			continue
		}
		if i := of(r.Pair, baseline); i >= 0 {
			with, without = append(with, r), append(without, runs[i])
		}
	}
	return with, without
}

func values(runs []Run, of func(Run) float64) (all []float64) {
	for _, r := range runs {
		all = append(all, of(r))
	}
	return all
}

// Lines are the summary as text.
func (s Summary) Lines(baseline string) (lines []string) {
	for _, x := range []struct {
		what  string
		ratio *statistics.Ratio
	}{{"p99", s.P99}, {"throttled periods", s.Throttled}} {
		if r := x.ratio; r != nil {
			lines = append(lines, fmt.Sprintf("%s: enforce over %s is %.3g [%.3g, %.3g] (%d pairs): %s",
				x.what, baseline, r.Mean, r.Low, r.High, r.N, verdict(*r)))
		}
	}
	for _, n := range s.Notes {
		lines = append(lines, "note: "+n)
	}
	return lines
}

func verdict(r statistics.Ratio) string {
	switch {
	case r.High < 1:
		return "lower with MBCAS"
	case r.Low > 1:
		return "higher with MBCAS"
	}
	return "no difference is shown"
}

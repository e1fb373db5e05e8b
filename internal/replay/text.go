package replay

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/mbcas/mbcas/internal/record"
)

// ErrOtherResults is the error of a replay with a result that is another than the recorded one; the text names the first.
var ErrOtherResults = errors.New("the replay gives other results than those recorded")

// Compare runs a recording again and compares the results. The text tells what was compared; the error is ErrOtherResults, or
// says what could not be read.
func Compare(rec *record.Recording) (text string, err error) {
	sum, err := Play(rec, func(*Frame) error { return nil })
	if err != nil {
		return "", err
	}
	if sum.First != nil {
		err = ErrOtherResults
	}
	return sum.text(rec.About), err
}

func (s Summary) text(about record.About) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s, MBCAS %s on %s, from %s to %s.\n", printable(about.Node), printable(about.Version), printable(about.Arch),
		s.From.UTC().Format("2006-01-02 15:04:05"), s.To.UTC().Format("15:04:05 UTC"))
	fmt.Fprintf(&b, "%s, %s, %s and %s.\n", count(s.Rounds, "round"), count(s.Looks, "look"), count(s.Joins, "join"), count(s.Decisions, "decision"))
	if s.Missing > 0 {
		fmt.Fprintf(&b, "The recording no longer has %v of this time.\n", s.Missing.Round(time.Second))
	}
	if s.First == nil {
		b.WriteString("Every result is the one recorded.\n")
		return b.String()
	}
	fmt.Fprintf(&b, "%d results differ from those recorded. The first: %v.\n", s.Others, s.First)
	return b.String()
}

// printable replaces control characters: a recording of others may hold what a terminal obeys.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

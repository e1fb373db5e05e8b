// Package format writes counts, lists, tables and wrapped sentences for a terminal.
package format

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mbcas/mbcas/cpu"
)

// Streams are where a command writes: answers to Out, progress and warnings to Err.
type Streams struct {
	Out, Err io.Writer
	// Screen is the terminal that Out is, as large as it is at that time; nil: Out is none.
	Screen func() Screen
}

// Screen is the size of a terminal in characters.
type Screen struct{ Width, Height int }

// Age writes a duration as kubectl does: 12s, 4m30s, 3h.
func Age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Plural counts things: "1 pod", "2 pods".
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Are is Plural with its verb: "1 pod is", "2 pods are".
func Are(n int, thing string) string {
	if n == 1 {
		return Plural(n, thing) + " is"
	}
	return Plural(n, thing) + " are"
}

// Join lists words: "a, b and c".
func Join(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Few lists up to three names and counts the rest.
func Few(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// OneLine replaces each run of white space by a single space.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Printable replaces control characters, all but the ends of lines: a recording of others may hold what a terminal obeys.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Percent is a cell of a table; "" for nil.
func Percent(p *int32) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%d%%", *p)
}

// CPU is a cell of a table; "" for 0.
func CPU(m cpu.Milli) string {
	if m == 0 {
		return ""
	}
	return m.String()
}

// Wrap breaks a sentence into lines of at most width characters. All but the first are indented.
func Wrap(s string, width int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			b.WriteString("\n  ")
			line = 2
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

// Scope is the set of pods that a command reads.
type Scope struct{ Namespace, Node, Selector string }

func (s Scope) String() string {
	if s.Namespace == "" {
		return "all namespaces" + s.restriction()
	}
	return "namespace " + s.Namespace + s.restriction()
}

// None is the scope after "no pods in".
func (s Scope) None() string {
	if s.Namespace == "" {
		return "any namespace" + s.restriction()
	}
	return s.String()
}

func (s Scope) restriction() (text string) {
	if s.Node != "" {
		text += " on node " + s.Node
	}
	if s.Selector != "" {
		text += " with " + s.Selector
	}
	return text
}

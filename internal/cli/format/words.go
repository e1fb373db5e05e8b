// Package format writes counts, lists, tables and wrapped sentences for a terminal.
package format

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Streams are where a command writes: answers to Out, progress and warnings to Err.
type Streams struct{ Out, Err io.Writer }

// Few lists up to three names and counts the rest.
func Few(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// Wrap breaks a sentence into lines of at most width characters, the later ones indented.
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

func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func Percent(p *int32) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%d%%", *p)
}

func Amount(m cpu.Milli) string {
	if m == 0 {
		return ""
	}
	return m.String()
}

// ModeWord is a mode for people.
func ModeWord(m kube.Mode) string {
	if m == "" {
		return "unknown"
	}
	return string(m)
}

// Join joins words: a, b and c.
func Join(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Age writes a duration as kubectl does: 12s, 4m30s, 3h.
func Age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Are counts things that are something: "1 pod is", "2 pods are".
func Are(n int, thing string) string {
	if n == 1 {
		return Plural(n, thing) + " is"
	}
	return Plural(n, thing) + " are"
}

// Plural counts things: "1 pod", "2 pods".
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

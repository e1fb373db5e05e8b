package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File  string
	Line  int    // 0: no line of the file
	Field string // such as pods[0].load.requests.rate; empty: the whole file
	Text  string
}

func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d", p.Line)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Text
}

// Problems is everything that is wrong with a file, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// report collects problems.
type report struct {
	file  string
	lines map[string]int // by field
	found Problems
}

// add notes a problem, unless one with the same field or one that holds it is known: it would
// follow from that.
func (r *report) add(field, format string, args ...any) {
	if !r.holds(field) {
		r.note(field, r.line(field), format, args...)
	}
}

// holds says whether a problem with a field, or with one that holds it, is known.
func (r *report) holds(field string) bool {
	return slices.ContainsFunc(r.found, func(p Problem) bool {
		rest, inside := strings.CutPrefix(field, p.Field)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (r *report) note(field string, line int, format string, args ...any) {
	r.found = append(r.found, Problem{r.file, line, field, fmt.Sprintf(format, args...)})
}

// line is where a field stands, or what it would stand in.
func (r *report) line(field string) int {
	for {
		if line, ok := r.lines[field]; ok {
			return line
		}
		i := strings.LastIndexAny(field, ".[")
		if i < 0 {
			return r.lines[""]
		}
		field = field[:i]
	}
}

func (r *report) err() error {
	if len(r.found) == 0 {
		return nil
	}
	slices.SortStableFunc(r.found, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r.found
}

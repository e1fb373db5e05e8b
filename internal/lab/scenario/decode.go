package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mbcas/mbcas/cpu"
)

// decode fills s from YAML, reports what does not fit, and notes which line each field is in. It is
// false where there are no fields at all.
func (r *report) decode(data []byte, s *Scenario) bool {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.add("", "the file is empty; write a scenario into it")
		return false
	case err != nil:
		r.syntax(err)
		return false
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.add("", "the file has more than one document; a file is one scenario")
	}
	r.value(doc.Content[0], "", reflect.ValueOf(s).Elem(), rules{})
	return doc.Content[0].Kind == yaml.MappingNode
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports what the YAML parser says.
func (r *report) syntax(err error) {
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	r.note("", line, "this is not YAML: %s", text)
}

// value fills one value. The types of fields are those of Scenario and what is in it. A value that
// does not follow the rules is left out.
func (r *report) value(n *yaml.Node, field string, into reflect.Value, want rules) {
	if r.lines[field] == 0 {
		r.lines[field] = n.Line
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.add(field, "anchors and aliases are not read; write the value where it is needed")
		return
	}
	if n.Tag == "!!null" {
		r.add(field, "it has no value; write one, or leave the field out")
		return
	}
	switch v := into.Addr().Interface().(type) {
	case *cpu.Milli:
		r.quantity(n, field, v)
	case *time.Duration:
		r.duration(n, field, v)
	case *Profile:
		r.profile(n, field, v, want)
		return
	default:
		switch into.Kind() {
		case reflect.Pointer:
			into.Set(reflect.New(into.Type().Elem()))
			r.value(n, field, into.Elem(), want)
			return
		case reflect.Struct:
			r.fields(n, field, into, want)
		case reflect.Slice:
			r.list(n, field, into)
		default:
			r.scalar(n, field, into)
		}
	}
	if !r.holds(field) && !want.allow(into) {
		r.add(field, "%s, not %s", want.text(), shown(n))
		into.SetZero()
	}
}

// profile fills a profile, whose rules bound the values in it.
func (r *report) profile(n *yaml.Node, field string, into *Profile, want rules) {
	if n.Kind != yaml.ScalarNode {
		r.fields(n, field, reflect.ValueOf(into).Elem(), want)
		return
	}
	into.Constant = new(float64)
	want.min = "0"
	r.value(n, field, reflect.ValueOf(into.Constant).Elem(), want)
}

// fields fills a struct. Its rules bound fields whose rules say so.
func (r *report) fields(n *yaml.Node, field string, into reflect.Value, outer rules) {
	all := rulesOf(into.Type())
	var known []string
	for _, w := range all {
		if w.field != "" {
			known = append(known, w.field)
		}
	}
	if n.Kind != yaml.MappingNode {
		r.add(field, "want fields (%s), not %s", strings.Join(known, ", "), shown(n))
		return
	}
	given := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], join(field, n.Content[i].Value)
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			r.note(at, key.Line, "there is no such field here; there are %s", strings.Join(known, ", "))
		case given[key.Value] != nil:
			r.note(at, key.Line, "it stands in line %d, too; keep one of them", r.lines[at])
		default:
			given[key.Value], r.lines[at] = n.Content[i+1], key.Line
		}
	}
	for i, w := range all {
		at := join(field, w.field)
		if w.max == "outer" || into.Type() == reflect.TypeFor[Profile]() {
			w.max = outer.max
		}
		switch value := given[w.field]; {
		case w.field == "":
		case value != nil:
			r.value(value, at, into.Field(i), w)
		case w.fallback != "":
			r.value(w.defaultValue(n.Line), at, into.Field(i), w)
		}
		empty := given[w.field] == nil
		if k := into.Field(i).Kind(); k == reflect.String || k == reflect.Slice {
			empty = into.Field(i).Len() == 0
		}
		if w.required && empty {
			r.add(at, "%s", strings.TrimSuffix("it is missing; "+w.text(), "; "))
		}
	}
}

func join(field, name string) string { return strings.TrimPrefix(field+"."+name, ".") }

func (r *report) list(n *yaml.Node, field string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.add(field, "want a list, not %s", shown(n))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		r.value(item, fmt.Sprintf("%s[%d]", field, i), into.Index(i), rules{})
	}
}

// scalar fills text, a number or a yes or no.
func (r *report) scalar(n *yaml.Node, field string, into reflect.Value) {
	var want, tags string
	switch into.Kind() {
	case reflect.String:
		want, tags = "text", "!!str"
	case reflect.Bool:
		want, tags = "true or false", "!!bool"
	case reflect.Int, reflect.Int32:
		want, tags = "a whole number", "!!int"
	case reflect.Float64:
		want, tags = "a number", "!!int !!float"
	default:
		panic("scenario: no way to read a " + into.Type().String())
	}
	fits := n.Kind == yaml.ScalarNode && strings.Contains(tags, n.Tag) && n.Decode(into.Addr().Interface()) == nil
	if !fits || into.CanFloat() && (math.IsInf(into.Float(), 0) || math.IsNaN(into.Float())) {
		into.SetZero()
		r.add(field, "want %s, not %s", want, shown(n))
	}
}

// quantity reads CPU as Kubernetes writes it.
func (r *report) quantity(n *yaml.Node, field string, into *cpu.Milli) {
	digits, milli := strings.CutSuffix(n.Value, "m")
	v, err := strconv.ParseFloat(digits, 64)
	if !milli {
		v *= 1000
	}
	whole := math.Round(v)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(v) || v > 1e9 || v < 0 || strings.ContainsAny(digits, "xXpP_+eE"):
		r.add(field, `want CPU such as "500m" or "2", not %s`, shown(n))
	case math.Abs(whole-v) > 1e-6:
		r.add(field, "%s is finer than a thousandth of a core; round it", n.Value)
	default:
		*into = cpu.Milli(whole)
	}
}

func (r *report) duration(n *yaml.Node, field string, into *time.Duration) {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 {
		r.add(field, `want a time such as "90s" or "10ms", not %s`, shown(n))
		return
	}
	*into = v
}

// shown is a value as people see it in an error.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

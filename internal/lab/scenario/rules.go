package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// rules are what the tags of a field say: its name in files (yaml), and what its values must be
// (want), in words that follow each other: required; name (as Kubernetes names things);
// default=VALUE; min=, max= and above=VALUE, of the field's type, max=outer being that of the
// profile that the field is in; oneof=WORD,WORD.
type rules struct {
	field           string
	required, name  bool
	fallback        string
	min, max, above string
	oneOf           []string
}

// longest is the longest time in a file unless the rules of its field say otherwise; more is taken
// for a slip.
const longest = 720 * time.Hour

// name is what Kubernetes takes for a name of a pod, a namespace or a workload, without dots.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// rulesOf are the rules of a struct's fields, in their order. Those of fields that files do not have
// are empty.
func rulesOf(t reflect.Type) []rules {
	all := make([]rules, t.NumField())
	for i := range all {
		r := &all[i]
		r.field = t.Field(i).Tag.Get("yaml")
		if t.Field(i).Type == reflect.TypeFor[time.Duration]() {
			r.max = longest.String()
		}
		for _, word := range strings.Fields(t.Field(i).Tag.Get("want")) {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "required":
				r.required = true
			case "name":
				r.name = true
			case "oneof":
				r.oneOf = strings.Split(value, ",")
			default:
				*map[string]*string{"default": &r.fallback, "min": &r.min, "max": &r.max, "above": &r.above}[key] = value
			}
		}
	}
	return all
}

// text is what the rules want, in words; empty where they bound nothing.
func (r rules) text() string {
	switch {
	case r.name:
		return "want lower-case letters, digits and dashes, at most 63"
	case r.oneOf != nil:
		return "want one of " + strings.Join(r.oneOf, ", ")
	case r.above != "" && r.max != "":
		return fmt.Sprintf("want more than %s, up to %s", r.above, r.max)
	case r.above != "":
		return "want more than " + r.above
	case r.min != "" && r.max != "":
		return fmt.Sprintf("want %s to %s", r.min, r.max)
	case r.min != "":
		return fmt.Sprintf("want %s or more", r.min)
	case r.max != "":
		return "want up to " + r.max
	}
	return ""
}

// allow says whether a value follows the rules.
func (r rules) allow(v reflect.Value) bool {
	if v.Kind() == reflect.String {
		return (!r.name || name.MatchString(v.String())) && (r.oneOf == nil || slices.Contains(r.oneOf, v.String()))
	}
	number := func(bound string) float64 {
		if v.Type() == reflect.TypeFor[time.Duration]() {
			d, _ := time.ParseDuration(bound)
			return float64(d)
		}
		f, _ := strconv.ParseFloat(bound, 64)
		return f
	}
	var value float64
	switch {
	case v.CanInt():
		value = float64(v.Int())
	case v.CanFloat():
		value = v.Float()
	default:
		return true
	}
	return (r.min == "" || value >= number(r.min)) && (r.max == "" || value <= number(r.max)) && (r.above == "" || value > number(r.above))
}

// defaultValue is the node of a field that is left out.
func (r rules) defaultValue(line int) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(r.fallback), &doc); err != nil {
		panic(err) // a tag of this package
	}
	doc.Content[0].Line = line
	return doc.Content[0]
}

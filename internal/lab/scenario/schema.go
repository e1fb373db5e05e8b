package scenario

import (
	"embed"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// schema is a JSON schema, as far as scenarios need it.
type schema struct {
	Schema               string             `json:"$schema,omitempty"`
	Ref                  string             `json:"$ref,omitempty"`
	Description          string             `json:"description,omitempty"`
	Type                 any                `json:"type,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Minimum              json.Number        `json:"minimum,omitempty"`
	Maximum              json.Number        `json:"maximum,omitempty"`
	ExclusiveMinimum     json.Number        `json:"exclusiveMinimum,omitempty"`
	MinItems             int                `json:"minItems,omitempty"`
	MinProperties        int                `json:"minProperties,omitempty"`
	MaxProperties        int                `json:"maxProperties,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	AdditionalProperties *bool              `json:"additionalProperties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	Defs                 map[string]*schema `json:"$defs,omitempty"`
}

// source is where the descriptions come from.
//
//go:embed scenario.go profile.go
var source embed.FS

// Schema is the JSON schema of scenario files, for editors: the structs, their rules and comments.
func Schema() ([]byte, error) {
	w := schemaWriter{comments: map[string]string{}, defs: map[string]*schema{
		"duration": {Description: "A time such as 90s, 10ms or 1h30m.", Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$|^0$`},
		"cpu":      {Description: "CPU as in Kubernetes, such as 500m or 2.", Type: []string{"string", "number"}, Pattern: `^[0-9]+(\.[0-9]+)?m?$`, Minimum: "0"},
	}}
	for _, file := range []string{"scenario.go", "profile.go"} {
		if err := w.readComments(file); err != nil {
			return nil, err
		}
	}
	root := w.object(reflect.TypeFor[Scenario]())
	root.Schema, root.Defs = "https://json-schema.org/draft/2020-12/schema", w.defs
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

// schemaWriter collects the types that a schema needs.
type schemaWriter struct {
	comments map[string]string // by Type or Type.Field
	defs     map[string]*schema
}

// readComments reads the comments on the structs of a file and on their fields.
func (w schemaWriter) readComments(file string) error {
	text, err := source.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
	if err != nil {
		return err
	}
	sentence := func(groups ...*ast.CommentGroup) string {
		var words []string
		for _, g := range groups {
			words = append(words, strings.Fields(g.Text())...)
		}
		return strings.Join(words, " ")
	}
	for _, d := range parsed.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.TYPE {
			continue
		}
		spec := declared.Specs[0].(*ast.TypeSpec)
		w.comments[spec.Name.Name] = sentence(declared.Doc)
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				w.comments[spec.Name.Name+"."+f.Names[0].Name] = sentence(f.Doc, f.Comment)
			}
		}
	}
	return nil
}

// object is the schema of a struct.
func (w schemaWriter) object(t reflect.Type) *schema {
	s := &schema{Description: w.comments[t.Name()], Type: "object", AdditionalProperties: new(bool), Properties: map[string]*schema{}}
	for i, r := range rulesOf(t) {
		if r.field == "" {
			continue
		}
		p := w.value(t.Field(i).Type, r)
		p.Description = w.comments[t.Name()+"."+t.Field(i).Name]
		s.Properties[r.field] = p
		if r.required {
			s.Required = append(s.Required, r.field)
		}
	}
	return s
}

// value is the schema of a field.
func (w schemaWriter) value(t reflect.Type, r rules) *schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &schema{Ref: "#/$defs/duration"}
	case reflect.TypeFor[cpu.Milli]():
		return &schema{Ref: "#/$defs/cpu"}
	}
	s := &schema{Enum: r.oneOf, Minimum: json.Number(r.min), Maximum: json.Number(r.max), ExclusiveMinimum: json.Number(r.above)}
	if r.max == "outer" {
		s.Maximum = ""
	}
	if r.name {
		s.Pattern = name.String()
	}
	switch t.Kind() {
	case reflect.Struct:
		if w.defs[t.Name()] == nil {
			def := w.object(t)
			if t == reflect.TypeFor[Profile]() {
				def.Type, def.Minimum, def.MinProperties, def.MaxProperties = []string{"number", "object"}, "0", 1, 1
			}
			w.defs[t.Name()] = def
		}
		return &schema{Ref: "#/$defs/" + t.Name(), Maximum: s.Maximum}
	case reflect.Slice:
		s.Type, s.Items = "array", w.value(t.Elem(), rules{})
		if r.required {
			s.MinItems = 1
		}
	case reflect.String:
		s.Type = "string"
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.Float64:
		s.Type = "number"
	default:
		s.Type = "integer"
	}
	return s
}

// Package output writes what a command shows: as tables that fit the terminal, encoded for programs, or as chosen
// fields; once, or again and again.
//
// Promises:
//   - Tables are fitted and colored on a terminal only: TestStyle.
//   - A watch redraws a terminal and appends to a pipe, waits longer after each failure, and ends with its context:
//     TestWatch.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// Form is the value of -o; "" is the plain table.
type Form string

// The forms of output. The last two take a template after "=".
const (
	Wide          Form = "wide"
	JSON          Form = "json"
	YAML          Form = "yaml"
	Name          Form = "name"
	JSONPath      Form = "jsonpath"
	CustomColumns Form = "custom-columns"
)

// Bind adds -o with the given forms.
func (f *Form) Bind(cmd *cobra.Command, forms ...Form) {
	var names, choices []string
	for _, form := range forms {
		name := string(form)
		if form.template() {
			name += "="
		}
		names = append(names, name)
		choices = append(choices, strings.Replace(name, "=", "=...", 1))
	}
	cmd.Flags().VarP(&value{f, names}, "output", "o", "output form: "+strings.Join(choices, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func (f Form) template() bool { return f == JSONPath || f == CustomColumns }

// text says whether people read the form, so that a watch may draw one picture over the other.
func (f Form) text() bool {
	name, _, _ := strings.Cut(string(f), "=")
	return f == "" || f == Wide || Form(name) == CustomColumns
}

type value struct {
	*Form
	names []string
}

func (v *value) String() string { return string(*v.Form) }

func (v *value) Type() string { return "form" }

func (v *value) Set(s string) error {
	name, template, has := strings.Cut(s, "=")
	if has {
		name += "="
	}
	if !slices.Contains(v.names, name) {
		return fmt.Errorf("want one of %s", strings.Join(v.names, ", "))
	}
	var err error
	switch name {
	case string(JSONPath) + "=":
		_, err = parsePath(template)
	case string(CustomColumns) + "=":
		_, err = parseColumns(template)
	}
	*v.Form = Form(s)
	return err
}

// Item is a row of a view: the object that it is about, such as pod/cart, and its fields.
type Item struct {
	Name   string
	Fields any
}

// View is what a command shows.
type View interface {
	// Text is the view as tables and sentences.
	Text(format.Style) string
	// Items are its rows.
	Items() []Item
}

// Write writes a view, in text of the style where the form is one.
func (f Form) Write(w io.Writer, v View, style format.Style) error {
	name, template, _ := strings.Cut(string(f), "=")
	switch Form(name) {
	case Name:
		var b strings.Builder
		for _, item := range v.Items() {
			b.WriteString(item.Name + "\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	case JSONPath:
		return writePath(w, v, template)
	case CustomColumns:
		return writeColumns(w, v.Items(), template)
	}
	return f.encode(w, v, func() string { return v.Text(style) }) // with the control characters of colors
}

// Encode writes v as JSON or YAML, or else as text, without control characters.
func (f Form) Encode(w io.Writer, v any, text func() string) error {
	return f.encode(w, v, func() string { return format.Printable(text()) })
}

func (f Form) encode(w io.Writer, v any, text func() string) error {
	var data []byte
	var err error
	switch f {
	case JSON:
		data, err = json.MarshalIndent(v, "", "  ")
		data = append(data, '\n')
	case YAML:
		data, err = yaml.Marshal(v)
	default:
		data = []byte(text())
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// parsePath reads a template of JSONPath. One without braces is an expression: .pods[*].pod.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(template); err != nil {
		return nil, fmt.Errorf("%q: want a template such as {.pods[*].pod}: %w", template, err)
	}
	return p, nil
}

// generic is v as JSON has it: maps, slices, strings, numbers.
func generic(v any) (out any, err error) {
	data, err := json.Marshal(v)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	return out, err
}

func writePath(w io.Writer, v any, template string) error {
	p, err := parsePath(template)
	if err != nil {
		return err
	}
	data, err := generic(v)
	if err != nil {
		return err
	}
	if err := p.Execute(w, data); err != nil {
		return fmt.Errorf("jsonpath %q: %w", template, err)
	}
	_, err = io.WriteString(w, "\n")
	return err
}

// column is one of the custom columns.
type column struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns reads HEADER:PATH,HEADER:PATH.
func parseColumns(spec string) ([]column, error) {
	var columns []column
	for part := range strings.SplitSeq(spec, ",") {
		header, path, ok := strings.Cut(part, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("%q: want HEADER:PATH, such as POD:.pod,LIMIT:.limit", part)
		}
		p, err := parsePath(path)
		if err != nil {
			return nil, err
		}
		columns = append(columns, column{header, p})
	}
	return columns, nil
}

func writeColumns(w io.Writer, items []Item, spec string) error {
	columns, err := parseColumns(spec)
	if err != nil {
		return err
	}
	t := &format.Table{}
	for _, c := range columns {
		t.Header = append(t.Header, c.header)
	}
	for _, item := range items {
		fields, err := generic(item.Fields)
		if err != nil {
			return err
		}
		var cells []string
		for _, c := range columns {
			var b strings.Builder
			if err := c.path.Execute(&b, fields); err != nil {
				return fmt.Errorf("column %s of %s: %w", c.header, item.Name, err)
			}
			if b.Len() == 0 {
				b.WriteString("<none>")
			}
			cells = append(cells, format.OneLine(b.String()))
		}
		t.Add(cells...)
	}
	_, err = io.WriteString(w, t.String())
	return err
}

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/testing/must"
)

const root = "../.."

// TestCopy: each line of a manifest is in its template, but for the Namespace and for what the mode replaces.
func TestCopy(t *testing.T) {
	all, err := sources(root)
	must.Succeed(t, err)
	templates, err := copies(root)
	must.Succeed(t, err)
	if len(all) != len(templates) || len(all) < 15 {
		t.Fatalf("%d sources and %d templates", len(all), len(templates))
	}
	for _, s := range all {
		text, err := os.ReadFile(filepath.Join(root, "config", s.from))
		must.Succeed(t, err)
		have := lines(templates[filepath.Join(dir, "templates", s.to)])
		for line, n := range lines(string(text)) {
			if s.from == "base/namespace.yaml" || line == "---" || strings.TrimSpace(line) == marked {
				continue
			}
			if line != "  labels:" && have[line] != n {
				t.Errorf("config/%s has %d times the line %q, its template %d times", s.from, n, line, have[line])
			}
		}
	}
}

// TestFiles: the chart has the rules and every dashboard as they are, and a repository without them is refused.
func TestFiles(t *testing.T) {
	copied, err := files(root)
	must.Succeed(t, err)
	for path, text := range copied {
		name := strings.TrimPrefix(path, filepath.Join(dir, "files")+"/")
		want, err := os.ReadFile(filepath.Join(root, "monitoring", name))
		if err != nil || text != string(want) {
			t.Errorf("%s is not monitoring/%s: %v", path, name, err)
		}
	}
	if len(copied) < 6 {
		t.Errorf("%d files, want the rules and five dashboards", len(copied))
	}
	if _, err := files(t.TempDir()); err == nil || !strings.Contains(err.Error(), "monitoring/rules.yaml: no file") {
		t.Errorf("a repository without rules: %v", err)
	}
}

func lines(text string) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			count[line]++
		}
	}
	return count
}

// TestCopyRefuses: what cannot be made as it has to be is an error that says so.
func TestCopyRefuses(t *testing.T) {
	object := "kind: X\nmetadata:\n  name: x\n"
	for name, c := range map[string]struct {
		source
		text, want string
	}{
		"a template":       {source{}, object + "# {{ x }}\n", `has "{{"`},
		"no metadata":      {source{}, "kind: X\n", "no metadata"},
		"no annotations":   {source{edit: kept}, object, "has 0 times"},
		"another mode":     {source{edit: withMode}, object + "name: byDefault\nexpression: x\n", "has 0 times"},
		"two places of it": {source{edit: withMode}, object + "name: byDefault\n" + marked + marked, "has 2 times"},
	} {
		if _, err := c.template(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
}

// testFlags are the flags of a program that has those which the chart sets itself, and these.
func testFlags(name string, more ...program.Flag) (flags []program.Flag) {
	for f := range fixed[name] {
		flags = append(flags, program.Flag{Name: f, Type: "string"})
	}
	return append(flags, more...)
}

func testValues(t *testing.T) []value {
	t.Helper()
	rows, err := values(
		testFlags("mbcas-agent", program.Flag{Name: "interval", Type: "duration", Default: "1s", Usage: "a time"}),
		testFlags("mbcas-controller", program.Flag{Name: "log-level", Type: "string", Default: "INFO"}))
	must.Succeed(t, err)
	return rows
}

// TestFlagsAreKnown: a flag that needs words which the chart does not know is an error, and so is the list of
// fixed flags once a program lacks one of them.
func TestFlagsAreKnown(t *testing.T) {
	const name = "mbcas-agent"
	_, err := flagSchema(name, testFlags(name, program.Flag{Name: "new", Type: "string"}))
	if err == nil || !strings.Contains(err.Error(), "mbcas-agent --new: takes a string; name its words") {
		t.Errorf("a flag that takes a string: %v", err)
	}
	_, err = flagSchema(name, testFlags(name)[1:])
	if err == nil || !strings.Contains(err.Error(), "lacks 1 of the flags") {
		t.Errorf("a program without a fixed flag: %v", err)
	}
	if _, err := readFlags("flag provided but not defined"); err == nil {
		t.Error("an answer that is no JSON is read as flags")
	}
}

// TestSchemaIsClosed: every object of the schema is closed, and every leaf says what it is for.
func TestSchemaIsClosed(t *testing.T) {
	text, err := schemaFile(testValues(t))
	must.Succeed(t, err)
	var s map[string]any
	must.Succeed(t, json.Unmarshal([]byte(text), &s))
	leaves := 0
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		properties, _ := s["properties"].(map[string]any)
		if s["type"] == "object" && s["additionalProperties"] != false && path != ".global" {
			t.Errorf("%s takes any property", path)
		}
		if len(properties) == 0 {
			if leaves++; s["description"] == nil {
				t.Errorf("%s has no description", path)
			}
		}
		for name, p := range properties {
			walk(path+"."+name, p.(map[string]any))
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
	}
	walk("", s)
	if leaves < 25 {
		t.Errorf("%d leaves, want at least 25", leaves)
	}
}

// TestValuesFile: values.yaml has every value with its default, and nothing else.
func TestValuesFile(t *testing.T) {
	rows := testValues(t)
	text, err := valuesFile(rows)
	must.Succeed(t, err)
	var have map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &have); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	want := map[string]any{}
	for _, v := range rows {
		at, parts := want, strings.Split(v.path, ".")
		for _, p := range parts[:len(parts)-1] {
			if at[p] == nil {
				at[p] = map[string]any{}
			}
			at = at[p].(map[string]any)
		}
		at[parts[len(parts)-1]] = v.def
	}
	h, err := json.Marshal(have)
	w, err2 := json.Marshal(want)
	must.Succeed(t, errors.Join(err, err2))
	if string(h) != string(w) {
		t.Errorf("values.yaml has %s, want %s", h, w)
	}
}

// TestPages: the README names every value and every flag, and a page without a place for the table is an error.
func TestPages(t *testing.T) {
	rows := testValues(t)
	text := readme(rows)
	names := []string{"interval", "log-level"}
	for _, v := range rows {
		names = append(names, v.path)
	}
	for _, name := range names {
		if strings.Count(text, "\n| `"+name+"` | ") != 1 {
			t.Errorf("README.md has no row of %s", name)
		}
	}
	path := filepath.Join(t.TempDir(), "page.md")
	must.Succeed(t, os.WriteFile(path, []byte("no marks"), 0o600))
	if _, err := withTable(path, rows); err == nil || !strings.Contains(err.Error(), "has no place") {
		t.Errorf("a page without marks: %v", err)
	}
	chart, err := chartFile(root)
	must.Succeed(t, err)
	var c struct {
		Annotations map[string]string
	}
	must.Succeed(t, yaml.Unmarshal([]byte(chart), &c))
	var crds []struct{ Kind, Name, Version, Description string }
	if err := yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/crds"]), &crds); err != nil || len(crds) != 3 {
		t.Errorf("Artifact Hub sees %d CRDs: %v", len(crds), err)
	}
	for _, crd := range crds {
		if !strings.HasPrefix(crd.Description, crd.Kind+" ") || !strings.HasSuffix(crd.Description, ".") {
			t.Errorf("CRD %s is described as %q", crd.Name, crd.Description)
		}
	}
	var examples []map[string]any
	err = yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/crdsExamples"]), &examples)
	if err != nil || len(examples) != 2 {
		t.Errorf("Artifact Hub sees %d examples: %v", len(examples), err)
	}
}

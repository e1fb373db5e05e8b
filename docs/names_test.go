package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestPublicNames: every name that users script against stands in one list. A change of the list is a
// change of the API; `go test ./docs -run PublicNames -update` writes it.
func TestPublicNames(t *testing.T) {
	var names []string
	add := func(kind, name string) { names = append(names, kind+" "+name) }
	for _, r := range reasons.All() {
		add("reason", string(r))
	}
	for _, file := range files(t, filepath.Join(root, "config", "crd"), ".yaml") {
		var crd apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, file)), &crd))
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		add("resource", crd.Spec.Names.Plural+" "+strings.Join(crd.Spec.Names.ShortNames, " "))
		for _, v := range crd.Spec.Versions {
			for _, part := range []string{"spec", "status"} {
				fields(crd.Spec.Names.Kind+"."+part, v.Schema.OpenAPIV3Schema.Properties[part], add)
			}
		}
	}
	for _, dir := range []string{"cmd", "internal", "api"} {
		for _, file := range files(t, filepath.Join(root, dir), ".go") {
			if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "internal/lab") ||
				strings.Contains(file, "internal/testing") || strings.Contains(file, "mbcas-lab") {
				continue
			}
			namesInCode(t, file, add)
		}
	}
	slices.Sort(names)
	got := strings.Join(slices.Compact(names), "\n") + "\n"
	list := filepath.Join("testdata", "public-names.txt")
	if *update {
		must.Succeed(t, os.WriteFile(list, []byte(got), 0o644))
	}
	if diff := cmp.Diff(read(t, list), got); diff != "" {
		t.Errorf("public names (-listed +code); if you mean the change, write it with -update:\n%s", diff)
	}
}

// fields adds the paths of all fields below a schema, but for the types of Kubernetes itself.
func fields(path string, s apiextensionsv1.JSONSchemaProps, add func(kind, name string)) {
	for name, p := range s.Properties {
		add("field", path+"."+name)
		if name == "conditions" || name == "metric" || name == "targetRef" {
			continue
		}
		fields(path+"."+name, p, add)
	}
	if s.Items != nil && s.Items.Schema != nil {
		fields(path+"[]", *s.Items.Schema, add)
	}
}

// namesInCode adds what a source file defines: flags, metrics, and the action of events.
func namesInCode(t *testing.T, file string, add func(kind, name string)) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must.Succeed(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				if metric.FindString(text) == text && text != "" {
					add("metric", text)
				}
				if strings.HasPrefix(text, "mbcas.io/") {
					add("key", text)
				}
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok {
				if name, ok := flagName(f.Sel.Name, n.Args); ok {
					add("flag", filepath.Base(filepath.Dir(file))+" --"+name)
				}
			}
		}
		return true
	})
}

// flagName is the name in a call that defines a flag, of package flag or of pflag.
func flagName(method string, args []ast.Expr) (string, bool) {
	at := 0
	switch strings.TrimSuffix(method, "P") {
	case "StringVar", "BoolVar", "DurationVar", "Float64Var", "IntVar", "TextVar", "Var":
		at = 1
	case "String", "Bool", "Duration", "Float64", "Int", "Func":
	default:
		return "", false
	}
	if len(args) < at+2 {
		return "", false
	}
	lit, ok := args[at].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(lit.Value)
	return name, err == nil
}

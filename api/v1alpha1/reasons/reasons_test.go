package reasons

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"
)

// TestEveryReasonIsListed: each constant is named as it is written, and is explained once.
func TestEveryReasonIsListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Reason" {
				constants[spec.Names[0].Name] = spec.Values[0].(*ast.BasicLit).Value
			}
		}
		return true
	})
	word := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	for name, value := range constants {
		if value != `"`+name+`"` || !word.MatchString(name) || !slices.Contains(All(), Reason(name)) {
			t.Errorf("constant %s = %s: want the same CamelCase word, listed in All", name, value)
		}
	}
	if len(All()) != len(constants) {
		t.Errorf("%d constants, %d in All", len(constants), len(All()))
	}
}

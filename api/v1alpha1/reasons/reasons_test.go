package reasons

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"

	"github.com/mbcas/mbcas/actuator"
)

// TestEveryReasonIsListed: each constant is named as it is written, stands in All once, and has a sentence.
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
		if sentences[Reason(name)] == "" {
			t.Errorf("%s has no sentence", name)
		}
	}
	if len(All()) != len(constants) || len(sentences) != len(constants) {
		t.Errorf("%d constants, %d in All, %d sentences", len(constants), len(All()), len(sentences))
	}
}

// TestPlannerReasons: the planner's own words are part of the API.
func TestPlannerReasons(t *testing.T) {
	for _, r := range []actuator.Reason{
		actuator.Settled, actuator.WithinDeadBand, actuator.CoolingDown, actuator.ResizeInFlight, actuator.BackingOff,
		actuator.WaitingForDecreases, actuator.NoDecisionYet, actuator.DecisionTooOld, actuator.StepLimited,
	} {
		if !slices.Contains(All(), Reason(r)) {
			t.Errorf("%s of the planner is not listed", r)
		}
	}
}

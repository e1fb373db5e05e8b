// Package must ends a test at a step that fails.
package must

// TB is what a test, a benchmark, a fuzz test and a property have.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Succeed ends the test where there is an error.
func Succeed(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

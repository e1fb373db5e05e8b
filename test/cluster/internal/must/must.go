// Package must ends a test at a step that only prepares it, as internal/testing/must does in the main module, of which
// this one knows nothing.
package must

import "testing"

// Succeed ends the test where there is an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

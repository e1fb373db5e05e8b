// Package must ends a test at a step that fails, as internal/testing/must does in the main module. This module does not
// import the main one.
package must

import "testing"

// Succeed ends the test where there is an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

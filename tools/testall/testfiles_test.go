package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFuzzTargets(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/a_test.go":          "package a\n\nfunc FuzzOne(f *testing.F) {}\nfunc FuzzTwo(f *testing.F) {\n",
		"a/a.go":               "package a\n\nfunc FuzzNot(f *testing.F) {}\n",
		"b/c/c_test.go":        "package c\n\nfunc FuzzThree(fz *testing.F) {}\nfunc TestFuzz(t *testing.T) {}\n",
		"a/testdata/x_test.go": "func FuzzData(f *testing.F) {}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := fuzzTargets(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []target{{"a", "FuzzOne"}, {"a", "FuzzTwo"}, {"b/c", "FuzzThree"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(target{})); d != "" {
		t.Error(d)
	}
}

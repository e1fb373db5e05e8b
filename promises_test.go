package mbcas_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	promise  = regexp.MustCompile(`(?m)^//   - ([A-Z]\w*(?:, [A-Z]\w*)*):`)
	testFunc = regexp.MustCompile(`(?m)^func (?:Test|Benchmark|Fuzz)(\w+)\(`)
)

// TestPromisesAreTests: each promise in the comment of a package is the name of a test.
func TestPromisesAreTests(t *testing.T) {
	tests, promises := map[string]bool{}, map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}
			return err
		}
		for _, m := range promise.FindAllStringSubmatch(string(text), -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				promises[name] = path
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range promises {
		if !tests[name] {
			t.Errorf("%s promises %s, and there is no test of that name", path, name)
		}
	}
	if len(promises) < 100 {
		t.Errorf("%d promises found: the pattern does not fit", len(promises))
	}
}

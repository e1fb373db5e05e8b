package docs_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// faultCase is one row of reliability.md.
type faultCase struct {
	fault   string
	happens string
	tests   string // by name, or by folder/name where two packages have one of that name
	open    string // what no test shows yet; "" for nothing
}

// TestReliability: reliability.md has a row for each of the 56 cases, each test in it exists, and no case is without
// a test or a word on what is open. go test ./docs -run TestReliability -update rewrites the table.
func TestReliability(t *testing.T) {
	where := testFolders(t)
	if len(faultCases) != 56 {
		t.Errorf("%d cases, want 56", len(faultCases))
	}
	table := "\n| # | fault | what happens | shown by | open |\n| --- | --- | --- | --- | --- |\n"
	tested, proved := 0, 0
	for i, c := range faultCases {
		var cells []string
		for _, name := range strings.Fields(c.tests) {
			folder, test := filepath.Split(name)
			folders := where[test]
			if folder != "" {
				folders = slices.DeleteFunc(slices.Clone(folders), func(f string) bool { return f+"/" != folder })
			}
			if len(folders) != 1 {
				t.Errorf("case %d names %s, which is in %d folders: %v", i+1, name, len(folders), where[test])
				continue
			}
			cells = append(cells, fmt.Sprintf("`%s` (%s)", test, folders[0]))
		}
		if len(cells) > 0 {
			tested++
		}
		if len(cells) == 0 && c.open == "" {
			t.Errorf("case %d, %s, has no test and says nothing of what is open", i+1, c.fault)
		}
		open := c.open
		if open == "" {
			proved, open = proved+1, "-"
		}
		table += fmt.Sprintf("| %d | %s | %s | %s | %s |\n", i+1, c.fault, c.happens, strings.Join(cells, ", "), open)
	}
	table += fmt.Sprintf("\n%d of %d cases have a test; in %d of these nothing is open.\n\n", tested, len(faultCases), proved)

	hold(t, "reliability.md", "cases", table)
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)

// testFolders are the folders in which each test of the repository is.
func testFolders(t *testing.T) map[string][]string {
	t.Helper()
	where := map[string][]string{}
	for _, path := range files(t, root, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		must.Succeed(t, err)
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			where[m[1]] = append(where[m[1]], filepath.ToSlash(folder))
		}
	}
	return where
}

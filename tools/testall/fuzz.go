package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// target is one fuzz target.
type target struct {
	dir  string // relative to the root
	name string
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// fuzzTargets finds every fuzz target below root, in all modules.
func fuzzTargets(root string) ([]target, error) {
	var found []target
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			found = append(found, target{dir: dir, name: string(m[1])})
		}
		return nil
	})
	sort.Slice(found, func(i, j int) bool {
		return found[i].dir+" "+found[i].name < found[j].dir+" "+found[j].name
	})
	return found, err
}

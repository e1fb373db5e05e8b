package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
func fuzzTargets(root string) (found []target, err error) {
	err = eachTestFile(root, func(dir string, text []byte) {
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			found = append(found, target{dir: dir, name: string(m[1])})
		}
	})
	sort.Slice(found, func(i, j int) bool {
		return found[i].dir+" "+found[i].name < found[j].dir+" "+found[j].name
	})
	return found, err
}

// dirsWith are the packages, as ./dir, with a test file that contains the text.
func dirsWith(root, what string) (dirs []string, err error) {
	err = eachTestFile(root, func(dir string, text []byte) {
		if pkg := "./" + filepath.ToSlash(dir); strings.Contains(string(text), what) && !slices.Contains(dirs, pkg) {
			dirs = append(dirs, pkg)
		}
	})
	return dirs, err
}

// eachTestFile calls do with the folder and the text of every test file below root. The folder is relative to root.
func eachTestFile(root string, do func(dir string, text []byte)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
		do(dir, text)
		return nil
	})
}

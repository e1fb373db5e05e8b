package mbcas_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tree is the parsed source of the module, without tests: the files of each package by path.
type tree map[string]map[string]*source

var whole struct {
	sync.Once
	tree
}

// wholeModule is the tree of this module, which is parsed once.
func wholeModule(t *testing.T) tree {
	t.Helper()
	whole.Do(func() { whole.tree = parse(t, os.DirFS(".")) })
	return whole.tree
}

// source is one file.
type source struct {
	file    *ast.File
	lines   int
	imports []string
}

// parse reads every package below the root of files, but for the modules of their own.
func parse(t *testing.T, files fs.FS) tree {
	t.Helper()
	found := tree{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains(modules, name) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "." {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := &source{file: parsed, lines: strings.Count(string(text), "\n")}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		pkg := path.Dir(name)
		if found[pkg] == nil {
			found[pkg] = map[string]*source{}
		}
		found[pkg][name] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// outside are imports that a pure package does not have: they reach the machine, the network or a log.
var outside = []string{
	"os", "os/", "io/fs", "io/ioutil", "net", "net/", "syscall", "log", "log/", "database/", "embed", "plugin", "crypto/rand", "runtime",
	"testing", "flag", "context", "sync", "sync/",
}

// clock are the functions of package time that read the clock or wait.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// impurities are the reasons why a package is not pure. A pure package imports no Kubernetes, does no I/O, starts nothing, and gets the
// time as a value. From a package of this module that is not pure it uses types only. Allowed are modules of Kubernetes that it may import.
func impurities(files map[string]*source, pure []string, allowed ...string) (reasons []string) {
	for name, s := range files {
		for _, imported := range s.imports {
			switch {
			case under(imported, kubernetes) && !under(imported, allowed):
				reasons = append(reasons, fmt.Sprintf("%s imports Kubernetes: %s", name, imported))
			case slices.ContainsFunc(outside, func(o string) bool {
				return imported == o || strings.HasSuffix(o, "/") && strings.HasPrefix(imported, o)
			}):
				reasons = append(reasons, fmt.Sprintf("%s imports %s", name, imported))
			}
		}
		imported := s.byName()
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				reasons = append(reasons, name+" starts a goroutine")
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] == "time" && slices.Contains(clock, n.Sel.Name) {
					reasons = append(reasons, fmt.Sprintf("%s reads the clock: time.%s", name, n.Sel.Name))
				}
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					break
				}
				x, ok := f.X.(*ast.Ident)
				if !ok {
					break
				}
				if ours, ok := strings.CutPrefix(imported[x.Name], module+"/"); ok && !slices.Contains(pure, ours) {
					reasons = append(reasons, fmt.Sprintf("%s calls %s.%s, and %s is not pure", name, x.Name, f.Sel.Name, ours))
				}
			}
			return true
		})
	}
	slices.Sort(reasons)
	return reasons
}

// byName are the imports of a file by the name that they have there.
func (s *source) byName() map[string]string {
	names := map[string]string{}
	for i, spec := range s.file.Imports {
		name := path.Base(s.imports[i])
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = s.imports[i]
	}
	return names
}

// fields is the number of fields of a struct type; 0 where the package has none of that name.
func fields(files map[string]*source, name string) (n int) {
	for _, s := range files {
		ast.Inspect(s.file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					n += max(1, len(f.Names))
				}
			}
			return false
		})
	}
	return n
}

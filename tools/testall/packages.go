package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// packages are those of the main module without the end-to-end tests.
type packages struct {
	server     []string // their tests start an API server
	concurrent []string // others that start goroutines, or whose tests do
	pure       []string // the rest: the race detector has nothing to find, and a result holds until a file changes
}

// concurrency is in every file that starts a goroutine or exists for one that does.
const concurrency = `^\s*go [a-z]|\bchan\b|"sync"|"sync/atomic"|"testing/synctest"|/errgroup"|\.Parallel\(\)` +
	`|\.AfterFunc\(|"net/http|"os/exec"|"os/signal"|"k8s.io/client-go/|"sigs.k8s.io/controller-runtime`

func (r *repo) packages(ctx context.Context) (p packages, err error) {
	const imports = `{{.Dir}} {{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	list, err := r.output(exec.CommandContext(ctx, "go", "list", "-f", imports, "./..."))
	if err != nil {
		return p, err
	}
	files, err := r.output(exec.CommandContext(ctx, "grep", "-rlE", "--include=*.go", "--", concurrency, r.root))
	if err != nil {
		return p, err
	}
	var concurrent []string
	for _, file := range strings.Fields(files) {
		concurrent = append(concurrent, filepath.Dir(file))
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		dir, name := fields[0], fields[1]
		switch {
		case strings.Contains(name+"/", "/test/e2e/"):
		case slices.ContainsFunc(fields[2:], startsServer):
			p.server = append(p.server, name)
		case slices.Contains(concurrent, dir):
			p.concurrent = append(p.concurrent, name)
		default:
			p.pure = append(p.pure, name)
		}
	}
	return p, nil
}

// startsServer reports whether a test that imports the package starts an API server.
func startsServer(path string) bool { return strings.HasSuffix(path, "/internal/testing/apiserver") }

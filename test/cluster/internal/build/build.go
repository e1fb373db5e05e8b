// Package build makes the programs of the cluster from their sources, once per
// set of pins, in a cache outside the work tree.
//
// Promises:
//   - The cache key changes with every input of the build and with nothing else:
//     TestKey.
//   - A program or file that is in the cache is whole: it is written under another
//     name and renamed, under a lock.
package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is where the built programs of one set of pins are.
type Cache struct {
	Root     string // of all sets
	Key      string
	Source   string            // the folder of the go.mod with the pins
	Versions map[string]string // of the modules that the recipe names

	recipe Recipe
	flags  []string
}

// Dir holds the programs and the links with the names that envtest looks for.
func (c Cache) Dir() string { return filepath.Join(c.Root, c.recipe.Prefix+c.Key) }

// Program is the path of a built program, of one of its other names, or of a file
// that was copied beside it.
func (c Cache) Program(name string) string { return filepath.Join(c.Dir(), name) }

// Root is the folder of all cached sets of this user.
func Root() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "mbcas", "cluster"), nil
}

// FindSource looks for test/cluster/programs above the given folders, in order.
func FindSource(starts ...string) (string, error) {
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			source := filepath.Join(dir, "test", "cluster", "programs")
			if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
				return source, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("test/cluster/programs is not above any of %s: run this inside the repository or give --source", strings.Join(starts, ", "))
}

// Open computes the key of what the recipe makes from the pins in source. It
// builds nothing.
func Open(ctx context.Context, source string, r Recipe) (Cache, error) {
	root, err := Root()
	if err != nil {
		return Cache{}, err
	}
	goVersion, err := goCommand(ctx, source, "env", "GOVERSION").Output()
	if err != nil {
		return Cache{}, fmt.Errorf("go env GOVERSION: %w; Go must be in PATH to build the cluster's programs", err)
	}
	files, err := inputs(os.DirFS(source))
	if err != nil {
		return Cache{}, fmt.Errorf("%s: %w", source, err)
	}
	versions := map[string]string{}
	for _, module := range r.Modules {
		if versions[module] = pin(files["go.mod"], module); versions[module] == "" {
			return Cache{}, fmt.Errorf("%s: no pin of %s", filepath.Join(source, "go.mod"), module)
		}
	}
	flags := r.flags(versions[r.Modules[0]])
	extra := []string{strings.TrimSpace(string(goVersion)), runtime.GOOS + "/" + runtime.GOARCH, strings.Join(flags, " ")}
	key := key(files, append(extra, r.Files...)...)
	return Cache{Root: root, Key: key, Source: source, Versions: versions, recipe: r, flags: flags}, nil
}

// inputs are the pins and the sources.
func inputs(source fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".go") && path != "go.mod" && path != "go.sum" {
			return nil
		}
		files[path], err = fs.ReadFile(source, path)
		return err
	})
	return files, err
}

// key is the hash of everything that decides what the programs are.
func key(files map[string][]byte, extra ...string) string {
	h := sha256.New()
	add := func(b []byte) { fmt.Fprintf(h, "%d:%s", len(b), b) } // lengths keep parts apart
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add([]byte(name))
		add(files[name])
	}
	for _, e := range extra {
		add([]byte(e))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// pin is the version that a go.mod requires of a module, or "".
func pin(gomod []byte, module string) string {
	for line := range bytes.Lines(gomod) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(string(line)), "require "))
		if len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1]
		}
	}
	return ""
}

// Ensure builds what is missing, telling out how far it is.
func (c Cache) Ensure(ctx context.Context, out io.Writer) error {
	if c.complete() {
		return nil
	}
	if err := os.MkdirAll(c.Dir(), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(c.Root, "lock"), out)
	if err != nil {
		return err
	}
	defer unlock()
	if c.complete() { // another command built it while we waited
		return nil
	}
	fmt.Fprintf(out, "building %s into %s (once; %s on 2 cores)\n", c.recipe.what(c.Versions), c.Dir(), c.recipe.Lasts)
	for _, p := range c.recipe.Programs {
		if err := c.build(ctx, p, out); err != nil {
			return err
		}
	}
	for _, name := range c.recipe.Names {
		if err := os.Symlink(c.recipe.Called, c.Program(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, name := range c.recipe.Files {
		if err := c.copyFile(ctx, name); err != nil {
			return err
		}
	}
	return os.WriteFile(c.Program("complete"), nil, 0o644)
}

func (c Cache) complete() bool {
	_, err := os.Stat(c.Program("complete"))
	return err == nil
}

// build builds one program. The go command says nothing for minutes, so the
// packages it compiles are counted instead.
func (c Cache) build(ctx context.Context, p Program, out io.Writer) error {
	if _, err := os.Stat(c.Program(p.Name)); err == nil {
		return nil // a former, interrupted Ensure
	}
	start := time.Now()
	list, err := goCommand(ctx, c.Source, "list", "-buildvcs=false", "-deps", p.Package).Output()
	if err != nil {
		return fmt.Errorf("go list %s in %s: %w", p.Package, c.Source, exitText(err))
	}
	total := bytes.Count(list, []byte("\n"))

	tmp := c.Program(p.Name + ".new")
	args := append([]string{"build", "-v"}, c.flags...)
	cmd := goCommand(ctx, c.Source, append(args, "-o", tmp, p.Package)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	stop := Report(out, 10*time.Second, func() string {
		return fmt.Sprintf("  %s: %d of %d packages compiled, %s", p.Name, compiled.Load(), total, seconds(start))
	})
	said := count(stderr, &compiled)
	err = cmd.Wait()
	stop()
	if err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", p.Package, c.Source, err, strings.Join(said, "\n"))
	}
	fmt.Fprintf(out, "  %s: built in %s\n", p.Name, seconds(start))
	return os.Rename(tmp, c.Program(p.Name))
}

// copyFile takes a file out of the recipe's first module, whose sources the build has
// put on this machine. Embedding cannot: the module is another one.
func (c Cache) copyFile(ctx context.Context, name string) error {
	module := c.recipe.Modules[0]
	dir, err := goCommand(ctx, c.Source, "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w", module, exitText(err))
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(name)))
	if err != nil {
		return fmt.Errorf("%s of %s %s: %w", name, module, c.Versions[module], err)
	}
	to := c.Program(path.Base(name))
	if err := os.WriteFile(to+".new", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// NodeInit builds the first process of a virtual node. It is part of this program
// rather than of the cached set, so it is as new as this program's sources.
func (c Cache) NodeInit(ctx context.Context, to string) error {
	out, err := goCommand(ctx, filepath.Dir(c.Source), "build", "-trimpath", "-buildvcs=false", "-o", to, "./cmd/mbcas-node-init").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build mbcas-node-init: %w\n%s", err, out)
	}
	return nil
}

// count reads the go command's standard error: package paths are counted, the
// rest (downloads, compiler messages) is kept, at most its last 40 lines.
func count(r io.Reader, compiled *atomic.Int64) []string {
	var said []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.ContainsAny(line, " #:") {
			compiled.Add(1)
			continue
		}
		if said = append(said, line); len(said) > 40 {
			said = said[1:]
		}
	}
	return said
}

// Report writes a line at every interval until the returned func is called.
func Report(out io.Writer, every time.Duration, line func() string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintln(out, line())
			}
		}
	}()
	return func() { close(done); <-ended }
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	return cmd
}

// lock waits until no other command builds. The kernel gives the lock up when
// its holder ends, however it ends.
func lock(ctx context.Context, path string, out io.Writer) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := 0; ; waited++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waited%30 == 0 {
			fmt.Fprintln(out, "waiting for another command that builds the cluster's programs")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func seconds(start time.Time) string { return time.Since(start).Round(time.Second).String() }

func exitText(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

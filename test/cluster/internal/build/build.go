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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/mod/modfile"
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
	return "", fmt.Errorf("test/cluster/programs is not above any of %s: run this in the repository, or give --source",
		strings.Join(starts, ", "))
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
	gomod, err := modfile.ParseLax("go.mod", files["go.mod"], nil)
	if err != nil {
		return Cache{}, fmt.Errorf("%s: %w", source, err)
	}
	versions := map[string]string{}
	for _, module := range r.Modules {
		if versions[module] = pin(gomod, module); versions[module] == "" {
			return Cache{}, fmt.Errorf("%s: no pin of %s", filepath.Join(source, "go.mod"), module)
		}
	}
	flags := r.flags(versions[r.Modules[0]])
	platform := runtime.GOOS + "/" + runtime.GOARCH
	extra := []string{strings.TrimSpace(string(goVersion)), platform, strings.Join(flags, " ")}
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
	for _, name := range slices.Sorted(maps.Keys(files)) {
		add([]byte(name))
		add(files[name])
	}
	for _, e := range extra {
		add([]byte(e))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// pin is the version that a go.mod requires of a module, or "".
func pin(gomod *modfile.File, module string) string {
	for _, r := range gomod.Require {
		if r.Mod.Path == module {
			return r.Mod.Version
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
	// The kernel gives the lock up when its holder ends, however it ends.
	lock := flock.New(filepath.Join(c.Root, "lock"))
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return fmt.Errorf("wait for another command that builds: %w", err)
	}
	defer lock.Close()
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

func (c Cache) build(ctx context.Context, p Program, out io.Writer) error {
	if _, err := os.Stat(c.Program(p.Name)); err == nil {
		return nil // a former, interrupted Ensure
	}
	start := time.Now()
	stop := Report(out, 10*time.Second, func() string {
		return fmt.Sprintf("  %s: building for %s", p.Name, seconds(start))
	})
	tmp := c.Program(p.Name + ".new")
	args := slices.Concat([]string{"build"}, c.flags, []string{"-o", tmp, p.Package})
	said, err := goCommand(ctx, c.Source, args...).CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", p.Package, c.Source, err, said)
	}
	fmt.Fprintf(out, "  %s: built in %s\n", p.Name, seconds(start))
	return os.Rename(tmp, c.Program(p.Name))
}

// copyFile takes a file out of the recipe's first module, whose sources the build has
// put on this machine. Embedding cannot: the module is another one.
func (c Cache) copyFile(ctx context.Context, name string) error {
	module := c.recipe.Modules[0]
	dir, err := goCommand(ctx, c.Source, "list", "-m", "-f", "{{.Dir}}", module).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w: %s", module, err, dir)
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
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", to, "./cmd/mbcas-node-init"}
	out, err := goCommand(ctx, filepath.Dir(c.Source), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build mbcas-node-init: %w\n%s", err, out)
	}
	return nil
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

func seconds(start time.Time) string { return time.Since(start).Round(time.Second).String() }

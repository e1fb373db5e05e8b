// Command mutants puts bugs into lines that safety depends on, one at a time, and says whether the
// tests catch each: its last line is "caught N of N". Nothing in the tree changes: the compiler is
// told to read a changed copy of the file. It fails for a bug that no test catches, for one that
// does not compile, and for one whose line is not in the file any more. It stops where a test is skipped.
//
// Promises, each a test of the same name:
//   - EveryMutantApplies: the line of each mutant is in its file, once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mutant is a bug: a text of a file, and what stands there instead. Tests says which tests are to
// catch it.
type mutant struct {
	name     string
	file     string
	old, new string
	tests    suite
}

// suite is a package and some of its tests.
type suite struct{ pkg, run string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "try the mutants with this in their name alone")
	flag.Parse()
	if err := run(ctx, ".", *only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants of the tree at root.
func run(ctx context.Context, root, only string, out io.Writer) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mbcas-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !strings.Contains(m.name, only) })
	if err := checkSuites(ctx, root, chosen, out); err != nil {
		return err
	}
	caught := 0
	var errs []error
	for _, m := range chosen {
		began := time.Now()
		by, err := m.try(ctx, root, dir)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(began).Round(time.Second)
		if err != nil {
			fmt.Fprintf(out, "NOT CAUGHT  %-60s %v (%v)\n", m.name, err, took)
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		caught++
		fmt.Fprintf(out, "caught      %-60s by %s (%v)\n", m.name, by, took)
	}
	fmt.Fprintf(out, "caught %d of %d\n", caught, len(chosen))
	return errors.Join(errs...)
}

// checkSuites runs the tests of all mutants on the tree as it is: tests that fail anyhow, or do not run, catch nothing.
func checkSuites(ctx context.Context, root string, list []mutant, out io.Writer) error {
	known := map[suite]bool{}
	for _, m := range list {
		if known[m.tests] {
			continue
		}
		known[m.tests] = true
		text, err := m.tests.run1(ctx, root, "")
		if err != nil {
			return fmt.Errorf("the tests fail without a bug: %s: %w\n%s", m.tests, err, text)
		}
		if !strings.Contains(text, "--- PASS") || strings.Contains(text, "--- SKIP") {
			return fmt.Errorf("%s: not every test runs; run it through `make mutants`\n%s", m.tests, text)
		}
		fmt.Fprintf(out, "without a bug: %s passes\n", m.tests)
	}
	return nil
}

func (s suite) String() string { return "go test ./" + s.pkg + " -run '" + s.run + "'" }

// run1 runs the tests, with the overlay if there is one.
func (s suite) run1(ctx context.Context, root, overlay string) (text string, err error) {
	args := []string{"test", "-count=1", "-v", "-failfast", "-timeout=10m", "-run", s.run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, "./"+s.pkg)...)
	c.Dir = root
	raw, err := c.CombinedOutput()
	return string(raw), err
}

// mutated is the file with the bug.
func (m mutant) mutated(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(raw), m.old); n != 1 {
		return "", fmt.Errorf("%s has the line of this bug %d times, want once: mend the list of bugs", m.file, n)
	}
	return strings.Replace(string(raw), m.old, m.new, 1), nil
}

// try says which test catches the bug.
func (m mutant) try(ctx context.Context, root, dir string) (by string, err error) {
	text, err := m.mutated(root)
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(overlay, raw, 0o600))
	}
	if err != nil {
		return "", err
	}
	said, err := m.tests.run1(ctx, root, overlay)
	if err == nil {
		return "", fmt.Errorf("%s passes", m.tests)
	}
	for line := range strings.Lines(said) {
		if name, failed := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); failed {
			by, _, _ = strings.Cut(name, " ")
			if strings.Contains(by, "/") { // the case, and not the whole
				return by, nil
			}
		}
	}
	if by == "" {
		return "", fmt.Errorf("no test failed: %w\n%s", err, said)
	}
	return by, nil
}

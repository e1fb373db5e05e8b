package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// goTest runs `go test -json` with the given arguments in dir and counts its events.
func goTest(ctx context.Context, r *results, dir string, env []string, args ...string) error {
	before := r.failed
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := read(stdout, r)
	err = errors.Join(readErr, cmd.Wait())
	if err != nil && r.failed > before {
		return nil // it is counted
	}
	if err != nil {
		return fmt.Errorf("go test %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return nil
}

// read counts the events of one `go test -json`. Lines that are no events are printed.
func read(events io.Reader, r *results) error {
	in := bufio.NewScanner(events)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if line := strings.TrimSpace(in.Text()); !strings.HasPrefix(line, "{") {
			if line != "" {
				fmt.Fprintln(r.out, line)
			}
		} else if err := json.Unmarshal([]byte(line), &e); err != nil {
			fmt.Fprintln(r.out, line)
		} else {
			r.add(e)
		}
	}
	return in.Err()
}

// command runs a program and shows what it prints.
func command(ctx context.Context, out io.Writer, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

//go:build linux

// Command mbcas-preview plays a script in the simulator while another command builds what the
// measurement needs, so that limits, price and latency are seen to move from the start. It depends
// on no Kubernetes library and builds in seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/internal/program"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: mbcas-preview [flags] SCRIPT COMMAND [ARGUMENT]...")

func main() { program.Main("mbcas-preview", errUsage, run) }

// settings are the flags.
type settings struct {
	log           string        // gets the output of the command
	patience      time.Duration // a command that ends sooner needs no preview
	pace          time.Duration // per simulated second
	progressEvery time.Duration // after the simulation
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	fs := flag.NewFlagSet("mbcas-preview", flag.ContinueOnError)
	fs.StringVar(&s.log, "log", "out/build.log", "file for the output of the command")
	fs.DurationVar(&s.patience, "patience", 12*time.Second, "a command that ends sooner needs no preview")
	fs.DurationVar(&s.pace, "pace", 500*time.Millisecond, "time per simulated second")
	fs.DurationVar(&s.progressEvery, "progress", 20*time.Second, "time between two lines about the command")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() < 2 {
		return fmt.Errorf("%w: want a script and a command", errUsage)
	}
	x, err := script.Open(scripts.Files, fs.Arg(0))
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	built, err := s.start(ctx, fs.Args()[1:])
	if err != nil {
		return err
	}
	select {
	case err := <-built:
		return err
	case <-time.After(s.patience):
	}
	previewing, stop := context.WithCancel(ctx)
	defer stop()
	shown := make(chan error, 1)
	go func() { shown <- s.preview(previewing, x, out) }()
	err = <-built
	stop()
	if previewed := <-shown; previewed != nil && !errors.Is(previewed, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("preview: %w", previewed))
	}
	return err
}

// start starts the command. Its result comes when it has ended.
func (s settings) start(ctx context.Context, command []string) (<-chan error, error) {
	if err := os.MkdirAll(filepath.Dir(s.log), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}
	built := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		log.Close()
		if err != nil && ctx.Err() == nil {
			last := strings.Join(tail(s.log, 20), "\n")
			err = fmt.Errorf("%s: %w; the end of %s:\n%s", strings.Join(command, " "), err, s.log, last)
		}
		built <- err
	}()
	return built, nil
}

// tail is the last lines of a file.
func tail(path string, n int) []string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-n):]
}

// Command mbcas-controller turns PodAllocations into CPU limits of running pods. It is the only part of
// MBCAS that may resize pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

const usage = `mbcas-controller turns PodAllocations into CPU limits of running pods.

Usage:
  mbcas-controller [flags]                          run the controller
  mbcas-controller restore --all [--timeout 2m]     return every pod to its declared limits, and pause
  mbcas-controller version
`

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	level := new(slog.LevelVar)
	logLibraries(os.Stderr, level)
	err := run(ctx, os.Args[1:], level, os.Stdout, os.Stderr)
	var bad usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &bad):
		fmt.Fprintln(os.Stderr, "mbcas-controller:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "mbcas-controller:", err)
		os.Exit(1)
	}
}

// usageError is the caller's fault.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func run(ctx context.Context, args []string, level *slog.LevelVar, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "version", "--version", "-version":
			fmt.Fprintln(stdout, "mbcas-controller", build())
			return nil
		case "restore":
			return restoreAll(ctx, args[1:], stdout, stderr)
		case "help":
			fmt.Fprint(stdout, usage)
			return nil
		}
	}
	return serve(ctx, args, level, stdout, stderr)
}

// parse reads the flags, and takes nothing else.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage+"\nFlags:\n")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return usageError{err}
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	return nil
}

// build is the version that the linker set, else that of the module that this command was built from, and its commit.
func build() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v
}

// Command mbcas-controller turns PodAllocations into CPU limits of running pods. It is the only part of
// MBCAS that may resize pods.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/mbcas/mbcas/internal/program"
)

const usage = `mbcas-controller turns PodAllocations into CPU limits of running pods.

Usage:
  mbcas-controller [flags]                          run the controller
  mbcas-controller restore --all [flags]            return every pod to its declared limits, and pause
  mbcas-controller version
`

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	level := new(slog.LevelVar)
	logLibraries(os.Stderr, level)
	boundMemory(os.Getenv)
	err := run(ctx, os.Args[1:], level, os.Stdout, os.Stderr)
	os.Exit(program.ExitCode(err, "mbcas-controller", os.Stderr))
}

// gcPercent is the program's GOGC. Its caches are large and change slowly: more collections cost little
// CPU, and spare most of the headroom.
const gcPercent = 30

// boundMemory sets the limits of the heap, unless the environment variables GOGC and GOMEMLIMIT do.
func boundMemory(env func(string) string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	debug.SetMemoryLimit(memoryLimit(env))
}

// memoryLimitKey is the environment variable that holds the memory limit of the container, in bytes.
const memoryLimitKey = "MBCAS_MEMORY_LIMIT"

// memoryLimit is the soft limit of the process for debug.SetMemoryLimit: nine tenths of the container's
// limit, so that the heap is collected before the kernel ends the process. Negative: as it is, because
// the container has none, or because GOMEMLIMIT says one.
func memoryLimit(env func(string) string) int64 {
	limit, err := strconv.ParseInt(env(memoryLimitKey), 10, 64)
	if err != nil || limit <= 0 || env("GOMEMLIMIT") != "" {
		return -1
	}
	return limit / 10 * 9
}

func run(ctx context.Context, args []string, level *slog.LevelVar, stdout, stderr io.Writer) error {
	switch {
	case program.AsksForVersion(args):
		fmt.Fprintln(stdout, "mbcas-controller", build())
		return nil
	case len(args) > 0 && args[0] == "restore":
		return restoreAll(ctx, args[1:], stdout, stderr)
	case len(args) > 0 && args[0] == "help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	return serve(ctx, args, level, stdout, stderr)
}

// parse reads the flags; help shows the commands, too.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.Usage = func() {
		fmt.Fprint(stderr, usage+"\nFlags:\n")
		fs.PrintDefaults()
	}
	return program.Parse(fs, args, stderr)
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

// Command mbcas-lab simulates pods and their load without a cluster, and compares policies and this
// machine's kernel.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mbcas/mbcas/internal/lab/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a run that cannot be stopped
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := cli.Command(cli.Streams{Out: stdout, Err: stderr}, version)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// exitCode is 1 for a failure and 2 for bad usage.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "error:", err)
	var usage cli.UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

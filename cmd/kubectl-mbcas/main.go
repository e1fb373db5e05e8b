// Command kubectl-mbcas is the kubectl plugin: kubectl mbcas list, explain, resize, restore, doctor.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mbcas/mbcas/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := cli.Command(cli.Streams{Out: stdout, Err: stderr}, version)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// exitCode is 1 for a failure and 2 for bad usage.
func exitCode(err error, stderr io.Writer) int {
	var usage cli.UsageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, cli.ErrFindings):
		return 1 // printed already
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "error:", err)
		return 2
	}
	fmt.Fprintln(stderr, "error:", err)
	return 1
}

// Command kubectl-mbcas is the kubectl plugin: kubectl mbcas list, explain, resize, restore, doctor.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mbcas/mbcas/internal/cli"
	"github.com/mbcas/mbcas/internal/program"
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

func exitCode(err error, stderr io.Writer) int {
	if errors.Is(err, cli.ErrFindings) {
		return 1 // printed already
	}
	return program.ExitCode(err, "error", stderr)
}

// Command mbcas-lab simulates pods and their load without a cluster, and compares policies and this
// machine's kernel.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mbcas/mbcas/internal/lab/cli"
	"github.com/mbcas/mbcas/internal/program"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a run that cannot be stopped
	os.Exit(program.ExitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), "error", os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := cli.Command(cli.Streams{Out: stdout, Err: stderr}, version)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

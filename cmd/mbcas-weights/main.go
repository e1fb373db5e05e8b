//go:build linux

// Command mbcas-weights writes the CPU class and weight of pods for the agent beside it. It runs as root, without a
// token and without network, and sees nothing of the node but the kubepods cgroup of the cpu controller.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/weights"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(program.ExitCode(err, "mbcas-weights", os.Stderr))
}

// settings are the flags.
type settings struct {
	kubepods, record, socket string
	peer                     uint
	restore                  bool
	logLevel                 slog.Level
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("mbcas-weights", flag.ContinueOnError)
	f.StringVar(&s.kubepods, "kubepods", "/host/kubepods", "where the node's kubepods cgroup of the cpu controller "+
		"is mounted")
	f.StringVar(&s.record, "record", "/var/lib/mbcas-weights", "directory on the node's disk for the original values")
	f.StringVar(&s.socket, "socket", "/run/mbcas/weights.sock", "socket that the agent connects to")
	f.UintVar(&s.peer, "peer-uid", 65532, "user ID of the agent, the only one that may connect")
	f.BoolVar(&s.restore, "restore", false, "restore what an earlier run left, and end")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := program.Parse(f, args, stderr); err != nil {
		return settings{}, err
	}
	if s.peer > math.MaxUint32 {
		err := fmt.Errorf("--peer-uid=%d: want at most %d", s.peer, uint32(math.MaxUint32))
		return settings{}, program.UsageError{Err: err}
	}
	return s, nil
}

// The heap of a full node is a few MiB.
const (
	gcPercent   = 50
	memoryLimit = 16 << 20
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if program.AsksForVersion(args) {
		_, err := fmt.Fprintln(stdout, "mbcas-weights", version)
		return err
	}
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	log := slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: s.logLevel}))
	tree, err := weights.OpenTree(s.kubepods)
	if err != nil {
		return err
	}
	defer tree.Close()
	record, err := weights.NewRecord(s.record)
	if err != nil {
		return err
	}
	defer record.Close()
	keeper, err := weights.NewKeeper(tree, record, log)
	if err != nil {
		return err
	}
	if s.restore {
		return keeper.RestoreAll()
	}
	l, err := weights.Listen(s.socket)
	if err != nil {
		return err
	}
	log.Info("mbcas-weights starts", "version", version, "kubepods", s.kubepods, "record", s.record, "socket", s.socket)
	return weights.NewServer(keeper, uint32(s.peer), log).Run(ctx, l)
}

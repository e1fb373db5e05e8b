//go:build linux

package kernel_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// BenchmarkRead110Pods2Containers is the agent's tick on a full node: 330 cgroups. "files" are
// ordinary ones, so our own share; "cgroups" are the kernel's, with what it takes to count, and
// "cgroups-stalls" with the memory and IO pressure of the 220 containers.
func BenchmarkRead110Pods2Containers(b *testing.B) {
	for _, version := range []kernel.Version{kernel.V2, kernel.V1, kernel.Hybrid} {
		b.Run("files-"+string(version), func(b *testing.B) {
			tree, err := cgroups.New(benchDir(b), cgroups.Shape{Version: version})
			if err != nil {
				b.Fatal(err)
			}
			cfg := tree.Config()
			benchRead(b, cfg, pods(b, tree, 110, 2))
		})
	}
	b.Run("cgroups", func(b *testing.B) {
		c, targets := realPods(b)
		benchRead(b, kernel.Config{Root: c.root}, targets)
	})
	b.Run("cgroups-stalls", func(b *testing.B) {
		c, targets := realPods(b)
		benchRead(b, kernel.Config{Root: c.root, MemoryIOPressure: true}, targets)
	})
}

// BenchmarkFirstRead110Pods2Containers is the start: find the cgroups, open all files.
func BenchmarkFirstRead110Pods2Containers(b *testing.B) {
	c, targets := realPods(b)
	b.ReportAllocs()
	for b.Loop() {
		h, err := kernel.Open(kernel.Config{Root: c.root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		h.Read(targets)
		h.Close()
	}
}

func realPods(b *testing.B) (*testCgroups, []kernel.Target) {
	c := realCgroups(b)
	var targets []kernel.Target
	for i := range 110 {
		targets = append(targets, c.pod(uid(i), fmt.Sprintf("%064x", 2*i), fmt.Sprintf("%064x", 2*i+1)))
	}
	return c, targets
}

func benchRead(b *testing.B, cfg kernel.Config, targets []kernel.Target) {
	b.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	h, err := kernel.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for _, p := range h.Read(targets).Pods {
		for _, c := range p.Containers {
			if !c.Found {
				b.Fatalf("pod %s: container %s not found", p.Pod, c.ID)
			}
		}
	}
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		h.Read(targets)
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(h.Descriptors()), "files")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchDir is in memory where that is possible.
func benchDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "mbcas")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

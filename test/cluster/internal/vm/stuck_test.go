package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// These are lines of machines, with the time since their start.
const (
	waited  = "[   31.097483] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kubelet:133]\r\n"
	stopped = "[   87.097483] watchdog: BUG: soft lockup - CPU#1 stuck for 78s! [kubelet:133]\r\n"
)

func TestStuck(t *testing.T) {
	const line = "watchdog: BUG: soft lockup - CPU#1 stuck for 78s! [kubelet:133]\r"
	for log, want := range map[string]string{
		"": "", "node-init: done\n": "", waited: "", waited + waited: "",
		waited + stopped: line, stopped + waited: line,
	} {
		if got := stuck([]byte(log)); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

// TestWatch: what an earlier start left in the log does not count.
func TestWatch(t *testing.T) {
	log := filepath.Join(t.TempDir(), "vm.log")
	write := func(text string) {
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(stopped)
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		go Watch(ctx, log, int64(len(stopped)), end)
		time.Sleep(time.Hour)
		write(waited)
		time.Sleep(time.Hour)
		if err := context.Cause(ctx); err != nil {
			t.Fatalf("no CPU stopped: %v", err)
		}
		write(stopped)
		time.Sleep(2 * time.Second)
		if err := context.Cause(ctx); !errors.As(err, new(StuckError)) {
			t.Errorf("a CPU stopped: %v", err)
		}
	})
}

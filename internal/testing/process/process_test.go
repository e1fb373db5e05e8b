package process_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/process"
)

func TestEndsWithItsTest(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pid")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var pid int
	t.Run("ItRuns", func(t *testing.T) {
		process.Start(t, "sh", "-c", `echo $$ > "$0"; exec sleep 600`, pipe)
		text, err := os.ReadFile(pipe) // waits for the program
		if err != nil {
			t.Fatal(err)
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			t.Fatalf("the program says %q: %v", text, err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("process %d does not run during its test: %v", pid, err)
		}
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d outlives its test: %v", pid, err)
	}
}

func TestFreeAddress(t *testing.T) {
	l, err := net.Listen("tcp", process.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

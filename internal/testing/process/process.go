// Package process runs programs beside a test.
//
// What it promises, each a test of the same name:
//   - EndsWithItsTest: a program runs until its test ends.
//   - FreeAddress: nothing listens on the address.
package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// shown is how much of the end of a program's log is shown, in bytes.
const shown = 4000

// Start runs a program until the test ends. The end of its log is shown when the test fails. A program that cannot
// be started ends the test.
func Start(t testing.TB, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		log.Close()
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s:\n%s", filepath.Base(program), text[max(0, len(text)-shown):])
		}
	})
}

// FreeAddress is an address of this machine, with a port that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

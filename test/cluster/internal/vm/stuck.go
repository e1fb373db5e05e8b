package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"
)

// StuckError says that a CPU of the emulated machine stopped. The emulator runs each CPU in a thread of its own, and in
// rare cases one of them waits for another for ever.
type StuckError struct {
	Line string // of the machine's kernel
}

func (e StuckError) Error() string {
	return "a CPU of the emulated machine stopped; its kernel says: " + e.Line
}

// stuckLimit tells a CPU that stopped from one that waited for a busy host. The kernel reports both (its
// watchdog, Documentation/admin-guide/lockup-watchdogs.rst), every half minute with the time so far.
const stuckLimit = time.Minute

var lockup = regexp.MustCompile(`watchdog: BUG: soft lockup - CPU#\d+ stuck for (\d+)s!.*`)

// stuck is the first line of the log of a kernel that says that a CPU stopped for stuckLimit; "": none does.
func stuck(log []byte) string {
	for _, m := range lockup.FindAllSubmatch(log, -1) {
		if seconds, err := strconv.Atoi(string(m[1])); err == nil && time.Duration(seconds)*time.Second >= stuckLimit {
			return string(m[0])
		}
	}
	return ""
}

// Watch reads the log of a machine from the offset until ctx ends, and calls report once with a StuckError
// if a CPU of the machine stopped.
func Watch(ctx context.Context, log string, offset int64, report func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		raw, err := readFrom(log, offset)
		if err != nil {
			report(err)
			return
		}
		if line := stuck(raw); line != "" {
			report(StuckError{Line: line})
			return
		}
	}
}

func readFrom(path string, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return io.ReadAll(f)
}

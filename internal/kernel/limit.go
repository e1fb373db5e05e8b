//go:build linux

package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit raises this process's soft limit of open files to the hard one
// and returns it. A Host holds up to 6 files for each container and pod (v2: 4).
// The Go runtime does the same at start; call this to know the
// limit, and for programs that lowered it. Children inherit what this sets.
func RaiseFileLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	if limit.Cur >= limit.Max {
		return limit.Cur, nil
	}
	soft := limit.Cur
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return soft, fmt.Errorf("limit of open files: raise from %d to %d: %w", soft, limit.Max, err)
	}
	return limit.Cur, nil
}

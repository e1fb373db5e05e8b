//go:build linux

package kernel

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhyNoPressure: absent pressure is no fault, whatever way the kernel says it.
func TestWhyNoPressure(t *testing.T) {
	for err, want := range map[error]pressureStatus{
		nil:             pressureRead,
		unix.EOPNOTSUPP: pressureUnsupported,
		unix.ENODEV:     pressureGone,
		unix.ENOENT:     pressureGone,
		unix.EIO:        pressureRead, // a fault, reported as such
	} {
		if err != nil {
			err = fmt.Errorf("cpu.pressure: %w", err)
		}
		if got := pressureStatusOf(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

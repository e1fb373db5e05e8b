// Package work is the CPU work of one request, counted in iterations and not in time: a request
// costs the same however busy the machine is, and in every run of a comparison.
//
// Promises:
//   - The same count does the same work: TestBurnIsTheSameEveryTime.
//   - Calibration finds a count near the time asked for: TestCalibrateIsInProportion.
package work

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Burn does n iterations of arithmetic that the compiler cannot leave out, and returns its result.
func Burn(n int) uint64 {
	x := uint64(88172645463325252)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// Calibrate returns how many iterations cost target of CPU time on this machine. It measures the
// CPU time of its own thread, so other load does not count, and takes the fastest of
// several trials, so that interrupted ones do not either.
func Calibrate(target time.Duration) (int, error) {
	const trial, trials = 2_000_000, 15
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Duration(0)
	for range trials {
		before, err := threadTime()
		if err != nil {
			return 0, err
		}
		runtime.KeepAlive(Burn(trial))
		after, err := threadTime()
		if err != nil {
			return 0, err
		}
		if d := after - before; best == 0 || d < best {
			best = d
		}
	}
	if best <= 0 {
		return 0, fmt.Errorf("CPU clock of the thread does not advance over %d iterations", trial)
	}
	return max(1, int(float64(trial)*float64(target)/float64(best))), nil
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("CPU clock of the thread: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

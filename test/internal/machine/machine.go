//go:build linux

// Package machine measures how busy this machine is, and raises the priority of a program that
// measures.
//
// Promises:
//   - Guest time is not counted twice, and waiting for a disk is idle: TestCPUTicks.
package machine

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/internal/poll"
)

// Meter is the last sample of the CPU time of the whole machine.
type Meter struct {
	at         time.Time
	busy, idle int64 // ticks of a hundredth of a second
}

// Next is the busy and idle CPU since the last call, in thousandths of a core; not ok for the first
// one.
func (m *Meter) Next() (busy, idle int64, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	now := Meter{at: time.Now()}
	now.busy, now.idle = cpuTicks(string(text))
	seconds := now.at.Sub(m.at).Seconds()
	ok = !m.at.IsZero() && seconds > 0
	if ok {
		busy = int64(float64(now.busy-m.busy) * 10 / seconds)
		idle = int64(float64(now.idle-m.idle) * 10 / seconds)
	}
	*m = now
	return busy, idle, ok
}

// Busy is the CPU in use on this machine over some time, in thousandths of a core.
func Busy(ctx context.Context, over time.Duration) int64 {
	var m Meter
	m.Next()
	poll.Sleep(ctx, over)
	busy, _, _ := m.Next()
	return busy
}

// cpuTicks reads the line "cpu": user nice system idle iowait irq softirq steal. Guest time is in
// user already.
func cpuTicks(stat string) (busy, idle int64) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	for i, f := range fields {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		if i == 4 || i == 5 { // idle and waiting for a disk
			idle += v
		} else {
			busy += v
		}
	}
	return busy, idle
}

// Prefer gives this program a higher priority than the pods have: a load generator needs little
// CPU, but its delay would count as the service's. The cost is the same in every run.
func Prefer() error {
	const nice = -10
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads { // a thread's children inherit it
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil {
			return fmt.Errorf("nice %d: %w", nice, err)
		}
	}
	return nil
}

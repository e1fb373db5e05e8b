//go:build linux

package show

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// machine is the CPU time of the whole machine as it was read last.
type machine struct {
	at         time.Time
	busy, idle int64 // ticks of a hundredth of a second
}

// next is the busy and idle CPU since the last call, in thousandths of a core; not ok for the first one.
func (m *machine) next() (busy, idle int64, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	now := machine{at: time.Now()}
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
	var m machine
	m.next()
	wait(ctx, over)
	busy, _, _ := m.next()
	return busy
}

// cpuTicks reads the line "cpu": user nice system idle iowait irq softirq steal. Guest time is in user
// already.
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

// KernelAstray waits until the kernel's limit of every pod is the declared one, and names those that still
// differ at the end of patience.
func (s Show) KernelAstray(ctx context.Context, patience time.Duration) ([]string, error) {
	deadline := time.Now().Add(patience)
	for {
		var astray []string
		for _, p := range s.Ledger.Pods() {
			files, err := s.Node.Find(p.ContainerID)
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
			quota, err := files.Quota()
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
			if quota != p.Workload.Limit {
				astray = append(astray, fmt.Sprintf("%s has limit %dm in the kernel, declared %dm", p.Name, quota, p.Workload.Limit))
			}
		}
		if len(astray) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return astray, ctx.Err()
		}
		wait(ctx, 100*time.Millisecond)
	}
}

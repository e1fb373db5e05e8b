//go:build linux

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// BPFScheduler is the name of the sched_ext scheduler that is loaded, from the machine's sysfs; empty where none is, or
// where sysfs does not tell. Such a scheduler decides itself whether CPU limits hold
// (Documentation/scheduler/sched-ext.rst).
func BPFScheduler(sys string) string {
	dir := filepath.Join(sys, "kernel/sched_ext")
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil || strings.TrimSpace(string(state)) != "enabled" {
		return ""
	}
	name, err := os.ReadFile(filepath.Join(dir, "root/ops"))
	if err != nil {
		return "unknown"
	}
	return cmp.Or(strings.TrimSpace(string(name)), "unknown")
}

// procFiles are the machine-wide files of /proc. The descriptor of an absent file is -1.
type procFiles struct {
	dir                    string
	stat, pressure, uptime int
}

func openProc(dir string) procFiles {
	open := func(name string) int {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1
		}
		return fd
	}
	return procFiles{dir: dir, stat: open("stat"), pressure: open("pressure/cpu"), uptime: open("uptime")}
}

// read leaves unreadable values unknown. Missing pressure (psi=0) is no error.
func (p *procFiles) read(r *reader) (usage Total, pressure Pressure, err error) {
	t, err := parseFile(r, p.stat, parseProcStat)
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(p.dir, "stat"), err)
	} else {
		usage = KnownTotal(t)
	}
	pressure, failed := parseFile(r, p.pressure, parsePressure)
	switch {
	case errors.Is(failed, unix.EOPNOTSUPP):
		closeFD(&p.pressure)
	case failed != nil && p.pressure >= 0 && err == nil:
		err = fmt.Errorf("%s: %w", filepath.Join(p.dir, "pressure/cpu"), failed)
	}
	return usage, pressure, err
}

// idle is the idle time of all CPUs; unknown where it cannot be read.
func (p *procFiles) idle(r *reader) Total {
	t, err := parseFile(r, p.uptime, parseUptime)
	if err != nil {
		return Total{}
	}
	return KnownTotal(t)
}

func (p *procFiles) close() {
	closeFD(&p.stat)
	closeFD(&p.pressure)
	closeFD(&p.uptime)
}

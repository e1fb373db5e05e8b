//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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

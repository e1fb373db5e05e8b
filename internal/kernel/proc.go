//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// procFiles are the machine-wide files of /proc. The descriptor of an absent file is -1.
type procFiles struct {
	dir            string
	stat, pressure int
}

func (p *procFiles) open(dir string) {
	p.dir = dir
	p.stat, p.pressure = openOr(filepath.Join(dir, "stat")), openOr(filepath.Join(dir, "pressure/cpu"))
}

func openOr(path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// read leaves absent values unknown. Missing pressure (psi=0) is no error.
func (p *procFiles) read(r *reader) (usage Total, pressure Pressure, err error) {
	if p.stat < 0 {
		err = fmt.Errorf("%s: absent", filepath.Join(p.dir, "stat"))
	} else {
		var b []byte
		if b, err = r.file(p.stat); err == nil {
			var t time.Duration
			if t, err = parseProcStat(b); err == nil {
				usage = KnownTotal(t)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(p.dir, "stat"), err)
		}
	}
	if p.pressure < 0 {
		return usage, Pressure{}, err
	}
	b, perr := r.file(p.pressure)
	if perr == nil {
		pressure, perr = parsePressure(b)
	}
	if errors.Is(perr, unix.EOPNOTSUPP) {
		unix.Close(p.pressure)
		p.pressure, perr = -1, nil
	}
	if perr != nil && err == nil {
		err = fmt.Errorf("%s: %w", filepath.Join(p.dir, "pressure/cpu"), perr)
	}
	return usage, pressure, err
}

func (p *procFiles) close() {
	for _, fd := range []*int{&p.stat, &p.pressure} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

func (p *procFiles) descriptors() (n int) {
	for _, fd := range []int{p.stat, p.pressure} {
		if fd >= 0 {
			n++
		}
	}
	return n
}

//go:build linux

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The files of a cgroup that are held open.
const (
	usageFile    = iota // v1: cpuacct.usage
	statFile            // cpu.stat
	quotaFile           // v2: cpu.max, v1: cpu.cfs_quota_us
	periodFile          // v1: cpu.cfs_period_us
	burstFile           // v2: cpu.max.burst (5.14), v1: cpu.cfs_burst_us
	pressureFile        // cpu.pressure
	memoryFile          // memory.pressure
	ioFile              // io.pressure
	files
)

// The pressure files of a container: with its stalls, and without.
var (
	allPressure = []int{pressureFile, memoryFile, ioFile}
	cpuPressure = allPressure[:1]
)

// filesOf is the names per version; an empty one is not read.
func filesOf(v Version) [files]string {
	if v == V2 {
		return [files]string{"", "cpu.stat", "cpu.max", "", "cpu.max.burst", "cpu.pressure", "memory.pressure", "io.pressure"}
	}
	return [files]string{"cpuacct.usage", "cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us",
		"cpu.pressure", "memory.pressure", "io.pressure"}
}

// group is a cgroup with its files open. Descriptors belong to one incarnation of the cgroup: once
// it is removed they return ENODEV, even if one of the same name is created again
// (fs/kernfs/file.c, kernfs_get_active).
type group struct {
	path string // below the hierarchy's root
	fd   [files]int
	// quotaRead is the quota as last read in full. Period and burst are read again only when the
	// limit has changed or the group is rechecked: they hardly ever change, and each read costs.
	quotaRead  Quota
	quotaStale bool // read in full next time
	// pressureRead is the CPU pressure as last read, and pressureAt when that was; zero: never.
	pressureRead Pressure
	pressureAt   time.Time
}

// open opens the cgroup at path. Only the file with the CPU usage must exist: quota files are
// absent where the controller is off, burst on older kernels, pressure with psi=0. All files of one
// hierarchy are opened from one directory handle, so they are of one incarnation. Of the pressure
// files those in pressures are opened, and on v1 the usage only where it is asked for.
func (t tree) open(path string, usage bool, pressures []int) (*group, error) {
	g := &group{path: path, quotaStale: true}
	for i := range g.fd {
		g.fd[i] = -1
	}
	names := filesOf(t.version)
	parts := []struct {
		dir  string
		from []int
		need int
	}{
		{t.cpu, []int{statFile, quotaFile, periodFile, burstFile}, statFile},
		{t.acct, []int{usageFile}, usageFile},
		{t.psi, pressures, -1},
	}
	if !usage {
		parts[1].dir = ""
	}
	if t.version == V2 {
		parts = parts[:1]
		parts[0].from = append(parts[0].from, pressures...)
	}
	for _, part := range parts {
		if part.dir == "" {
			continue
		}
		err := openIn(filepath.Join(part.dir, path), names, part.from, part.need, &g.fd)
		if err != nil && part.need >= 0 {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// openIn opens the files from[...] of one directory into fd. Only the one in need must exist.
func openIn(dir string, names [files]string, from []int, need int, fd *[files]int) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(at)
	for _, i := range from {
		if names[i] == "" {
			continue
		}
		f, err := unix.Openat(at, names[i], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			fd[i] = f
			continue
		}
		optional := i == memoryFile || i == ioFile
		if i == need || !optional && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", filepath.Join(dir, names[i]), err)
		}
	}
	return nil
}

// close closes its files; a nil group has none.
func (g *group) close() {
	if g == nil {
		return
	}
	for i := range g.fd {
		g.closeFile(i)
	}
}

func (g *group) closeFile(i int) { closeFD(&g.fd[i]) }

// closeFD closes a file that is open.
func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// countOpen is the number of open files.
func countOpen(fds ...int) (n int) {
	for _, fd := range fds {
		if fd >= 0 {
			n++
		}
	}
	return n
}

// reader reads files into one buffer. 8 KiB is several times what the kernel prints; longer content
// is cut, and the parsers detect that.
type reader struct {
	buf   [8192]byte
	pread func(fd int, to []byte, offset int64) (int, error)
}

// file is the content of an open file. It is valid until the next call. A file that is not open
// does not exist.
func (r *reader) file(fd int) ([]byte, error) {
	if fd < 0 {
		return nil, unix.ENOENT
	}
	for {
		n, err := r.pread(fd, r.buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return r.buf[:n], nil
	}
}

// parseFile reads and parses an open file.
func parseFile[T any](r *reader, fd int, parse func([]byte) (T, error)) (v T, err error) {
	b, err := r.file(fd)
	if err != nil {
		return v, err
	}
	return parse(b)
}

// parseGroupFile reads and parses a file of g. An error names the file:
// "/sys/fs/cgroup/kubepods/.../cpu.stat: field usage_usec: missing".
func parseGroupFile[T any](t tree, r *reader, g *group, file int, parse func([]byte) (T, error)) (T, error) {
	v, err := parseFile(r, g.fd[file], parse)
	if err != nil {
		dir := t.cpu
		switch file {
		case usageFile:
			dir = t.acct
		case pressureFile, memoryFile, ioFile:
			dir = t.psi
		}
		err = fmt.Errorf("%s: %w", filepath.Join(dir, g.path, filesOf(t.version)[file]), err)
	}
	return v, err
}

// pressureStatus is whether the pressure of a group was read, or why not.
type pressureStatus int

const (
	pressureRead        pressureStatus = iota
	pressureUnsupported                // this kernel refuses it everywhere: EOPNOTSUPP
	pressureGone                       // its file is gone: hidden by cgroup.pressure, or the cgroup is gone
)

// stat reads the CPU usage, where its file is open, and the throttling. The time is that of the usage.
func (g *group) stat(t tree, r *reader, now func() time.Time) (s Stat, at time.Time, err error) {
	if t.version == V2 {
		s, err = parseGroupFile(t, r, g, statFile, parseStat)
		return s, now(), err
	}
	if s, err = parseGroupFile(t, r, g, statFile, parseStatV1); err == nil && g.fd[usageFile] >= 0 {
		s.Usage, err = parseGroupFile(t, r, g, usageFile, parseUsageV1)
	}
	return s, now(), err
}

// quota is zero where the files are absent.
func (g *group) quota(t tree, r *reader) (q Quota, err error) {
	if g.fd[quotaFile] < 0 {
		return Quota{}, nil
	}
	if t.version == V2 {
		q, err = parseGroupFile(t, r, g, quotaFile, parseMax)
	} else {
		q.Limit, err = parseGroupFile(t, r, g, quotaFile, parseQuotaV1)
	}
	if err != nil {
		return Quota{}, err
	}
	if !g.quotaStale && q.Limit == g.quotaRead.Limit {
		return Quota{Limit: q.Limit, Period: cmp.Or(q.Period, g.quotaRead.Period), Burst: g.quotaRead.Burst}, nil
	}
	g.quotaStale = true // until all of it is read
	if g.fd[periodFile] >= 0 {
		if q.Period, err = parseGroupFile(t, r, g, periodFile, parsePeriodV1); err != nil {
			return Quota{}, err
		}
	}
	if g.fd[burstFile] >= 0 {
		if q.Burst, err = parseGroupFile(t, r, g, burstFile, parseBurst); err != nil {
			return Quota{}, err
		}
	}
	g.quotaRead, g.quotaStale = q, false
	return q, nil
}

// pressure reads one of the pressure files. It never fails the group: a kernel may have none. Only
// a file with invalid content is an error.
func (g *group) pressure(t tree, r *reader, file int) (Pressure, pressureStatus, error) {
	if g.fd[file] < 0 {
		return Pressure{}, pressureRead, nil
	}
	p, err := parseGroupFile(t, r, g, file, parsePressure)
	if why := pressureStatusOf(err); why != pressureRead {
		return Pressure{}, why, nil
	}
	return p, pressureRead, err
}

// pressureStatusOf separates the errors that are no fault. Kernels that have pressure but were
// booted without psi=1 (RHEL and its derivatives) return EOPNOTSUPP.
func pressureStatusOf(err error) pressureStatus {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return pressureUnsupported
	case gone(err):
		return pressureGone
	}
	return pressureRead
}

// gone says that a cgroup, or a file of it, was removed.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

//go:build linux

// Package cgroup reads the counters of one container on this machine. It shares no code with the
// agent, so that an error of the agent cannot hide in the measurement.
//
// Promises:
//   - Versions 1 and 2 give the same counters: TestReadsBothVersions.
//   - A container is found wherever its runtime put it: TestFinds.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Node is the kind of cgroups that this machine has.
type Node struct {
	Cgroup string // "v1", "v2" or "hybrid"
	PSI    bool
	cpu    string // where quotas and throttling are
	acct   string // where usage is
}

// Detect finds the kind of cgroups at root, usually /sys/fs/cgroup.
func Detect(root string) (Node, error) {
	n := Node{PSI: exists("/proc/pressure/cpu")}
	switch {
	case exists(filepath.Join(root, "cgroup.controllers")):
		n.Cgroup, n.cpu, n.acct = "v2", root, root
	case exists(filepath.Join(root, "cpu", "cpu.stat")) || exists(filepath.Join(root, "cpu", "cpu.shares")):
		n.Cgroup, n.cpu, n.acct = "v1", filepath.Join(root, "cpu"), filepath.Join(root, "cpuacct")
		if exists(filepath.Join(root, "unified", "cgroup.controllers")) {
			n.Cgroup = "hybrid"
		}
	default:
		return n, fmt.Errorf("%s: neither cgroup v2 nor a v1 cpu controller is mounted there", root)
	}
	return n, nil
}

// Container is the files of one container.
type Container struct {
	v2        bool
	cpu, acct string
}

// Find searches for the container with the runtime's id (without "containerd://").
func (n Node) Find(id string) (Container, error) {
	c := Container{v2: n.Cgroup == "v2"}
	for _, t := range []struct {
		root string
		dir  *string
	}{{n.cpu, &c.cpu}, {n.acct, &c.acct}} {
		dir, err := find(t.root, id)
		if err != nil {
			return c, err
		}
		*t.dir = dir
	}
	return c, nil
}

var errFound = errors.New("found")

func find(root, id string) (found string, err error) {
	if id == "" {
		return "", errors.New("the container has no ID: is it running?")
	}
	tops, err := filepath.Glob(filepath.Join(root, "kubepods*"))
	if err != nil {
		return "", err
	}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // ended during the search
				return nil
			case err != nil:
				return err
			case d.IsDir() && strings.Contains(d.Name(), id):
				found = path
				return errFound
			}
			return nil
		})
		if err != nil && !errors.Is(err, errFound) {
			return "", err
		}
		if found != "" {
			return found, nil
		}
	}
	return "", fmt.Errorf("container %s has no cgroup below %s/kubepods*", id, root)
}

// Sample is a container's counters at a time.
type Sample struct {
	At                 time.Time
	Usage, Throttled   time.Duration
	Periods, Throttles int64
	// Quota is the limit in thousandths of a core; 0: none.
	Quota int64
}

// Read reads all of them.
func (c Container) Read() (Sample, error) {
	r := Sample{At: time.Now()}
	stat, err := os.ReadFile(filepath.Join(c.cpu, "cpu.stat"))
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(stat)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue // a key that is none of ours
		}
		switch key {
		case "nr_periods":
			r.Periods = v
		case "nr_throttled":
			r.Throttles = v
		case "throttled_time": // v1
			r.Throttled = time.Duration(v)
		case "throttled_usec": // v2
			r.Throttled = time.Duration(v) * time.Microsecond
		case "usage_usec": // v2
			r.Usage = time.Duration(v) * time.Microsecond
		}
	}
	if !c.v2 {
		usage, err := readInt(filepath.Join(c.acct, "cpuacct.usage"))
		if err != nil {
			return r, err
		}
		r.Usage = time.Duration(usage)
	}
	r.Quota, err = c.Quota()
	return r, err
}

// Quota reads the limit alone, in thousandths of a core; 0: none.
func (c Container) Quota() (int64, error) {
	if c.v2 {
		text, err := os.ReadFile(c.QuotaFile())
		if err != nil {
			return 0, err
		}
		quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if quota == "max" {
			return 0, nil
		}
		q, err1 := strconv.ParseInt(quota, 10, 64)
		p, err2 := strconv.ParseInt(period, 10, 64)
		if err := errors.Join(err1, err2); err != nil || p <= 0 {
			return 0, fmt.Errorf("%s: %q: want a quota and a period", c.QuotaFile(), text)
		}
		return q * 1000 / p, nil
	}
	q, err := readInt(c.QuotaFile())
	if err != nil || q < 0 {
		return 0, err
	}
	p, err := readInt(filepath.Join(c.cpu, "cpu.cfs_period_us"))
	if err != nil || p <= 0 {
		return 0, errors.Join(err, fmt.Errorf("%s: period is %d", c.cpu, p))
	}
	return q * 1000 / p, nil
}

// QuotaFile is the file that changes when the kernel's limit does.
func (c Container) QuotaFile() string {
	if c.v2 {
		return filepath.Join(c.cpu, "cpu.max")
	}
	return filepath.Join(c.cpu, "cpu.cfs_quota_us")
}

func readInt(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q: want a number", path, text)
	}
	return v, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// Container is the folders of one container.
type Container struct {
	v2        bool
	cpu, acct string
}

// Find searches for the container with the runtime's id (without "containerd://").
func (n Node) Find(id string) (Container, error) {
	cpu, errCPU := find(n.cpu, id)
	acct, errAcct := find(n.acct, id)
	return Container{v2: n.Cgroup == "v2", cpu: cpu, acct: acct}, errors.Join(errCPU, errAcct)
}

func find(root, id string) (string, error) {
	if id == "" {
		return "", errors.New("the container has no ID: is it running?")
	}
	// Between kubepods and a container is its pod, and above that, unless it is Guaranteed, its class.
	for _, above := range []string{"*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(root, "kubepods*", above, "*"+id+"*"))
		if err != nil || len(found) > 0 {
			return strings.Join(found[:min(1, len(found))], ""), err
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
func (c Container) Read() (s Sample, err error) {
	s.At = time.Now()
	text, err := os.ReadFile(filepath.Join(c.cpu, "cpu.stat"))
	if err != nil {
		return s, err
	}
	stat := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		stat[key], _ = strconv.ParseInt(value, 10, 64) // what is no number is none of those below
	}
	s.Periods, s.Throttles = stat["nr_periods"], stat["nr_throttled"]
	if c.v2 {
		s.Throttled = time.Duration(stat["throttled_usec"]) * time.Microsecond
		s.Usage = time.Duration(stat["usage_usec"]) * time.Microsecond
	} else {
		usage, err := numbers(filepath.Join(c.acct, "cpuacct.usage"))
		if err != nil {
			return s, err
		}
		s.Throttled, s.Usage = time.Duration(stat["throttled_time"]), time.Duration(usage[0])
	}
	s.Quota, err = c.Quota()
	return s, err
}

// Quota reads the limit alone, in thousandths of a core; 0: none.
func (c Container) Quota() (int64, error) {
	files := []string{c.QuotaFile()}
	if !c.v2 {
		files = append(files, filepath.Join(c.cpu, "cpu.cfs_period_us"))
	}
	n, err := numbers(files...)
	switch {
	case err != nil:
		return 0, err
	case len(n) != 2 || n[1] <= 0:
		return 0, fmt.Errorf("%v: %v: want a quota and a period", files, n)
	}
	return max(0, n[0]*1000/n[1]), nil
}

// FindPod searches for the cgroup of the pod with that UID.
func (n Node) FindPod(uid string) (Container, error) {
	var c Container
	for _, above := range []string{"kubepods*", "kubepods*/*"} {
		for _, name := range []string{uid, strings.ReplaceAll(uid, "-", "_")} { // the driver systemd
			found, err := filepath.Glob(filepath.Join(n.cpu, above, "*"+name+"*"))
			if err != nil {
				return c, err
			}
			if len(found) > 0 {
				return Container{v2: n.Cgroup == "v2", cpu: found[0]}, nil
			}
		}
	}
	return c, fmt.Errorf("pod %s has no cgroup below %s/kubepods*", uid, n.cpu)
}

// Kill kills the processes of the container.
func (c Container) Kill() error {
	ids, err := numbers(filepath.Join(c.cpu, "cgroup.procs"))
	for _, id := range ids {
		if err := syscall.Kill(int(id), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d of %s: %w", id, c.cpu, err)
		}
	}
	return err
}

// QuotaFile is the file that changes when the kernel's limit does.
func (c Container) QuotaFile() string {
	if c.v2 {
		return filepath.Join(c.cpu, "cpu.max")
	}
	return filepath.Join(c.cpu, "cpu.cfs_quota_us")
}

// numbers are those in the files, at least one in each; "max" is -1.
func numbers(files ...string) (all []int64, err error) {
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(strings.ReplaceAll(string(text), "max", "-1"))
		if len(fields) == 0 {
			return nil, fmt.Errorf("%s is empty", path)
		}
		for _, f := range fields {
			v, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: want numbers", path, text)
			}
			all = append(all, v)
		}
	}
	return all, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

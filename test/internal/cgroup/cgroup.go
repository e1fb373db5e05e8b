//go:build linux

// Package cgroup reads the counters of one container on this machine, and puts its pod into the
// kernel's idle class. It shares no code with the agent, so that an error of the agent cannot hide
// in the measurement.
//
// Promises:
//   - Versions 1 and 2 give the same counters: TestReadsBothVersions.
//   - A container is found wherever its runtime put it: TestFinds.
//   - The class of a pod is read and written in the pod's own folder, and its
//     weight comes back: TestPodClass, and TestRealClass with the kernel.
package cgroup

import (
	"errors"
	"fmt"
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

// Kubepods is the folder of all pods, where their CPU is controlled. The kubelet makes it.
func (n Node) Kubepods() (string, error) {
	for _, name := range []string{"kubepods.slice", "kubepods"} {
		if folder := filepath.Join(n.cpu, name); exists(folder) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s has neither kubepods nor kubepods.slice: does the kubelet run?", n.cpu)
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

// QuotaFile is the file that changes when the kernel's limit does.
func (c Container) QuotaFile() string {
	if c.v2 {
		return filepath.Join(c.cpu, "cpu.max")
	}
	return filepath.Join(c.cpu, "cpu.cfs_quota_us")
}

// Class is the class and weight of a pod's cgroup.
type Class struct {
	Idle bool // in the kernel's idle class, which has no weight
	// Weight is that of cpu.weight (v2) or cpu.shares (v1).
	Weight int64
}

// PodClass is that of the container's pod. The kernel has the idle class since Linux 5.15.
func (c Container) PodClass() (class Class, err error) {
	n, err := numbers(c.podFile("cpu.idle"), c.podFile(c.weightFile()))
	if err != nil {
		return class, err
	}
	return Class{Idle: n[0] == 1, Weight: n[1]}, nil
}

// SetPodClass gives the container's pod a class. The kernel forgets the weight of a pod that enters
// the idle class and refuses one there, so the weight is written after a pod has left it.
func (c Container) SetPodClass(class Class) error {
	if class.Idle {
		return overwrite(c.podFile("cpu.idle"), 1)
	}
	if err := overwrite(c.podFile("cpu.idle"), 0); err != nil {
		return err
	}
	return overwrite(c.podFile(c.weightFile()), class.Weight)
}

func (c Container) weightFile() string {
	if c.v2 {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// podFile is one of the pod's, whose folder is above those of its containers.
func (c Container) podFile(name string) string { return filepath.Join(filepath.Dir(c.cpu), name) }

// overwrite writes a number to a file that is there.
func overwrite(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return errors.Join(err, f.Close())
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

//go:build linux

package kernelrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// period is the CFS period of every group.
const period = 100 * time.Millisecond

// tree is where the groups of a run are made: one folder per hierarchy that is needed.
type tree struct {
	v2     bool
	quota  string // folder of the run in the hierarchy with quota and weight
	usage  string // the same in that with cpuacct.usage; v1 only
	unific string // the same in the v2 hierarchy, for pressure; empty where there is none
}

const root = "/sys/fs/cgroup"

// prefix of the folders of runs; the process ID follows.
const prefix = "mbcas-lab-"

// findTree finds the machine's cgroup hierarchies.
func findTree() (*tree, error) {
	var fsInfo unix.Statfs_t
	if err := unix.Statfs(root, &fsInfo); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnsupported, root, err)
	}
	if fsInfo.Type == unix.CGROUP2_SUPER_MAGIC {
		controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err != nil || !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " cpu ") {
			return nil, fmt.Errorf("%w: %s has no controller cpu", ErrUnsupported, root)
		}
		return &tree{v2: true, quota: root, unific: root}, nil
	}
	t := &tree{quota: hierarchy("cpu.shares", "cpu"), usage: hierarchy("cpuacct.usage", "cpuacct")}
	if t.quota == "" || t.usage == "" {
		return nil, fmt.Errorf("%w: no cgroup hierarchy with cpu and cpuacct below %s", ErrUnsupported, root)
	}
	if err := unix.Statfs(filepath.Join(root, "unified"), &fsInfo); err == nil && fsInfo.Type == unix.CGROUP2_SUPER_MAGIC {
		t.unific = filepath.Join(root, "unified")
	}
	return t, nil
}

// hierarchy is the v1 hierarchy that has a file; empty: there is none.
func hierarchy(file, controller string) string {
	for _, name := range []string{controller, "cpu,cpuacct"} {
		dir := filepath.Join(root, name)
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir
		}
	}
	return ""
}

// makeTree makes the folder of this run, and clears away those of runs that were killed.
func makeTree() (*tree, error) {
	t, err := findTree()
	if err != nil {
		return nil, err
	}
	for _, dir := range t.dirs() {
		sweep(dir)
	}
	for _, dir := range []*string{&t.quota, &t.usage, &t.unific} {
		if *dir != "" {
			*dir = filepath.Join(*dir, prefix+strconv.Itoa(os.Getpid()))
		}
	}
	if t.v2 {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	for _, dir := range t.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnsupported, err), t.remove())
		}
	}
	if t.v2 {
		if err := os.WriteFile(filepath.Join(t.quota, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnsupported, err), t.remove())
		}
	}
	return t, nil
}

func (t *tree) dirs() []string {
	var dirs []string
	for _, dir := range []string{t.quota, t.usage, t.unific} {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// sweep removes the groups of runs whose process has ended.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	for _, path := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), prefix))
		if err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		groups, _ := filepath.Glob(filepath.Join(path, "*", "cgroup.procs"))
		for _, g := range groups {
			_ = os.Remove(filepath.Dir(g)) // busy ones stay
		}
		_ = os.Remove(path)
	}
}

// remove removes the run's folders and all groups in them.
func (t *tree) remove() error {
	var errs []error
	for _, dir := range t.dirs() {
		groups, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
		for _, g := range groups {
			errs = append(errs, rmdir(filepath.Dir(g)))
		}
		errs = append(errs, rmdir(dir))
	}
	return errors.Join(errs...)
}

// rmdir waits for the kernel to let a group go whose processes have just ended.
func rmdir(dir string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// group is one pod's cgroup, in each hierarchy.
type group struct {
	tree *tree
	name string
}

func (t *tree) add(name string) (*group, error) {
	for _, dir := range t.dirs() {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	return &group{t, name}, nil
}

func (g *group) enter(pid int) error {
	for _, dir := range g.tree.dirs() {
		if err := write(filepath.Join(dir, g.name, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// setRequest sets the weight as the kubelet does.
func (g *group) setRequest(request cpu.Milli) error {
	return g.setShares(max(2, int64(request)*1024/1000))
}

// setClass sets the idle class, or another class and its weight. The kernel takes no weight of a group in the idle
// class, and forgets the one it had (sched_group_set_idle in kernel/sched/fair.c).
func (g *group) setClass(c sim.Class, request cpu.Milli) error {
	idle := filepath.Join(g.tree.quota, g.name, "cpu.idle")
	if c.Idle {
		return write(idle, "1")
	}
	if err := write(idle, "0"); err != nil {
		return err
	}
	if c.Shares > 0 {
		return g.setShares(int64(c.Shares))
	}
	return g.setRequest(request)
}

func (g *group) setShares(shares int64) error {
	if g.tree.v2 {
		return write(filepath.Join(g.tree.quota, g.name, "cpu.weight"), strconv.FormatInt(1+(shares-2)*9999/262142, 10))
	}
	return write(filepath.Join(g.tree.quota, g.name, "cpu.shares"), strconv.FormatInt(shares, 10))
}

// setLimit sets the quota; 0 removes it.
func (g *group) setLimit(limit cpu.Milli) error {
	quota := "-1"
	if g.tree.v2 {
		quota = "max"
	}
	if limit > 0 {
		quota = strconv.FormatInt(int64(float64(period.Microseconds())*limit.Cores()), 10)
	}
	if g.tree.v2 {
		return write(filepath.Join(g.tree.quota, g.name, "cpu.max"), fmt.Sprintf("%s %d", quota, period.Microseconds()))
	}
	return write(filepath.Join(g.tree.quota, g.name, "cpu.cfs_quota_us"), quota)
}

func write(file, text string) error { return os.WriteFile(file, []byte(text), 0) }

// counters is what the kernel counts about a group.
type counters struct {
	sim.Counters
	pressure time.Duration
}

func (g *group) read() (c counters, err error) {
	stat, err := fields(filepath.Join(g.tree.quota, g.name, "cpu.stat"))
	if err != nil {
		return c, err
	}
	c.Periods, c.Throttled = stat["nr_periods"], stat["nr_throttled"]
	if g.tree.v2 {
		c.Usage = time.Duration(stat["usage_usec"]) * time.Microsecond
		c.ThrottledTime = time.Duration(stat["throttled_usec"]) * time.Microsecond
	} else {
		c.ThrottledTime = time.Duration(stat["throttled_time"])
		text, err := os.ReadFile(filepath.Join(g.tree.usage, g.name, "cpuacct.usage"))
		if err != nil {
			return c, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return c, fmt.Errorf("cpuacct.usage of %s: %w", g.name, err)
		}
		c.Usage = time.Duration(ns)
	}
	if g.tree.unific != "" {
		c.pressure = pressure(filepath.Join(g.tree.unific, g.name, "cpu.pressure"))
	}
	return c, nil
}

// fields reads lines of a name and a number.
func fields(file string) (map[string]uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, name, err)
			}
			values[name] = n
		}
	}
	return values, nil
}

// pressure is the total of the line "some"; 0 where the kernel has none.
func pressure(file string) time.Duration {
	text, _ := os.ReadFile(file)
	some, _, _ := strings.Cut(string(text), "\n")
	_, total, _ := strings.Cut(some, "total=")
	us, _ := strconv.ParseInt(total, 10, 64)
	return time.Duration(us) * time.Microsecond
}

// machine is what the kernel counts about all CPUs: how long they were busy, and how much of each
// the hypervisor kept.
type machine struct {
	busy   time.Duration
	stolen []time.Duration
}

// jiffy is the unit of /proc/stat.
const jiffy = 10 * time.Millisecond

// readMachine reads /proc/stat: a line for all CPUs, and then one for each.
func readMachine() (m machine, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") {
			break
		}
		if len(f) < 9 {
			return m, fmt.Errorf("/proc/stat: unexpected line %q", line)
		}
		var n [8]time.Duration // user, nice, system, idle, iowait, irq, softirq, steal
		for i := range n {
			v, err := strconv.ParseInt(f[i+1], 10, 64)
			if err != nil {
				return m, fmt.Errorf("/proc/stat: %w", err)
			}
			n[i] = time.Duration(v) * jiffy
		}
		if f[0] == "cpu" {
			m.busy = n[0] + n[1] + n[2] + n[5] + n[6]
		} else {
			m.stolen = append(m.stolen, n[7])
		}
	}
	if len(m.stolen) == 0 {
		return m, errors.New("/proc/stat has no lines of CPUs")
	}
	return m, nil
}

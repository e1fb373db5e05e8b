package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
)

// Tree is a node's cgroup and proc files in a directory. It is not for use by
// several goroutines; a kernel.Host that reads while it is written may see old and new mixed.
type Tree struct {
	Shape
	dir  string
	node kernel.NodeSample
	pods map[string]QoS
	last map[string]kernel.Group // by path
}

// New writes the tree of a node without pods into dir, which must exist.
func New(dir string, shape Shape) (*Tree, error) {
	t := &Tree{Shape: shape.withDefaults(), dir: dir, pods: make(map[string]QoS), last: make(map[string]kernel.Group)}
	root := filepath.Join(dir, "cgroup")
	if t.Version == kernel.V2 {
		if err := write(filepath.Join(root, "cgroup.controllers"), "cpuset cpu io memory pids\n"); err != nil {
			return nil, err
		}
	} else {
		if err := os.MkdirAll(filepath.Join(root, "cpu,cpuacct"), 0o755); err != nil {
			return nil, err
		}
		for _, name := range []string{"cpu", "cpuacct"} {
			if err := os.Symlink("cpu,cpuacct", filepath.Join(root, name)); err != nil {
				return nil, err
			}
		}
	}
	if t.Version == kernel.Hybrid {
		if err := write(filepath.Join(root, "unified/cgroup.controllers"), "\n"); err != nil {
			return nil, err
		}
	}
	if err := t.Write(t.Kubepods(), kernel.Group{Pressure: kernel.Pressure{Known: true}}); err != nil {
		return nil, err
	}
	return t, t.UpdateNode(func(n *kernel.NodeSample) { n.Pressure.Known = true })
}

// Config reads this tree.
func (t *Tree) Config() kernel.Config {
	return kernel.Config{Root: filepath.Join(t.dir, "cgroup"), Proc: filepath.Join(t.dir, "proc")}
}

// AddPod makes a pod's cgroup and those of its containers. Counters are zero,
// pressures are known and there is no quota. Counters of a pod that was there before start anew.
func (t *Tree) AddPod(qos QoS, uid string, containers ...string) error {
	t.pods[uid] = qos
	fresh := func() kernel.Group {
		known := kernel.Pressure{Known: true}
		return kernel.Group{Pressure: known, Stalls: &kernel.Stalls{Memory: known, IO: known}}
	}
	if err := t.Write(t.Pod(qos, uid), fresh()); err != nil {
		return err
	}
	for _, id := range containers {
		if err := t.Write(t.Container(qos, uid, id), fresh()); err != nil {
			return err
		}
	}
	return nil
}

// Update changes the counters of a container, or of the pod itself for
// an empty container: f gets what was last written.
func (t *Tree) Update(uid, container string, f func(*kernel.Group)) error {
	path, err := t.path(uid, container)
	if err != nil {
		return err
	}
	g := t.last[path]
	f(&g)
	return t.Write(path, g)
}

// Remove removes a container's cgroup, or the pod's with all in it for an empty container.
func (t *Tree) Remove(uid, container string) error {
	path, err := t.path(uid, container)
	if err != nil {
		return err
	}
	if container == "" {
		delete(t.pods, uid)
	}
	for at := range t.last {
		if at != path && !strings.HasPrefix(at, path+"/") {
			continue
		}
		for _, f := range t.files(at, kernel.Group{}) {
			_ = os.Truncate(f.path, 0) // what a reader holds open says so, too
		}
		delete(t.last, at)
	}
	for _, top := range t.tops() {
		if err := os.RemoveAll(filepath.Join(top, path)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) path(uid, container string) (string, error) {
	qos, ok := t.pods[uid]
	if !ok {
		return "", fmt.Errorf("no pod %s in the tree", uid)
	}
	if container == "" {
		return t.Pod(qos, uid), nil
	}
	return t.Container(qos, uid, container), nil
}

// UpdateNode changes the totals of the machine: f gets what was last written.
func (t *Tree) UpdateNode(f func(*kernel.NodeSample)) error {
	f(&t.node)
	const tick = 10 * time.Millisecond
	proc := filepath.Join(t.dir, "proc")
	if err := write(filepath.Join(proc, "stat"), fmt.Sprintf("cpu  %d 0 0 1000 0 0 0 0 0 0\nbtime 1700000000\n", t.node.Usage.Time/tick)); err != nil {
		return err
	}
	if idle := t.node.Idle; idle.Known {
		text := fmt.Sprintf("1000.00 %d.%02d\n", idle.Time/time.Second, idle.Time%time.Second/tick)
		if err := write(filepath.Join(proc, "uptime"), text); err != nil {
			return err
		}
	}
	if t.node.Pressure.Known {
		if err := write(filepath.Join(proc, "pressure/cpu"), pressure(t.node.Pressure)); err != nil {
			return err
		}
	}
	g := t.last[t.Kubepods()]
	g.Stat.Usage = t.node.Kubepods.Time
	return t.Write(t.Kubepods(), g)
}

// Write writes the files of the cgroup at path, below the hierarchy's root,
// and makes its directories. Pressure that is not known has no file.
func (t *Tree) Write(path string, g kernel.Group) error {
	for _, f := range t.files(path, g) {
		if err := write(f.path, f.text); err != nil {
			return err
		}
	}
	t.last[path] = g
	return nil
}

// tops are the directories that have the cgroups.
func (t *Tree) tops() []string {
	root := filepath.Join(t.dir, "cgroup")
	switch t.Version {
	case kernel.V1:
		return []string{filepath.Join(root, "cpu,cpuacct")}
	case kernel.Hybrid:
		return []string{filepath.Join(root, "cpu,cpuacct"), filepath.Join(root, "unified")}
	}
	return []string{root}
}

type file struct{ path, text string }

func (t *Tree) files(path string, g kernel.Group) []file {
	us := time.Duration.Microseconds
	period := g.Quota.Period
	if period == 0 {
		period = 100 * time.Millisecond
	}
	tops := t.tops()
	dir := filepath.Join(tops[0], path)
	var out []file
	add := func(dir, name, format string, args ...any) {
		out = append(out, file{filepath.Join(dir, name), fmt.Sprintf(format, args...)})
	}
	if t.Version == kernel.V2 {
		limit := "max"
		if g.Quota.Limit != 0 {
			limit = fmt.Sprint(us(g.Quota.Limit))
		}
		add(dir, "cpu.stat", "usage_usec %d\nuser_usec %d\nsystem_usec 0\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\nnr_bursts 0\nburst_usec 0\n",
			us(g.Stat.Usage), us(g.Stat.Usage), g.Stat.Periods, g.Stat.Throttled, us(g.Stat.ThrottledTime))
		add(dir, "cpu.max", "%s %d\n", limit, us(period))
		add(dir, "cpu.max.burst", "%d\n", us(g.Quota.Burst))
	} else {
		limit := int64(-1)
		if g.Quota.Limit != 0 {
			limit = us(g.Quota.Limit)
		}
		add(dir, "cpuacct.usage", "%d\n", g.Stat.Usage)
		add(dir, "cpu.stat", "nr_periods %d\nnr_throttled %d\nthrottled_time %d\n", g.Stat.Periods, g.Stat.Throttled, g.Stat.ThrottledTime)
		add(dir, "cpu.cfs_quota_us", "%d\n", limit)
		add(dir, "cpu.cfs_period_us", "%d\n", us(period))
		add(dir, "cpu.cfs_burst_us", "%d\n", us(g.Quota.Burst))
	}
	stalls := kernel.Stalls{}
	if g.Stalls != nil {
		stalls = *g.Stalls
	}
	for _, f := range []struct {
		name string
		p    kernel.Pressure
	}{{"cpu.pressure", g.Pressure}, {"memory.pressure", stalls.Memory}, {"io.pressure", stalls.IO}} {
		if f.p.Known && t.Version != kernel.V1 {
			add(filepath.Join(tops[len(tops)-1], path), f.name, "%s", pressure(f.p))
		}
	}
	return out
}

func pressure(p kernel.Pressure) string {
	return fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n",
		p.Some.Microseconds(), p.Full.Microseconds())
}

// write replaces the text of a file in place, so that a reader that has it open reads the new text.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

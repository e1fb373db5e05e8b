//go:build linux

package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
)

// Real is a kubepods tree in real cgroups of this machine, below a cgroup of its own. All of it is
// removed at the end of the test.
type Real struct {
	Shape
	T     testing.TB
	Tops  []string // that cgroup in each hierarchy; on v1 the cpu hierarchy is the first
	Dir   string   // the Root of a kernel.Config
	paths []string // made, parents first
}

var realTrees atomic.Int64

// prefix begins the name of the cgroup of a Real.
const prefix = "mbcas-test-"

// IsReal says whether a cgroup of that name is the top of a Real, of this program or of another one that runs beside it.
func IsReal(name string) bool { return strings.HasPrefix(name, prefix) }

// NewReal makes a tree without pods. It skips the test where no cgroups can be made.
func NewReal(t testing.TB) *Real {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	const mount = "/sys/fs/cgroup"
	c := &Real{T: t, Shape: Shape{Driver: kernel.Cgroupfs}}
	var fs unix.Statfs_t
	if err := unix.Statfs(mount, &fs); err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	name := fmt.Sprintf(prefix+"%d-%d", os.Getpid(), realTrees.Add(1))
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		c.Version, c.Dir = kernel.V2, filepath.Join(mount, name)
		c.Tops = []string{c.Dir}
	} else {
		c.Dir = t.TempDir()
		for _, h := range []string{"cpu", "cpuacct", "unified"} {
			top := filepath.Join(mount, h)
			if unix.Statfs(top, &fs) != nil || fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
				continue
			}
			top = filepath.Join(top, name)
			c.Tops = append(c.Tops, top)
			if err := os.Symlink(top, filepath.Join(c.Dir, h)); err != nil {
				t.Fatal(err)
			}
		}
		if c.Version = kernel.V1; len(c.Tops) == 3 {
			c.Version = kernel.Hybrid
		}
		if len(c.Tops) < 2 {
			t.Skipf("no CPU cgroups in %s", mount)
		}
	}
	t.Cleanup(func() {
		for _, path := range slices.Backward(slices.Clone(c.paths)) {
			c.Rmdir(path)
		}
	})
	c.Mkdir("")
	return c
}

// Mkdir makes the cgroup at path and those above it.
func (c *Real) Mkdir(path string) {
	c.T.Helper()
	if path != "" {
		if up := filepath.Dir(path); up != "." && !slices.Contains(c.paths, up) {
			c.Mkdir(up)
		}
	}
	c.paths = append(c.paths, path)
	for _, top := range c.Tops {
		dir := filepath.Join(top, path)
		if c.Version == kernel.V2 {
			control := filepath.Join(filepath.Dir(dir), "cgroup.subtree_control")
			if err := os.WriteFile(control, []byte("+cpu"), 0o644); err != nil {
				c.T.Skipf("cpu controller: %v", err)
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			c.T.Fatal(err)
		}
	}
}

// Rmdir removes one cgroup; the kernel may need a moment after its last process ended.
func (c *Real) Rmdir(path string) {
	c.T.Helper()
	c.paths = slices.DeleteFunc(c.paths, func(p string) bool { return p == path })
	for _, top := range c.Tops {
		dir := filepath.Join(top, path)
		Eventually(c.T, "rmdir "+dir, func() bool {
			err := unix.Rmdir(dir)
			return err == nil || err == unix.ENOENT
		})
	}
}

// AddPod makes a pod's cgroup and those of its containers.
func (c *Real) AddPod(qos QoS, uid string, containers ...string) kernel.Target {
	c.T.Helper()
	c.Mkdir(c.Pod(qos, uid))
	for _, id := range containers {
		c.Mkdir(c.Container(qos, uid, id))
	}
	return kernel.Target{Pod: uid, Containers: containers}
}

// SetQuota sets quota and period of a cgroup, in an order in which the kernel takes them.
func (c *Real) SetQuota(path string, q kernel.Quota) error {
	if c.Version == kernel.V2 {
		return c.write(path, "cpu.max", fmt.Sprint(q.Limit.Microseconds(), " ", q.Period.Microseconds()))
	}
	if err := c.write(path, "cpu.cfs_period_us", strconv.FormatInt(q.Period.Microseconds(), 10)); err != nil {
		return err
	}
	return c.write(path, "cpu.cfs_quota_us", strconv.FormatInt(q.Limit.Microseconds(), 10))
}

// SetBurst sets the burst of a cgroup.
func (c *Real) SetBurst(path string, d time.Duration) error {
	file := "cpu.cfs_burst_us"
	if c.Version == kernel.V2 {
		file = "cpu.max.burst"
	}
	return c.write(path, file, strconv.FormatInt(d.Microseconds(), 10))
}

func (c *Real) write(path, file, text string) error {
	return os.WriteFile(filepath.Join(c.Tops[0], path, file), []byte(text), 0o644)
}

// Eventually asks until it is true, for at most a minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

//go:build linux

package kernel_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// TestMain is also the program that the tests put into cgroups to use CPU: it
// starts at a byte from its input and ends with it, so at the latest with the test.
func TestMain(m *testing.M) {
	if os.Getenv("KERNEL_TEST_SPIN") == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadByte(); err != nil {
		os.Exit(1)
	}
	go func() {
		for { //nolint:revive // using CPU is its purpose
		}
	}()
	_, _ = in.ReadByte()
}

// testCgroups is a kubepods tree in real cgroups of this machine, below a cgroup
// of its own. All of it is removed at the end of the test.
type testCgroups struct {
	cgroups.Shape
	t     testing.TB
	tops  []string // that cgroup in each hierarchy
	root  string   // for kernel.Config
	paths []string // made, parents first
}

var cgroupsMade atomic.Int64

func realCgroups(t testing.TB) *testCgroups {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	const mount = "/sys/fs/cgroup"
	c := &testCgroups{t: t, Shape: cgroups.Shape{Driver: kernel.Cgroupfs}}
	var fs unix.Statfs_t
	if err := unix.Statfs(mount, &fs); err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	name := fmt.Sprintf("mbcas-test-%d-%d", os.Getpid(), cgroupsMade.Add(1))
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		c.Version = kernel.V2
		c.tops = []string{filepath.Join(mount, name)}
		c.root = c.tops[0]
	} else {
		c.root = t.TempDir()
		for _, h := range []string{"cpu", "cpuacct", "unified"} {
			top := filepath.Join(mount, h)
			if err := unix.Statfs(top, &fs); err != nil || fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
				continue
			}
			top = filepath.Join(top, name)
			c.tops = append(c.tops, top)
			c.must(os.Symlink(top, filepath.Join(c.root, h)))
		}
		if c.Version = kernel.V1; len(c.tops) == 3 {
			c.Version = kernel.Hybrid
		}
		if len(c.tops) < 2 {
			t.Skipf("no CPU cgroups in %s", mount)
		}
	}
	t.Cleanup(c.clean)
	c.mkdir("")
	return c
}

func (c *testCgroups) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// mkdir makes the cgroup at path and those above it.
func (c *testCgroups) mkdir(path string) {
	c.t.Helper()
	if path != "" {
		if up := filepath.Dir(path); up != "." && !slices.Contains(c.paths, up) {
			c.mkdir(up)
		}
	}
	c.paths = append(c.paths, path)
	for _, top := range c.tops {
		dir := filepath.Join(top, path)
		if c.Version == kernel.V2 {
			if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
				c.t.Skipf("cpu controller: %v", err)
			}
		}
		c.must(os.Mkdir(dir, 0o755))
	}
}

// rmdir removes one cgroup; the kernel may need a moment after its last process ended.
func (c *testCgroups) rmdir(path string) {
	c.t.Helper()
	c.paths = slices.DeleteFunc(c.paths, func(p string) bool { return p == path })
	for _, top := range c.tops {
		dir := filepath.Join(top, path)
		eventually(c.t, "rmdir "+dir, func() bool {
			err := unix.Rmdir(dir)
			return err == nil || err == unix.ENOENT
		})
	}
}

func (c *testCgroups) clean() {
	for _, path := range slices.Backward(slices.Clone(c.paths)) {
		c.rmdir(path)
	}
}

func (c *testCgroups) pod(uid string, ids ...string) kernel.Target {
	c.t.Helper()
	c.mkdir(c.Pod(cgroups.Burstable, uid))
	for _, id := range ids {
		c.mkdir(c.Container(cgroups.Burstable, uid, id))
	}
	return kernel.Target{Pod: uid, Containers: ids}
}

func (c *testCgroups) setQuota(path string, limit time.Duration) {
	c.t.Helper()
	file, text := "cpu.cfs_quota_us", strconv.FormatInt(limit.Microseconds(), 10)
	if c.Version == kernel.V2 {
		file, text = "cpu.max", text+" 100000"
	}
	c.must(os.WriteFile(filepath.Join(c.tops[0], path, file), []byte(text), 0o644))
}

// bandwidth sets quota and period of a cgroup, in an order in which the kernel takes them.
func (c *testCgroups) bandwidth(path string, q kernel.Quota) error {
	c.t.Helper()
	dir := filepath.Join(c.tops[0], path)
	limit, period := fmt.Sprint(q.Limit.Microseconds()), fmt.Sprint(q.Period.Microseconds())
	if c.Version == kernel.V2 {
		return os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(limit+" "+period), 0o644)
	}
	c.must(os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), []byte(period), 0o644))
	return os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(limit), 0o644)
}

func (c *testCgroups) burst(path string, d time.Duration) error {
	file := "cpu.cfs_burst_us"
	if c.Version == kernel.V2 {
		file = "cpu.max.burst"
	}
	return os.WriteFile(filepath.Join(c.tops[0], path, file), []byte(fmt.Sprint(d.Microseconds())), 0o644)
}

// spin starts a process with one busy thread in the cgroup at path.
func (c *testCgroups) spin(path string) (stop func()) {
	c.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "KERNEL_TEST_SPIN=1", "GOMAXPROCS=2")
	in, err := cmd.StdinPipe()
	c.must(err)
	c.must(cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	c.t.Cleanup(stop) // runs before clean
	for _, top := range c.tops {
		c.must(os.WriteFile(filepath.Join(top, path, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644))
	}
	_, err = in.Write([]byte("\n"))
	c.must(err)
	return stop
}

func (c *testCgroups) open(now func() time.Time) *kernel.Host {
	c.t.Helper()
	h, err := kernel.Open(
		kernel.Config{Root: c.root, Now: now, MemoryIOPressure: true, Log: slog.New(slog.DiscardHandler)},
	)
	c.must(err)
	c.t.Cleanup(func() { h.Close() })
	return h
}

// eventually asks until it is true, for at most 20 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestRealThrottling: a busy process under a quota shows in the counters of its
// container, and in its pod's as far as they are hierarchical.
func TestRealThrottling(t *testing.T) {
	c := realCgroups(t)
	target := c.pod(uid(1), id(1), id(2))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	c.setQuota(path, 20*time.Millisecond)
	h := c.open(nil)
	if l := h.Layout(); l.Version != c.Version || l.Driver != kernel.Cgroupfs ||
		!strings.HasSuffix(l.Kubepods, "/kubepods") {
		t.Errorf("layout %v", l)
	}
	first := h.Read([]kernel.Target{target})
	c.spin(path)
	var s kernel.Sample
	eventually(t, "3 throttled periods", func() bool {
		s = h.Read([]kernel.Target{target})
		return s.Pods[0].Containers[0].Stat.Throttled >= 3
	})
	p, busy, idle := s.Pods[0], s.Pods[0].Containers[0], s.Pods[0].Containers[1]
	if !p.Own.Found || !busy.Found || !idle.Found {
		t.Fatalf("not all found: %+v", p)
	}
	if want := (kernel.Quota{Limit: 20 * time.Millisecond, Period: 100 * time.Millisecond}); busy.Quota != want {
		t.Errorf("quota %+v", busy.Quota)
	}
	if busy.Stat.Usage <= 0 || busy.Stat.ThrottledTime <= 0 || busy.Stat.Periods < busy.Stat.Throttled {
		t.Errorf("counters %+v", busy.Stat)
	}
	if idle.Stat.Usage != 0 || idle.Quota.Limit != 0 {
		t.Errorf("idle container %+v", idle)
	}
	if p.Own.Stat.Throttled != 0 {
		t.Errorf("throttling is not hierarchical, but the pod has %d periods", p.Own.Stat.Throttled)
	}
	s = h.Read([]kernel.Target{target}) // usage of the pod is read before the container's
	if s.Node.Kubepods.Time <= 0 || s.Node.Usage.Time <= first.Node.Usage.Time ||
		s.Pods[0].Own.Stat.Usage < busy.Stat.Usage {
		t.Errorf("totals %+v, pod %+v", s.Node, s.Pods[0].Own.Stat)
	}
	if h.Layout().PSI {
		eventually(t, "pressure of the throttled container", func() bool {
			got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Pressure
			return got.Known && got.Some > 0
		})
	} else {
		t.Log("no pressure on this machine")
	}
	c.setQuota(path, 70*time.Millisecond)
	if got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota.Limit; got != 70*time.Millisecond {
		t.Errorf("a changed quota reads as %v", got)
	}
}

// TestRealBounds: what Least says the kernel takes, at periods long and short, with a burst and
// without; a microsecond less it refuses. The burst is found when the container is new, and when
// the limit changes.
func TestRealBounds(t *testing.T) {
	c := realCgroups(t)
	target := c.pod(uid(1), id(1))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	for _, q := range []kernel.Quota{
		{Period: 100 * time.Millisecond},
		{Period: 10 * time.Millisecond},
		{Period: 5 * time.Millisecond},
		{Period: 100 * time.Millisecond, Burst: 20 * time.Millisecond},
		{Period: 10 * time.Millisecond, Burst: 500 * time.Microsecond},
		{Period: time.Second, Burst: 300 * time.Millisecond},
	} {
		c.must(c.bandwidth(path, kernel.Quota{Period: q.Period, Limit: q.Period})) // with room for the burst
		if err := c.burst(path, q.Burst); err != nil {
			t.Skipf("no cpu.max.burst on this machine: %v", err)
		}
		h := c.open(nil)
		got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota
		if want := (kernel.Quota{Limit: q.Period, Period: q.Period, Burst: q.Burst}); got != want {
			t.Fatalf("quota %+v, want %+v", got, want)
		}
		least := got.Min()
		if err := c.bandwidth(path, kernel.Quota{Period: q.Period, Limit: least - time.Microsecond}); err == nil {
			t.Errorf("%+v: the kernel takes less than %v", q, least)
		}
		if err := c.bandwidth(path, kernel.Quota{Period: q.Period, Limit: least}); err != nil {
			t.Errorf("%+v: the kernel refuses %v: %v", q, least, err)
		}
		if got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota; got.Limit != least || got.Min() != least {
			t.Errorf("lowered to %v it reads %+v", least, got)
		}
		c.must(c.burst(path, 0))
	}
}

// TestRealRemoved: the kernel answers ENODEV through files of a removed cgroup, also
// when one of the same name is made before the next Read; the new one starts from zero.
func TestRealRemoved(t *testing.T) {
	c := realCgroups(t)
	target := c.pod(uid(1), id(1))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	c.setQuota(path, 10*time.Millisecond)
	h := c.open(nil)
	container := func() kernel.Group { return h.Read([]kernel.Target{target}).Pods[0].Containers[0] }
	stop := c.spin(path)
	eventually(t, "throttling", func() bool { return container().Stat.Throttled > 0 })
	stop()
	files := h.Descriptors()

	c.rmdir(path)
	if g := container(); g.Found || g.Stat != (kernel.Stat{}) {
		t.Errorf("removed: %+v", g)
	}
	if h.Descriptors() >= files {
		t.Errorf("%d files open, %d before the removal", h.Descriptors(), files)
	}
	c.mkdir(path)
	if g := container(); !g.Found || g.Stat != (kernel.Stat{}) {
		t.Errorf("made again: %+v", g)
	}

	c.rmdir(path)
	c.mkdir(path)
	if g := container(); g.Found {
		t.Errorf("removed and made again between two reads: %+v", g)
	}
	if g := container(); !g.Found || g.Stat != (kernel.Stat{}) {
		t.Errorf("the read after: %+v", g)
	}
	if h.Descriptors() != files {
		t.Errorf("%d files open, %d at the start", h.Descriptors(), files)
	}
}

// TestRealPressureHidden: pressure can be switched off for one cgroup (Linux 6.1) without losing
// its counters.
func TestRealPressureHidden(t *testing.T) {
	c := realCgroups(t)
	target := c.pod(uid(1), id(1))
	now := time.Unix(0, 0)
	h := c.open(func() time.Time { return now })
	path := filepath.Join(c.tops[len(c.tops)-1], c.Container(cgroups.Burstable, uid(1), id(1)), "cgroup.pressure")
	if _, err := os.Stat(path); err != nil || !h.Layout().PSI {
		t.Skip("no cgroup.pressure on this machine")
	}
	check := func(reason string, known bool) {
		t.Helper()
		g := h.Read([]kernel.Target{target}).Pods[0].Containers[0]
		if !g.Found || g.Pressure.Known != known || g.Stalls == nil || g.Stalls.Memory.Known != known ||
			g.Stalls.IO.Known != known {
			t.Errorf("%s: found %v, pressure known %v, stalls %+v", reason, g.Found, g.Pressure.Known, g.Stalls)
		}
	}
	check("at first", true)
	c.must(os.WriteFile(path, []byte("0"), 0o644))
	check("hidden", false)
	check("still hidden", false)
	c.must(os.WriteFile(path, []byte("1"), 0o644))
	now = now.Add(31 * time.Second)
	check("shown again", true)
}

// TestRealWatch: a new pod's cgroup gives a hint.
func TestRealWatch(t *testing.T) {
	c := realCgroups(t)
	c.pod(uid(1), id(1))
	h := c.open(nil)
	hints := h.Watch(t.Context())
	c.pod(uid(2), id(2))
	await(t, hints)
}

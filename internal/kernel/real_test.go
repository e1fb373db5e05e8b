//go:build linux

package kernel_test

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/testing/must"
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

// realNode is a node whose cgroups are the kernel's.
type realNode struct{ *cgroups.Real }

func newReal(t testing.TB) realNode { return realNode{cgroups.NewReal(t)} }

func (c realNode) setLimit(path string, limit time.Duration) {
	c.T.Helper()
	must.Succeed(c.T, c.SetQuota(path, kernel.Quota{Limit: limit, Period: 100 * time.Millisecond}))
}

// spin starts a process with one busy thread in the cgroup at path.
func (c realNode) spin(path string) (stop func()) {
	c.T.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "KERNEL_TEST_SPIN=1", "GOMAXPROCS=2")
	in, err := cmd.StdinPipe()
	must.Succeed(c.T, err)
	must.Succeed(c.T, cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	c.T.Cleanup(stop) // runs before clean
	for _, top := range c.Tops {
		must.Succeed(c.T, os.WriteFile(filepath.Join(top, path, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644))
	}
	_, err = in.Write([]byte("\n"))
	must.Succeed(c.T, err)
	return stop
}

func (c realNode) open(now func() time.Time) *kernel.Host {
	c.T.Helper()
	h, err := kernel.Open(kernel.Config{Root: c.Dir, Now: now, MemoryIOPressure: true, Log: slog.New(slog.DiscardHandler)})
	must.Succeed(c.T, err)
	c.T.Cleanup(func() { h.Close() })
	return h
}

// TestRealThrottling: a busy process under a quota shows in the counters of its
// container, and in its pod's as far as they are hierarchical.
func TestRealThrottling(t *testing.T) {
	c := newReal(t)
	target := c.AddPod(cgroups.Burstable, uid(1), id(1), id(2))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	c.setLimit(path, 20*time.Millisecond)
	h := c.open(nil)
	if l := h.Layout(); l.Version != c.Version || l.Driver != kernel.Cgroupfs ||
		!strings.HasSuffix(l.Kubepods, "/kubepods") {
		t.Errorf("layout %v", l)
	}
	first := h.Read([]kernel.Target{target})
	c.spin(path)
	var s kernel.Sample
	cgroups.Eventually(t, "3 throttled periods", func() bool {
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
	s = h.Read([]kernel.Target{target})
	if own := s.Pods[0].Own.Stat.Usage; s.Node.Kubepods.Time <= 0 || s.Node.Usage.Time <= first.Node.Usage.Time ||
		c.Version == kernel.V2 && own < busy.Stat.Usage || c.Version != kernel.V2 && own != 0 {
		t.Errorf("totals %+v, pod %+v", s.Node, s.Pods[0].Own.Stat)
	}
	if h.Layout().PSI {
		cgroups.Eventually(t, "pressure of the throttled container", func() bool {
			got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Pressure
			return got.Known && got.Some > 0
		})
	} else {
		t.Log("no pressure on this machine")
	}
	c.setLimit(path, 70*time.Millisecond)
	if got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota.Limit; got != 70*time.Millisecond {
		t.Errorf("a changed quota reads as %v", got)
	}
}

// TestRealBounds: what Least says the kernel takes, at periods long and short, with a burst and
// without; a microsecond less it refuses. The burst is found when the container is new, and when
// the limit changes.
func TestRealBounds(t *testing.T) {
	c := newReal(t)
	target := c.AddPod(cgroups.Burstable, uid(1), id(1))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	for _, q := range []kernel.Quota{
		{Period: 100 * time.Millisecond},
		{Period: 10 * time.Millisecond},
		{Period: 5 * time.Millisecond},
		{Period: 100 * time.Millisecond, Burst: 20 * time.Millisecond},
		{Period: 10 * time.Millisecond, Burst: 500 * time.Microsecond},
		{Period: time.Second, Burst: 300 * time.Millisecond},
	} {
		must.Succeed(c.T, c.SetQuota(path, kernel.Quota{Period: q.Period, Limit: q.Period})) // with room for the burst
		if err := c.SetBurst(path, q.Burst); err != nil {
			t.Skipf("no cpu.max.burst on this machine: %v", err)
		}
		h := c.open(nil)
		got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota
		if want := (kernel.Quota{Limit: q.Period, Period: q.Period, Burst: q.Burst}); got != want {
			t.Fatalf("quota %+v, want %+v", got, want)
		}
		least := got.Min()
		if err := c.SetQuota(path, kernel.Quota{Period: q.Period, Limit: least - time.Microsecond}); err == nil {
			t.Errorf("%+v: the kernel takes less than %v", q, least)
		}
		if err := c.SetQuota(path, kernel.Quota{Period: q.Period, Limit: least}); err != nil {
			t.Errorf("%+v: the kernel refuses %v: %v", q, least, err)
		}
		if got := h.Read([]kernel.Target{target}).Pods[0].Containers[0].Quota; got.Limit != least || got.Min() != least {
			t.Errorf("lowered to %v it reads %+v", least, got)
		}
		must.Succeed(c.T, c.SetBurst(path, 0))
	}
}

// TestRealRemoved: the kernel answers ENODEV through files of a removed cgroup, also
// when one of the same name is made before the next Read; the new one starts from zero.
func TestRealRemoved(t *testing.T) {
	c := newReal(t)
	target := c.AddPod(cgroups.Burstable, uid(1), id(1))
	path := c.Container(cgroups.Burstable, uid(1), id(1))
	c.setLimit(path, 10*time.Millisecond)
	h := c.open(nil)
	container := func() kernel.Group { return h.Read([]kernel.Target{target}).Pods[0].Containers[0] }
	stop := c.spin(path)
	cgroups.Eventually(t, "throttling", func() bool { return container().Stat.Throttled > 0 })
	stop()
	files := h.Descriptors()

	c.Rmdir(path)
	if g := container(); g.Found || g.Stat != (kernel.Stat{}) {
		t.Errorf("removed: %+v", g)
	}
	if h.Descriptors() >= files {
		t.Errorf("%d files open, %d before the removal", h.Descriptors(), files)
	}
	c.Mkdir(path)
	if g := container(); !g.Found || g.Stat != (kernel.Stat{}) {
		t.Errorf("made again: %+v", g)
	}

	c.Rmdir(path)
	c.Mkdir(path)
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
	c := newReal(t)
	target := c.AddPod(cgroups.Burstable, uid(1), id(1))
	now := time.Unix(0, 0)
	h := c.open(func() time.Time { return now })
	path := filepath.Join(c.Tops[len(c.Tops)-1], c.Container(cgroups.Burstable, uid(1), id(1)), "cgroup.pressure")
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
	must.Succeed(c.T, os.WriteFile(path, []byte("0"), 0o644))
	check("hidden", false)
	check("still hidden", false)
	must.Succeed(c.T, os.WriteFile(path, []byte("1"), 0o644))
	now = now.Add(31 * time.Second)
	check("shown again", true)
}

// TestRealWatch: a new pod's cgroup gives a hint.
func TestRealWatch(t *testing.T) {
	c := newReal(t)
	c.AddPod(cgroups.Burstable, uid(1), id(1))
	h := c.open(nil)
	hints := h.Watch(t.Context())
	c.AddPod(cgroups.Burstable, uid(2), id(2))
	await(t, hints)
}

//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mbcas/mbcas/internal/testing/must"
)

const (
	id    = "0f3c"
	group = "cpu/kubepods/burstable/pod1/" + id
	scope = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-" + id + ".scope"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

var layouts = map[string]struct {
	cgroup string
	files  map[string]string
	dir    string
}{
	"v2, systemd": {"v2", map[string]string{
		"cgroup.controllers": "cpu memory\n",
		scope + "/cpu.stat":  "usage_usec 2000000\nnr_periods 50\nnr_throttled 20\nthrottled_usec 700000\n",
		scope + "/cpu.max":   "50000 100000\n",
	}, scope},
	"hybrid, cgroupfs": {"hybrid", map[string]string{
		"cpu/cpu.shares":             "1024\n",
		"unified/cgroup.controllers": "\n",
		group + "/cpu.stat":          "nr_periods 50\nnr_throttled 20\nthrottled_time 700000000\n",
		group + "/cpu.cfs_quota_us":  "50000\n",
		group + "/cpu.cfs_period_us": "100000\n",
		"cpuacct/kubepods/burstable/pod1/" + id + "/cpuacct.usage": "2000000000\n",
	}, group},
}

// open writes the files of a layout, and finds the container.
func open(t *testing.T, name string) (Node, Container) {
	t.Helper()
	root := t.TempDir()
	write(t, root, layouts[name].files)
	n, err := Detect(root)
	if err != nil || n.Cgroup != layouts[name].cgroup {
		t.Fatalf("%s: detected %q, %v; want %q", name, n.Cgroup, err, layouts[name].cgroup)
	}
	c, err := n.Find(id)
	if want := filepath.Join(root, layouts[name].dir); err != nil || c.cpu != want {
		t.Fatalf("%s: found %s, %v; want %s", name, c.cpu, err, want)
	}
	return n, c
}

// TestReadsBothVersions: the same counters, and 0 where there is no quota.
func TestReadsBothVersions(t *testing.T) {
	for name, none := range map[string]string{"v2, systemd": "max 100000\n", "hybrid, cgroupfs": "-1\n"} {
		_, c := open(t, name)
		want := Sample{Usage: 2 * time.Second, Throttled: 7e8, Periods: 50, Throttles: 20, Quota: 500}
		for range 2 {
			got, err := c.Read()
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Sample{}, "At")); diff != "" || err != nil {
				t.Errorf("%s: %v %s", name, err, diff)
			}
			must.Succeed(t, os.WriteFile(c.QuotaFile(), []byte(none), 0o644))
			want.Quota = 0
		}
	}
}

func TestFinds(t *testing.T) {
	for name := range layouts {
		n, _ := open(t, name)
		for _, missing := range []string{"ffff", ""} {
			if _, err := n.Find(missing); err == nil {
				t.Errorf("%s: found a container %q that is not there", name, missing)
			}
		}
	}
	if _, err := Detect(t.TempDir()); err == nil {
		t.Error("an empty folder passed for cgroups")
	}
}

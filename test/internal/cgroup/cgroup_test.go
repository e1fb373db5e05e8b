//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var layouts = map[string]struct {
	cgroup string
	files  map[string]string
	dir    string
}{
	"v2, systemd": {"v2", map[string]string{
		"cgroup.controllers": "cpu memory\n",
		scope + "/cpu.stat":  "usage_usec 2000000\nuser_usec 1\nnr_periods 50\nnr_throttled 20\nthrottled_usec 700000\n",
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

func TestReadsBothVersions(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, l.files)
			n, err := Detect(root)
			if err != nil || n.Cgroup != l.cgroup {
				t.Fatalf("detected %q, %v; want %q", n.Cgroup, err, l.cgroup)
			}
			c, err := n.Find(id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Read()
			if err != nil {
				t.Fatal(err)
			}
			want := Sample{Usage: 2 * time.Second, Throttled: 700 * time.Millisecond, Periods: 50, Throttles: 20, Quota: 500}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Sample{}, "At")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoQuotaIsZero(t *testing.T) {
	for name, text := range map[string]string{"v2, systemd": "max 100000\n", "hybrid, cgroupfs": "-1\n"} {
		l := layouts[name]
		root := t.TempDir()
		write(t, root, l.files)
		n, err := Detect(root)
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.QuotaFile(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Read(); err != nil || r.Quota != 0 {
			t.Errorf("%s: quota %d, %v; want none", name, r.Quota, err)
		}
	}
}

func TestFinds(t *testing.T) {
	for name, l := range layouts {
		root := t.TempDir()
		write(t, root, l.files)
		n, err := Detect(root)
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.Find(id)
		if err != nil || c.cpu != filepath.Join(root, l.dir) {
			t.Errorf("%s: found %s, %v; want %s", name, c.cpu, err, l.dir)
		}
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

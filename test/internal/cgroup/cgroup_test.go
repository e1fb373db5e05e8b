//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
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
			if err := os.WriteFile(c.QuotaFile(), []byte(none), 0o644); err != nil {
				t.Fatal(err)
			}
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

// TestPodClass: the class is written in the pod's folder, which is above the container's, and nothing
// is made where the kernel has no such file.
func TestPodClass(t *testing.T) {
	for name, weightFile := range map[string]string{"v2, systemd": "cpu.weight", "hybrid, cgroupfs": "cpu.shares"} {
		_, c := open(t, name)
		for _, class := range []Class{{Idle: true}, {Weight: 4}} {
			if err := c.SetPodClass(class); err == nil {
				t.Errorf("%s: the class %+v was written although the kernel has none", name, class)
			}
		}
		if _, err := c.PodClass(); err == nil {
			t.Errorf("%s: a class was read although the kernel has none", name)
		}
		dir := layouts[name].dir
		pod := filepath.Join(strings.TrimSuffix(c.cpu, dir), filepath.Dir(dir))
		write(t, pod, map[string]string{"cpu.idle": "0\n", weightFile: "307\n"})
		before, err := c.PodClass()
		if want := (Class{Weight: 307}); before != want || err != nil {
			t.Errorf("%s: class %+v, %v; want %+v", name, before, err, want)
		}
		if err := c.SetPodClass(Class{Idle: true}); err != nil {
			t.Error(err)
		}
		if now, err := c.PodClass(); !now.Idle || err != nil {
			t.Errorf("%s: class %+v, %v; want idle", name, now, err)
		}
		write(t, pod, map[string]string{weightFile: "1024\n"}) // as the kernel does
		if err := c.SetPodClass(before); err != nil {
			t.Error(err)
		}
		if now, err := c.PodClass(); now != before || err != nil {
			t.Errorf("%s: class %+v, %v; want %+v again", name, now, err, before)
		}
	}
}

// TestRealClass: the kernel of this machine takes class and weight, and the weight comes back.
func TestRealClass(t *testing.T) {
	n, err := Detect("/sys/fs/cgroup")
	if err != nil {
		t.Skip(err)
	}
	pod := filepath.Join(n.cpu, "mbcas-cgroup-test")
	if err := os.Mkdir(pod, 0o755); err != nil {
		t.Skipf("needs root and cgroups that can be written: %v", err)
	}
	defer func() {
		if err := os.Remove(pod); err != nil {
			t.Error(err)
		}
	}()
	c := Container{v2: n.Cgroup == "v2", cpu: filepath.Join(pod, "container")}
	if !exists(c.podFile("cpu.idle")) {
		t.Skip("the kernel has no cpu.idle, or the cgroup no CPU controller")
	}
	want := Class{Weight: 307}
	if err := c.SetPodClass(want); err != nil {
		t.Fatal(err)
	}
	if err := c.SetPodClass(Class{Idle: true}); err != nil {
		t.Error(err)
	}
	if got, err := c.PodClass(); err != nil || !got.Idle {
		t.Errorf("class %+v, %v; want idle", got, err)
	}
	if err := c.SetPodClass(want); err != nil {
		t.Error(err)
	}
	if got, err := c.PodClass(); err != nil || got != want {
		t.Errorf("class %+v, %v; want %+v again", got, err, want)
	}
}

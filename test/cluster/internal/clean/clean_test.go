package clean

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 22 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 22 0:28 / /tmp rw - tmpfs tmpfs rw
40 22 0:40 / /var/lib/x/kubelet rw shared:1 - ext4 /dev/vda rw
41 40 0:41 / /var/lib/x/kubelet/pods/a/volumes/token rw shared:2 - tmpfs tmpfs rw,size=1k
42 22 0:42 / /var/lib/x\040y/other rw - tmpfs tmpfs rw
43 22 0:43 / /var/lib/xy rw - tmpfs tmpfs rw
44 22 0:44 / /var/lib/x/containerd/state/netns/cni-1 rw - nsfs nsfs rw
`

func parsed(t *testing.T) []Mount {
	t.Helper()
	mounts, err := parseMounts(mountinfo)
	if err != nil {
		t.Fatal(err)
	}
	return mounts
}

func TestUnmountOrder(t *testing.T) {
	want := []string{
		"/var/lib/x/containerd/state/netns/cni-1",
		"/var/lib/x/kubelet/pods/a/volumes/token",
		"/var/lib/x/kubelet",
	}
	if d := cmp.Diff(want, below(parsed(t), "/var/lib/x")); d != "" {
		t.Errorf("unmount plan, last mounted first and no neighbour (-want +got):\n%s", d)
	}
}

func TestParseMounts(t *testing.T) {
	mounts := parsed(t)
	if got := mounts[6].Point; got != "/var/lib/x y/other" {
		t.Errorf("escaped blank: %q", got)
	}
	if got := mounts[1].Options; !cmp.Equal(got, []string{"rw", "cpu"}) {
		t.Errorf("controllers of a v1 hierarchy: %q", got)
	}
	for _, bad := range []string{"22 1 254:0 / / rw\n", "1 - ext4 x y\n"} {
		if _, err := parseMounts(bad); err == nil {
			t.Errorf("parseMounts(%q): no error; a mount not seen would be deleted through", bad)
		}
	}
}

func TestFilesystemOf(t *testing.T) {
	for path, want := range map[string]string{"/var/lib/x": "ext4", "/tmp/state": "tmpfs", "/tmpx": "ext4", "/var/lib/xy/z": "tmpfs"} {
		if got := FilesystemOf(parsed(t), path); got != want {
			t.Errorf("FilesystemOf(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestCgroupsIn(t *testing.T) {
	want := []string{"/sys/fs/cgroup/cpu/kubepods", "/sys/fs/cgroup/unified/kubepods"}
	if d := cmp.Diff(want, cgroupsIn(parsed(t), "kubepods")); d != "" {
		t.Errorf("pod cgroups (-want +got):\n%s", d)
	}
}

func TestRemovable(t *testing.T) {
	absent := []string{"/var/lib/kubelet", "/var/lib/xy", "/run/containerd"}
	want := []string{"/var/lib/kubelet", "/run/containerd"}
	if d := cmp.Diff(want, removable(absent, parsed(t))); d != "" {
		t.Errorf("a folder in which something is mounted must stay (-want +got):\n%s", d)
	}
	if got := removable(nil, parsed(t)); len(got) != 0 {
		t.Errorf("removable of nothing: %q; folders that were there before are not ours", got)
	}
}

func TestRemoveRefusesMounts(t *testing.T) {
	if err := holdsNoMount("/var/lib/x", parsed(t)); err == nil {
		t.Error("a folder with mounts in it would be removed, and what is mounted with it")
	}
	if err := holdsNoMount("/var/lib/other", parsed(t)); err != nil {
		t.Errorf("a folder without mounts: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := RemoveState(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a folder without mounts stays")
	}
}

func TestBeforeIsWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "before.json")
	first := Before{Sysctls: map[string]string{"kernel/panic": "1"}, Absent: []string{"/var/lib/kubelet"}}
	if err := first.Save(path); err != nil {
		t.Fatal(err)
	}
	second := Before{Sysctls: map[string]string{"kernel/panic": "10"}}
	if err := second.Save(path); err != nil {
		t.Fatal(err)
	}
	got, ok, err := LoadBefore(path)
	if err != nil || !ok {
		t.Fatalf("LoadBefore: %v, %v", ok, err)
	}
	if d := cmp.Diff(first, got); d != "" {
		t.Errorf("a second up saw what the first had changed (-want +got):\n%s", d)
	}
}

func TestLoadBefore(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := LoadBefore(filepath.Join(dir, "none")); ok || err != nil {
		t.Errorf("no file: %v, %v, want neither", ok, err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadBefore(broken); err == nil {
		t.Error("a broken file gives no error: nothing would be put back")
	}
}

func TestNames(t *testing.T) {
	for arg, want := range map[string]bool{
		"/var/lib/x/nodes/a/containerd/containerd.sock":             true,
		"--config=/var/lib/x/nodes/a/kubelet.json":                  true,
		"--config=/var/lib/x/nodes/ab/kubelet.json":                 false,
		"--config=/var/lib/x/kubelet.json":                          false,
		"--container-runtime-endpoint=/elsewhere/var/lib/x/nodes/a": false,
	} {
		if got := names([]string{"program", arg}, "/var/lib/x/nodes/a"); got != want {
			t.Errorf("%s is of the node: %v, want %v", arg, got, want)
		}
	}
}

func TestShimSockets(t *testing.T) {
	state := t.TempDir()
	for id, address := range map[string]string{
		"a": "unix:///run/containerd/s/0123abc\n",
		"b": "unix:///run/containerd/s/../../../etc/passwd",
		"c": "unix:///etc/passwd",
	} {
		dir := filepath.Join(state, "containerd/state/io.containerd.runtime.v2.task/k8s.io", id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "address"), []byte(address), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"/run/containerd/s/0123abc"}, shimSockets(filepath.Join(state, "containerd"))); d != "" {
		t.Errorf("sockets to remove (-want +got):\n%s", d)
	}
}

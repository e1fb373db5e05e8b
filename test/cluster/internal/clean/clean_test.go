package clean

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

func TestRemovable(t *testing.T) {
	absent := []string{"/var/lib/kubelet", "/var/lib/xy", "/run/containerd"}
	mounts := []*mountinfo.Info{{Mountpoint: "/"}, {Mountpoint: "/var/lib/xy/z"}, {Mountpoint: "/run/containerd2"}}
	want := []string{"/var/lib/kubelet", "/run/containerd"}
	if d := cmp.Diff(want, removable(absent, mounts)); d != "" {
		t.Errorf("a folder in which something is mounted must stay (-want +got):\n%s", d)
	}
	if got := removable(nil, mounts); len(got) != 0 {
		t.Errorf("removable of nothing: %q; folders that were there before are not ours", got)
	}
}

// mountIn mounts a file system, and one more on that, below a folder of the test's.
func mountIn(t *testing.T, folder string) {
	t.Helper()
	for _, dir := range []string{folder, filepath.Join(folder, "a b")} {
		must.Succeed(t, os.Mkdir(dir, 0o755))
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("cannot mount, and CI=true: %v", err)
			}
			t.Skipf("cannot mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
}

func TestRemoveRefusesMounts(t *testing.T) {
	base := t.TempDir()
	state, other := filepath.Join(base, "x"), filepath.Join(base, "x2")
	for _, dir := range []string{state, other} {
		must.Succeed(t, os.Mkdir(dir, 0o755))
	}
	mountIn(t, filepath.Join(state, "user"))
	if err := RemoveState(state); err == nil {
		t.Error("a folder with mounts in it is removed, and what is mounted with it")
	}
	must.Succeed(t, RemoveState(other))
	left, err1 := exists(other)
	kept, err2 := exists(filepath.Join(state, "user", "a b"))
	if left || !kept || err1 != nil || err2 != nil {
		t.Error("the folder without mounts stays, or the other lost what is mounted in it")
	}
}

func TestUnmount(t *testing.T) {
	base := t.TempDir()
	neighbour, inner := filepath.Join(base, "x2"), filepath.Join(base, "x", "inner")
	mountIn(t, neighbour)
	mountIn(t, filepath.Join(base, "x")) // as a user may have mounted the state folder
	mountIn(t, inner)
	must.Succeed(t, Unmount(filepath.Join(base, "x")))
	mounts, err := mountsBelow(base)
	must.Succeed(t, err)
	var left []string
	for _, m := range mounts {
		left = append(left, m.Mountpoint)
	}
	if d := cmp.Diff([]string{neighbour, filepath.Join(neighbour, "a b"), filepath.Join(base, "x")}, left); d != "" {
		t.Errorf("mounts that are left (-want +got):\n%s", d)
	}
}

// TestCgroupsBelowTheRoot: all processes of the machine are in a root, and those found are killed.
func TestCgroupsBelowTheRoot(t *testing.T) {
	first := config.Node{Name: "a"}
	for _, name := range []string{first.Cgroup(), ".", "..", "/", "a/..", "../a", "/a"} {
		if got, err := Cgroups(name); err == nil || len(got) > 0 {
			t.Errorf("%q: %v, no error", name, got)
		}
	}
	if got, err := Cgroups("mbcas-test-none"); err != nil || len(got) > 0 {
		t.Errorf("a name that is in no hierarchy: %v, %v", got, err)
	}
}

// TestObserveOfUnknown: what cannot be looked at is not absent, or down would remove it.
func TestObserveOfUnknown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o644))
	defer func(before []string) { fixedPaths = before }(fixedPaths)
	fixedPaths = []string{filepath.Join(file, "in-a-file")}
	if got, err := Observe(); err == nil {
		t.Errorf("absent: %q, no error", got.Absent)
	}
}

func TestLeftByRuntime(t *testing.T) {
	runtime := t.TempDir()
	for id, address := range map[string]string{
		"a": "unix:///run/containerd/s/0123abc\n",
		"b": "unix:///run/containerd/s/../../../etc/passwd",
		"c": "unix:///etc/passwd",
	} {
		dir := filepath.Join(runtime, "state/io.containerd.runtime.v2.task/k8s.io", id)
		must.Succeed(t, os.MkdirAll(dir, 0o755))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "address"), []byte(address), 0o644))
	}
	if d := cmp.Diff([]string{"/run/containerd/s/0123abc"}, leftByRuntime(runtime)); d != "" {
		t.Errorf("sockets to remove (-want +got):\n%s", d)
	}
}

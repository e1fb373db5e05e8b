//go:build linux

package hang_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/test/internal/hang"
)

// hidden has reads of a file hang until release, or the end of the test.
func hidden(t *testing.T, path string) (release func()) {
	t.Helper()
	end, err := hang.File(path)
	for _, impossible := range []error{unix.EPERM, unix.EACCES, unix.ENOENT, unix.ENODEV} {
		if errors.Is(err, impossible) {
			t.Skipf("optional: this machine mounts no FUSE: %v", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	release = func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	return release
}

func TestReadsDoNotEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	release := hidden(t, path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open it: %v", err)
	}
	defer unix.Close(fd)
	ended := make(chan error, 1)
	go func() {
		_, err := unix.Pread(fd, make([]byte, 100), 0)
		ended <- err
	}()
	timer := time.NewTimer(300 * time.Millisecond)
	select {
	case err := <-ended:
		t.Fatalf("a read ended: %v", err)
	case <-timer.C:
	}
	release()
	if err := <-ended; err == nil {
		t.Error("after the release the read succeeded, want an error")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("after the release the file has %q, %v", text, err)
	}
}

// TestAgentGoesOn: to the agent's reader, a pod of which a counter hangs is blocked, and another pod is read.
func TestAgentGoesOn(t *testing.T) {
	dir := t.TempDir()
	tree, err := cgroups.New(dir, cgroups.Shape{Version: kernel.V1})
	if err != nil {
		t.Fatal(err)
	}
	targets := []kernel.Target{{Pod: "a", Containers: []string{id("a")}}, {Pod: "b", Containers: []string{id("b")}}}
	for _, target := range targets {
		if err := tree.AddPod(cgroups.Burstable, target.Pod, target.Containers...); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "cgroup/cpu,cpuacct", tree.Kubepods(), "*/*", "*"+id("a")+"*",
		"cpu.stat"))
	if err != nil || len(files) != 1 {
		t.Fatalf("counters of container a: %q, %v", files, err)
	}
	hidden(t, files[0])
	host, err := kernel.Open(tree.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods := host.Read(targets).Pods
	if !pods[0].Blocked || pods[1].Blocked || !pods[1].Containers[0].Found {
		t.Errorf("the pod that hangs and another one: %+v, want the first blocked and the second read", pods)
	}
}

// id is the ID of a container.
func id(name string) string { return strings.Repeat(name, 64) }

//go:build linux

package kernel_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// TestMemoryIOPressureIsOptional: two more files for each container, none for pods, and none at all without
// Config.MemoryIOPressure.
func TestMemoryIOPressureIsOptional(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V2, kernel.Hybrid} {
		files := map[bool]int{}
		for _, asked := range []bool{false, true} {
			n := newNode(t, cgroups.Shape{Version: version}, func(n *node) { n.cfg.MemoryIOPressure = asked })
			before := n.Descriptors()
			n.now = n.now.Add(time.Hour) // also a recheck
			p := n.read(pods(t, n.Tree, 2, 2)...).Pods[1]
			files[asked] = n.Descriptors() - before
			if (p.Containers[0].Stalls != nil) != asked || p.Own.Stalls != nil {
				t.Errorf("%s, asked %v: stalls %+v of a container, %+v of its pod", version, asked, p.Containers[0].Stalls, p.Own.Stalls)
			}
			if n.read(); n.Descriptors() != before {
				t.Errorf("%s, asked %v: %d files are still open", version, asked, n.Descriptors()-before)
			}
		}
		if files[true]-files[false] != 2*2*2 {
			t.Errorf("%s: %d files open, and %d without memory and IO pressure; want two more for each of 4 containers", version,
				files[true], files[false])
		}
	}
}

// TestStallsMayBeMissing: stalls that the kernel does not report are unknown, and the rest is read.
func TestStallsMayBeMissing(t *testing.T) {
	n := newNode(t, cgroups.Shape{}, func(n *node) { n.cfg.MemoryIOPressure = true })
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	target := kernel.Target{Pod: uid(1), Containers: []string{id(1)}}
	file := func(name string) string {
		return filepath.Join(n.cfg.Root, n.Container(cgroups.Burstable, uid(1), id(1)), name)
	}
	check := func(reason string, memory, io bool) {
		t.Helper()
		g := n.read(target).Pods[0].Containers[0]
		if !g.Found || !g.Pressure.Known || g.Stalls == nil || g.Stalls.Memory.Known != memory || g.Stalls.IO.Known != io {
			t.Fatalf("%s: %+v, stalls %+v; want memory known %v, IO %v, and the rest unchanged", reason, g, g.Stalls, memory, io)
		}
	}
	n.must(os.Remove(file("memory.pressure")))
	check("no memory.pressure", false, true)
	n.must(os.WriteFile(file("memory.pressure"), []byte("some total=1\nfull total=1\n"), 0o644))
	check("it came a moment ago", false, true)
	n.now = n.now.Add(30 * time.Second)
	check("half a minute later", true, true)
	n.must(n.Remove(uid(1), id(1)))
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	n.must(os.Remove(file("memory.pressure")))
	n.must(os.Symlink("memory.pressure", file("memory.pressure")))
	n.read(target) // the old files are gone
	check("no way to open it", false, true)
	n.must(os.Remove(file("memory.pressure")))
	n.must(os.WriteFile(file("memory.pressure"), []byte("some total=1\nfull total=1\n"), 0o644))
	n.now = n.now.Add(30 * time.Second)
	check("half a minute later again", true, true)
	n.must(os.WriteFile(file("io.pressure"), []byte("nonsense\n"), 0o644))
	for range 600 {
		check("nonsense in io.pressure", true, false)
	}
	if lines := n.logged("io.pressure"); lines < 1 || lines > 11 {
		t.Errorf("%d lines about it in 10 minutes, want one a minute", lines)
	}
}

// TestStallsWithoutPressure: with Config.MemoryIOPressure on a kernel without pressure, one line says so.
func TestStallsWithoutPressure(t *testing.T) {
	n := newNode(t, cgroups.Shape{Version: kernel.V1}, func(n *node) { n.cfg.MemoryIOPressure = true })
	n.must(n.AddPod(cgroups.Burstable, uid(1), id(1)))
	for range 100 {
		if g := n.read(kernel.Target{Pod: uid(1), Containers: []string{id(1)}}).Pods[0].Containers[0]; !g.Found ||
			g.Stalls != nil {
			t.Fatalf("%+v", g)
		}
	}
	if n.logged("psi=1") != 1 || n.logged("\n") > 2 {
		t.Errorf("want one line that says what to do:\n%s", n.log.String())
	}
}

//go:build linux

package kernel_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestLayouts: in every layout of testdata exactly the right cgroups are found: each has a usage of
// its own, so a wrong one is detected. Ambiguous layouts are refused with a reason.
func TestLayouts(t *testing.T) {
	paths, err := filepath.Glob("testdata/layouts/*.txt")
	if err != nil || len(paths) < 23 {
		t.Fatalf("%d layouts, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			must.Succeed(t, err)
			parseLayout(t, string(text)).check(t)
		})
	}
}

// layout is a tree of cgroups and what Open and Read find in it.
type layout struct {
	version kernel.Version
	want    map[string]string // own, kubepods, driver, chosen-by, error
	targets []kernel.Target
	usage   map[string]time.Duration // by pod or container ID; absent: not to be found
	paths   []string
	quotas  map[string]kernel.Quota
	noCPU   bool
}

func parseLayout(t *testing.T, text string) *layout {
	l := &layout{
		version: kernel.V2, want: make(map[string]string),
		usage: make(map[string]time.Duration), quotas: make(map[string]kernel.Quota),
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch f[0] {
		case "version":
			l.version = kernel.Version(f[1])
		case "own", "kubepods", "driver":
			l.want[f[0]] = f[1]
		case "chosen-by", "error":
			l.want[f[0]] = strings.Join(f[1:], " ")
		case "no-cpu-controller":
			l.noCPU = true
		case "pod": // uid, path or "-"
			l.targets = append(l.targets, kernel.Target{Pod: f[1]})
			l.add(f[1], f[2])
		case "container": // id, path or "-": of the pod above
			last := &l.targets[len(l.targets)-1]
			last.Containers = append(last.Containers, f[1])
			l.add(f[1], f[2])
		case "quota": // of the path in the line above
			l.quotas[l.paths[len(l.paths)-1]] = kernel.Quota{Limit: 50 * time.Millisecond}
		case "other":
			l.add("", f[1])
		default:
			t.Fatalf("line %q", line)
		}
	}
	return l
}

// add adds a cgroup with a usage of its own.
func (l *layout) add(id, path string) {
	if path != "-" {
		l.paths = append(l.paths, path)
		l.usage[id] = time.Duration(len(l.paths)) * time.Second
	}
}

// system are the cgroups beside the kubelet's on each machine.
var system = []string{
	"init.scope", "system.slice/containerd.service", "system.slice/run-user-0.mount",
	"user.slice/user-0.slice/session-1.scope",
}

// write creates the files of the layout, and nothing else.
func (l *layout) write(t *testing.T) kernel.Config {
	t.Helper()
	tree, err := cgroups.New(t.TempDir(), cgroups.Shape{Version: l.version, Above: "not-here"})
	must.Succeed(t, err)
	cfg := tree.Config()
	for _, top := range []string{"", "cpu,cpuacct", "unified"} {
		must.Succeed(t, os.RemoveAll(filepath.Join(cfg.Root, top, "not-here")))
	}
	for i, path := range append(l.paths, append(system, l.want["kubepods"])...) {
		if i >= len(l.paths) && slices.Contains(l.paths, path) {
			continue
		}
		must.Succeed(t, tree.Write(path, kernel.Group{
			Stat:     kernel.Stat{Usage: time.Duration(i+1) * time.Second, ThrottledTime: time.Duration(i+1) * time.Second},
			Quota:    l.quotas[path],
			Pressure: kernel.Pressure{Known: true, Some: time.Duration(i+1) * time.Millisecond},
		}))
	}
	if l.noCPU {
		must.Succeed(t, os.WriteFile(filepath.Join(cfg.Root, "cgroup.controllers"), []byte("memory pids\n"), 0o644))
	}
	return cfg
}

func (l *layout) check(t *testing.T) {
	cfg, now := l.write(t), time.Unix(0, 0)
	cfg.OwnPod = l.want["own"]
	cfg.Now = func() time.Time { return now }
	cfg.Log = slog.New(slog.DiscardHandler)
	h, err := kernel.Open(cfg)
	if l.want["error"] != "" {
		if err == nil || !strings.Contains(err.Error(), l.want["error"]) {
			t.Fatalf("error %v, want %q", err, l.want["error"])
		}
		return
	}
	must.Succeed(t, err)
	defer h.Close()
	top := cfg.Root
	if l.version != kernel.V2 {
		top = filepath.Join(cfg.Root, "cpu,cpuacct")
	}
	want := kernel.Layout{
		Version: l.version, Driver: kernel.Driver(l.want["driver"]), Kubepods: filepath.Join(top, l.want["kubepods"]),
		PSI: l.version != kernel.V1, ChosenBy: kernel.Choice(l.want["chosen-by"]),
	}
	if diff := cmp.Diff(want, h.Layout()); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
	var got kernel.Sample
	for range 3 { // the whole tree is searched only after some Reads
		got = h.Read(l.targets)
		now = now.Add(6 * time.Second)
	}
	for i, target := range l.targets {
		own := got.Pods[i].Own
		l.checkGroup(t, "pod "+target.Pod, own, l.usage[target.Pod])
		if known := own.Found && l.version == kernel.V2; (own.Stat.Usage != 0) != known || own.Pressure.Known {
			t.Errorf("pod %s: %+v: want its own usage on v2 alone, and no pressure", target.Pod, own)
		}
		for j, id := range target.Containers {
			c := got.Pods[i].Containers[j]
			l.checkGroup(t, "container "+id, c, l.usage[id])
			if known := c.Found && l.version != kernel.V1; c.Stat.Usage != l.usage[id] || c.Pressure.Known != known {
				t.Errorf("container %s: %+v, want usage %v, and pressure known %v", id, c, l.usage[id], known)
			}
		}
	}
}

func (l *layout) checkGroup(t *testing.T, what string, got kernel.Group, usage time.Duration) {
	t.Helper()
	if got.Found != (usage != 0) || got.Stat.ThrottledTime != usage {
		t.Errorf("%s: found %v with %v throttled, want %v", what, got.Found, got.Stat.ThrottledTime, usage)
	}
}

// uid and id look like a pod's UID and a container's ID.
func uid(n int) string { return fmt.Sprintf("%08x-1111-4222-8333-0123456789ab", n) }
func id(n int) string  { return fmt.Sprintf("%02x%s", n, strings.Repeat("abcdef0123", 7)[:62]) }

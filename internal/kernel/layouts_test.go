//go:build linux

package kernel_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

var update = flag.Bool("update", false, "write testdata/layouts anew from the list in this file")

// TestLayouts: in every layout seen in the field, exactly the right cgroups are
// found: each has a usage of its own, so a wrong one shows. Layouts that
// can't be read for sure are refused with a reason.
func TestLayouts(t *testing.T) {
	written := make(map[string]bool)
	for _, l := range layouts() {
		path := filepath.Join("testdata/layouts", l.name+".txt")
		written[path] = true
		if *update {
			if err := os.WriteFile(path, []byte(l.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v; run with -update", err)
		}
		if diff := cmp.Diff(l.text, string(text)); diff != "" {
			t.Errorf("%s is not what this file says; run with -update:\n%s", path, diff)
		}
	}
	paths, err := filepath.Glob("testdata/layouts/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !written[path] {
			t.Logf("%s: recorded, not synthesised", path)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkLayout(t, string(text))
		})
	}
}

// checkLayout writes the tree that text lists, reads it and compares.
func checkLayout(t *testing.T, text string) {
	var (
		version = kernel.V2
		want    = make(map[string]string)
		targets []kernel.Target
		usage   = make(map[string]time.Duration) // by pod or container ID; absent: not to be found
		paths   []string
		quotas  = make(map[string]kernel.Quota)
		noCPU   bool
	)
	at := func(path string) time.Duration {
		paths = append(paths, path)
		return time.Duration(len(paths)) * time.Second
	}
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch f[0] {
		case "version":
			version = kernel.Version(f[1])
		case "own", "kubepods", "driver":
			want[f[0]] = f[1]
		case "anchor", "error":
			want[f[0]] = strings.Join(f[1:], " ")
		case "no-cpu-controller":
			noCPU = true
		case "pod": // uid, path or "-"
			targets = append(targets, kernel.Target{Pod: f[1]})
			if f[2] != "-" {
				usage[f[1]] = at(f[2])
			}
		case "container": // id, path or "-": of the pod above
			last := &targets[len(targets)-1]
			last.Containers = append(last.Containers, f[1])
			if f[2] != "-" {
				usage[f[1]] = at(f[2])
			}
		case "quota": // of the path in the line above
			quotas[paths[len(paths)-1]] = kernel.Quota{Limit: 50 * time.Millisecond}
		case "other":
			at(f[1])
		default:
			t.Fatalf("line %q", line)
		}
	}

	dir := t.TempDir()
	tree, err := cgroups.New(dir, cgroups.Shape{Version: version, Above: "not-here"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := tree.Config()
	for _, top := range []string{"", "cpu,cpuacct", "unified"} { // only what the text lists
		if err := os.RemoveAll(filepath.Join(cfg.Root, top, "not-here")); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range paths {
		if err := tree.Write(path, kernel.Group{
			Stat:     kernel.Stat{Usage: time.Duration(i+1) * time.Second},
			Quota:    quotas[path],
			Pressure: kernel.Pressure{Known: true, Some: time.Duration(i+1) * time.Millisecond},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if noCPU {
		if err := os.WriteFile(filepath.Join(cfg.Root, "cgroup.controllers"), []byte("memory pids\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(0, 0)
	cfg.OwnPod = want["own"]
	cfg.Now = func() time.Time { return now }
	cfg.Log = slog.New(slog.DiscardHandler)
	h, err := kernel.Open(cfg)
	if want["error"] != "" {
		if err == nil || !strings.Contains(err.Error(), want["error"]) {
			t.Fatalf("error %v, want %q", err, want["error"])
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	top := cfg.Root
	if version != kernel.V2 {
		top = filepath.Join(cfg.Root, "cpu,cpuacct")
	}
	wantLayout := kernel.Layout{
		Version: version, Driver: kernel.Driver(want["driver"]), Kubepods: filepath.Join(top, want["kubepods"]),
		PSI: version != kernel.V1, ChosenBy: kernel.Choice(want["anchor"]),
	}
	if diff := cmp.Diff(wantLayout, h.Layout()); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
	var got kernel.Sample
	for range 3 { // a search of the whole tree comes only after a while
		got = h.Read(targets)
		now = now.Add(6 * time.Second)
	}
	for i, target := range targets {
		checkGroup(t, "pod "+target.Pod, version, got.Pods[i].Own, usage[target.Pod])
		for j, id := range target.Containers {
			checkGroup(t, "container "+id, version, got.Pods[i].Containers[j], usage[id])
		}
	}
}

func checkGroup(t *testing.T, what string, version kernel.Version, got kernel.Group, usage time.Duration) {
	t.Helper()
	if got.Found != (usage != 0) || got.Stat.Usage != usage {
		t.Errorf("%s: found %v with usage %v, want usage %v", what, got.Found, got.Stat.Usage, usage)
	}
	if known := usage != 0 && version != kernel.V1; got.Pressure.Known != known {
		t.Errorf("%s: pressure known %v, want %v", what, got.Pressure.Known, known)
	}
}

type layout struct{ name, text string }

// layouts is one of each kind seen in the field.
func layouts() []layout {
	const qos, guaranteed = cgroups.Burstable, cgroups.Guaranteed
	var (
		us  = []string{uid(1), uid(2), uid(3)}
		ids = []string{id(1), id(2), id(3), id(4)}
	)
	// node lists two pods with their containers and what lies around them.
	node := func(b *bytes.Buffer, s cgroups.Shape) {
		fmt.Fprintf(b, "pod %s %s\n", us[0], s.Pod(qos, us[0]))
		fmt.Fprintf(b, "container %s %s\n", ids[0], s.Container(qos, us[0], ids[0]))
		fmt.Fprintf(b, "container %s %s\n", ids[1], s.Container(qos, us[0], ids[1]))
		fmt.Fprintf(b, "# its sandbox\nother %s\n", s.Container(qos, us[0], id(90)))
		fmt.Fprintf(b, "pod %s %s\n", us[1], s.Pod(cgroups.BestEffort, us[1]))
		fmt.Fprintf(b, "container %s %s\n", ids[2], s.Container(cgroups.BestEffort, us[1], ids[2]))
		fmt.Fprintf(b, "# a pod that nobody asked for\nother %s\n", s.Container(qos, us[2], ids[3]))
	}
	services := func(b *bytes.Buffer) {
		for _, p := range []string{"init.scope", "system.slice/containerd.service", "system.slice/run-user-0.mount", "user.slice/user-0.slice/session-1.scope"} {
			fmt.Fprintf(b, "other %s\n", p)
		}
	}
	var all []layout
	add := func(name, comment string, s cgroups.Shape, anchor kernel.Choice, own string, more func(b *bytes.Buffer)) {
		if s.Version == "" {
			s.Version = kernel.V2
		}
		if s.Driver == "" {
			s.Driver = kernel.Systemd
		}
		b := new(bytes.Buffer)
		fmt.Fprintf(b, "# %s\nversion %s\ndriver %s\nkubepods %s\nanchor %s\n", comment, s.Version, s.Driver, s.Kubepods(), anchor)
		if own != "" {
			fmt.Fprintf(b, "own %s\n", own)
		}
		fmt.Fprintf(b, "other %s\n", s.Kubepods())
		services(b)
		more(b)
		all = append(all, layout{name, b.String()})
	}
	refuse := func(name, comment, why, lines string) {
		all = append(all, layout{name, fmt.Sprintf("# %s\nversion v2\nerror %s\n%s", comment, why, lines)})
	}
	plain := func(s cgroups.Shape) func(*bytes.Buffer) {
		return func(b *bytes.Buffer) { node(b, s) }
	}
	shape := func(s cgroups.Shape) (cgroups.Shape, kernel.Choice, string, func(*bytes.Buffer)) {
		return s, kernel.ByName, "", plain(s)
	}
	cgroupfs := cgroups.Shape{Driver: kernel.Cgroupfs}
	systemd := cgroups.Shape{}

	{
		s, a, o, m := shape(systemd)
		add("systemd-containerd-v2", "kubelet and containerd with the systemd driver", s, a, o, m)
	}
	add("guaranteed", "Guaranteed pods lie directly below kubepods", systemd, kernel.ByOwnPod, us[0], func(b *bytes.Buffer) {
		fmt.Fprintf(b, "pod %s %s\ncontainer %s %s\n", us[0], systemd.Pod(guaranteed, us[0]), ids[0], systemd.Container(guaranteed, us[0], ids[0]))
		fmt.Fprintf(b, "pod %s %s\ncontainer %s %s\n", us[1], systemd.Pod(qos, us[1]), ids[1], systemd.Container(qos, us[1], ids[1]))
	})
	{
		s, a, o, m := shape(cgroupfs)
		add("cgroupfs", "the kubelet's own default; Talos", s, a, o, m)
	}
	crio := cgroups.Shape{Runtime: "crio"}
	add("crio-systemd", "CRI-O: each container has a monitor process with the same ID", crio, kernel.ByName, "", func(b *bytes.Buffer) {
		for _, i := range ids[:3] {
			fmt.Fprintf(b, "other %s/crio-conmon-%s.scope\n", crio.Pod(qos, us[0]), i)
		}
		node(b, crio)
	})
	{
		s, a, o, m := shape(cgroups.Shape{Driver: kernel.Cgroupfs, Runtime: "crio"})
		add("crio-cgroupfs", "CRI-O with the cgroupfs driver: no suffix", s, a, o, m)
	}
	{
		s, a, o, m := shape(cgroups.Shape{Runtime: "docker"})
		add("docker", "cri-dockerd", s, a, o, m)
	}
	kind := cgroups.Shape{Root: "kubelet"}
	{
		s, a, o, m := shape(kind)
		add("kind-systemd", "kind: the kubelet has a cgroup root of its own", s, a, o, m)
	}
	{
		s, a, o, m := shape(cgroups.Shape{Root: "kubelet", Driver: kernel.Cgroupfs})
		add("kind-cgroupfs", "kind with the cgroupfs driver", s, a, o, m)
	}
	outside := cgroups.Shape{Root: "kubelet", Above: "system.slice/docker-" + id(70) + ".scope"}
	{
		s, a, o, m := shape(outside)
		add("kind-seen-from-host", "kind's node container seen from the machine below it", s, a, o, m)
	}
	{
		s, a, o, m := shape(cgroups.Shape{Root: "podruntime", Driver: kernel.Cgroupfs})
		add("cgroup-root-custom", "--cgroup-root=/podruntime", s, a, o, m)
	}
	{
		s, a, o, m := shape(cgroups.Shape{Version: kernel.V1})
		add("v1", "cgroup v1: no pressure", s, a, o, m)
	}
	{
		s, a, o, m := shape(cgroups.Shape{Version: kernel.Hybrid, Driver: kernel.Cgroupfs})
		add("hybrid", "CPU on v1, pressure on v2", s, a, o, m)
	}
	add("driver-mismatch", "kubelet: systemd, containerd: cgroupfs. Containers lie outside of their pod, whose quota does not hold them",
		systemd, kernel.ByName, "", func(b *bytes.Buffer) {
			pod := systemd.Pod(qos, us[0])
			stray := "system.slice/containerd.service/" + filepath.Base(pod) + ":cri-containerd:"
			fmt.Fprintf(b, "pod %s %s\ncontainer %s %s%s\ncontainer %s %s%s\nother %s%s\n", us[0], pod, ids[0], stray, ids[0], ids[1], stray, ids[1], stray, id(90))
		})
	static := strings.ReplaceAll(uid(9), "-", "")
	add("static-pod", "static pods are named by the hash of their configuration", systemd, kernel.ByName, "", func(b *bytes.Buffer) {
		fmt.Fprintf(b, "pod %s %s\ncontainer %s %s\n", static, systemd.Pod(qos, static), ids[0], systemd.Container(qos, static, ids[0]))
	})
	add("crun-nested", "older crun: processes and quota are in a child of the container's cgroup", crio, kernel.ByName, "", func(b *bytes.Buffer) {
		outer := func(id string) string { return crio.Container(qos, us[0], id) }
		fmt.Fprintf(b, "pod %s %s\n", us[0], crio.Pod(qos, us[0]))
		fmt.Fprintf(b, "other %s\ncontainer %s %s/container\nquota\n", outer(ids[0]), ids[0], outer(ids[0]))
		fmt.Fprintf(b, "# no quota inside: the outer one counts\ncontainer %s %s\nother %s/container\n", ids[1], outer(ids[1]), outer(ids[1]))
		fmt.Fprintf(b, "# quota outside\ncontainer %s %s\nquota\nother %s/container\nquota\n", ids[2], outer(ids[2]), outer(ids[2]))
		fmt.Fprintf(b, "# a container that makes cgroups of its own\ncontainer %s %s\nother %s/other\nother %s/container\nquota\n", ids[3], outer(ids[3]), outer(ids[3]), outer(ids[3]))
	})
	add("two-clusters", "two kind nodes on one machine, seen from the machine: the own pod tells which", outside, kernel.ByOwnPod, us[1], func(b *bytes.Buffer) {
		other := outside
		other.Above = "system.slice/docker-" + id(60) + ".scope" // comes first
		fmt.Fprintf(b, "other %s\nother %s\n", other.Pod(qos, uid(50)), other.Container(qos, uid(51), ids[0]))
		node(b, outside)
	})
	add("nested-in-host", "the machine is a node itself and runs a kind node: the topmost is ours", systemd, kernel.ByShallower, "", func(b *bytes.Buffer) {
		inner := cgroups.Shape{Root: "kubelet"}
		fmt.Fprintf(b, "other %s\n", inner.Container(qos, uid(50), ids[0]))
		node(b, systemd)
	})
	add("leftover-driver", "the kubelet changed its driver and left an empty tree behind", systemd, kernel.ByPods, "", func(b *bytes.Buffer) {
		fmt.Fprint(b, "other kubepods/burstable\nother kubepods/besteffort\n")
		node(b, systemd)
	})
	add("sandboxed", "containers inside a virtual machine have no cgroup of their own", systemd, kernel.ByName, "", func(b *bytes.Buffer) {
		fmt.Fprintf(b, "pod %s %s\ncontainer %s -\n", us[0], systemd.Pod(qos, us[0]), ids[0])
		fmt.Fprintf(b, "# not started yet\npod %s -\ncontainer %s -\n", us[1], ids[1])
	})
	refuse("refused-two-clusters", "two kind nodes and no own pod", "give the own pod's UID",
		"other system.slice/docker-"+id(60)+".scope/"+kind.Pod(qos, us[0])+"\nother system.slice/docker-"+id(61)+".scope/"+kind.Pod(qos, us[1])+"\n")
	refuse("refused-foreign", "two kind nodes, and the own pod is in neither", "none holds pod "+us[2],
		"own "+us[2]+"\nother system.slice/docker-"+id(60)+".scope/"+kind.Pod(qos, us[0])+"\nother system.slice/docker-"+id(61)+".scope/"+kind.Pod(qos, us[1])+"\n")
	refuse("refused-no-kubepods", "no kubelet here", "no kubepods, kubepods.slice or *-kubepods.slice below", "other system.slice/containerd.service\n")
	refuse("refused-no-controller", "the cpu controller is not on v2", "no cpu controller among", "no-cpu-controller\nother kubepods.slice\n")
	return all
}

// uid and id look like a pod's UID and a container's ID.
func uid(n int) string { return fmt.Sprintf("%08x-1111-4222-8333-0123456789ab", n) }
func id(n int) string  { return fmt.Sprintf("%02x%s", n, strings.Repeat("abcdef0123", 7)[:62]) }

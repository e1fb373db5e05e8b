//go:build linux

package weights

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// uid is the n-th pod's.
func uid(n int) string { return fmt.Sprintf("01234567-89ab-cdef-0123-%012d", n) }

// layouts are the synthetic nodes.
var layouts = map[string]struct {
	shape cgroups.Shape
	idle  bool // the kernel has cpu.idle
}{
	"v2 systemd":            {cgroups.Shape{Version: kernel.V2, Driver: kernel.Systemd}, true},
	"v2 cgroupfs":           {cgroups.Shape{Version: kernel.V2, Driver: kernel.Cgroupfs}, true},
	"v2 systemd below kind": {cgroups.Shape{Version: kernel.V2, Driver: kernel.Systemd, Root: "kubelet"}, true},
	"v1 systemd":            {cgroups.Shape{Version: kernel.V1, Driver: kernel.Systemd}, true},
	"v1 cgroupfs":           {cgroups.Shape{Version: kernel.V1, Driver: kernel.Cgroupfs}, true},
	"v2 without cpu.idle":   {cgroups.Shape{Version: kernel.V2, Driver: kernel.Systemd}, false},
	"v1 without cpu.idle":   {cgroups.Shape{Version: kernel.V1, Driver: kernel.Cgroupfs}, false},
}

// node is a node with files for cgroups: all of machine, with kubepods in it.
type node struct {
	t        *testing.T
	shape    cgroups.Shape
	machine  string
	kubepods string
	record   Record
	weight   string // name of the file
	idle     bool
}

const original = 79

func newNode(t *testing.T, layout string) *node {
	t.Helper()
	l := layouts[layout]
	n := &node{t: t, shape: l.shape, machine: t.TempDir(), weight: weightFile, idle: l.idle}
	if l.shape.Version == kernel.V1 {
		n.weight = sharesFile
	}
	n.kubepods = filepath.Join(n.machine, l.shape.Kubepods())
	n.cgroup("system.slice/sshd.service")
	n.cgroup(l.shape.Kubepods())
	record, err := NewRecord(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n.record = record
	return n
}

// cgroup makes one, and those above it.
func (n *node) cgroup(path string) string {
	n.t.Helper()
	for p := path; p != "."; p = filepath.Dir(p) {
		dir := filepath.Join(n.machine, p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, n.weight)); err != nil {
			n.put(filepath.Join(dir, n.weight), original)
			if n.idle {
				n.put(filepath.Join(dir, idleFile), 0)
			}
		}
	}
	return filepath.Join(n.machine, path)
}

func (n *node) put(path string, v int) {
	n.t.Helper()
	if err := os.WriteFile(path, fmt.Appendln(nil, v), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) pod(qos cgroups.QoS, number int) string {
	return n.cgroup(n.shape.Pod(qos, uid(number)))
}

func (n *node) keeper() *Keeper {
	n.t.Helper()
	tree, err := OpenTree(n.kubepods)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = tree.Close() })
	k, err := NewKeeper(tree, n.record, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	return k
}

// files are all files of the machine.
func (n *node) files() map[string]string {
	n.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(n.machine, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, n.machine)] = string(text)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func (n *node) want(dir, name string, v uint64) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || strings.TrimSpace(string(text)) != fmt.Sprint(v) {
		n.t.Errorf("%s: %q, %v; want %d", filepath.Join(dir, name), text, err, v)
	}
}

func request(settings ...wire.Setting) wire.Request { return wire.Request{Settings: settings} }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a time of a test, in seconds.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// TestEveryLayoutIsWritten: class and weight are written in every layout, nothing else changes, and all comes back.
func TestEveryLayoutIsWritten(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, name)
			a, b := n.pod(cgroups.Burstable, 1), n.pod(cgroups.BestEffort, 2)
			before := n.files()
			k := n.keeper()
			reply := k.Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 500}, wire.Setting{UID: uid(2), Idle: true, Weight: 1}))
			if reply.Idle != 1 || reply.Weighted != 1 || len(reply.Refused) > 0 {
				t.Errorf("reply %+v, want one pod in each class and no refusal", reply)
			}
			weight, least := uint64(500), uint64(1)
			if n.weight == sharesFile {
				weight, least = 13084, 2 // 2 + 499 x 262142 / 9999
			}
			n.want(a, n.weight, weight)
			if l.idle {
				n.want(b, idleFile, 1)
			} else {
				n.want(b, n.weight, least)
			}
			changed := 0
			for path, text := range n.files() {
				if text != before[path] {
					changed++
				}
			}
			if changed != 2 {
				t.Errorf("%d files changed, want 2", changed)
			}
			if err := k.RestoreAll(); err != nil {
				t.Fatal(err)
			}
			if after := n.files(); !maps.Equal(after, before) {
				t.Errorf("after the restore: %v, want %v", after, before)
			}
		})
	}
}

// TestSharesAreKept: cpu.shares stay what they are where a setting asks for the weight that they are.
func TestSharesAreKept(t *testing.T) {
	n := newNode(t, "v1 cgroupfs")
	dir := n.pod(cgroups.Burstable, 1)
	n.put(filepath.Join(dir, sharesFile), 102) // a request of 100m, and as a weight 4, which alone is 81 shares
	k := n.keeper()
	k.Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 4}))
	n.want(dir, sharesFile, 102)
	k.Apply(at(1), request(wire.Setting{UID: uid(1), Weight: 5}))
	n.want(dir, sharesFile, 107) // 2 + 4 x 262142 / 9999
}

func TestOldKernelsGetTheLeastWeight(t *testing.T) {
	for layout, least := range map[string]uint64{"v2 without cpu.idle": 1, "v1 without cpu.idle": 2} {
		n := newNode(t, layout)
		dir := n.pod(cgroups.Burstable, 1)
		n.keeper().Apply(at(0), request(wire.Setting{UID: uid(1), Idle: true, Weight: 100}))
		n.want(dir, n.weight, least)
	}
}

// TestOriginalsAreRecordedFirst: while the record cannot be written, no cgroup is.
func TestOriginalsAreRecordedFirst(t *testing.T) {
	n := newNode(t, "v2 systemd")
	n.pod(cgroups.Burstable, 1)
	before, k := n.files(), n.keeper()
	good := k.record.path
	k.record.path = filepath.Join(good, "no", "directory")
	set := request(wire.Setting{UID: uid(1), Idle: true, Weight: 1})
	reply := k.Apply(at(0), set)
	if len(reply.Refused) != 1 || reply.Refused[0].Why != wire.NotRecorded {
		t.Errorf("reply %+v, want NotRecorded", reply)
	}
	if !maps.Equal(n.files(), before) {
		t.Error("a cgroup was written before the record")
	}
	k.record.path = good
	if reply = k.Apply(at(1), set); reply.Idle != 1 {
		t.Errorf("reply %+v once the disk is writable, want the pod idle", reply)
	}
	if recorded, err := n.record.load(); err != nil || recorded[uid(1)].values != (values{Weight: original}) {
		t.Errorf("record %v, %v: want the original weight %d", recorded, err, original)
	}
}

// TestAFullDiskIsLoggedOnce: each request tries again, and the log does not fill what is left of the disk.
func TestAFullDiskIsLoggedOnce(t *testing.T) {
	n := newNode(t, "v2 systemd")
	n.pod(cgroups.Burstable, 1)
	k := n.keeper()
	var log strings.Builder
	k.log = slog.New(slog.NewTextHandler(&log, nil))
	good, set := k.record.path, request(wire.Setting{UID: uid(1), Idle: true, Weight: 1})
	for second, want := range []int{1, 1, 1, 1, 2} {
		k.record.path = filepath.Join(good, "no", "directory")
		if second == 3 { // it is saved in between
			k.record.path = good
		}
		if second == 4 {
			set = request()
		}
		k.Apply(at(float64(second)), set)
		if got := strings.Count(log.String(), "nothing new is written"); got != want {
			t.Errorf("%d lines after request %d, want %d: %s", got, second, want, &log)
		}
	}
}

func TestOriginalsComeBack(t *testing.T) {
	set := request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}, wire.Setting{UID: uid(2), Weight: 300})
	for name, leave := range map[string]func(*node, *Keeper){
		"exit": func(n *node, k *Keeper) {
			if err := k.RestoreAll(); err != nil {
				n.t.Error(err)
			}
		},
		"opt-out":      func(_ *node, k *Keeper) { k.Apply(at(2), request()) },
		"unresponsive": func(_ *node, k *Keeper) { k.RestoreUnresponsive(at(10), wire.AgentTimeout) },
		"kill":         func(n *node, _ *Keeper) { n.keeper() },
		"two kills":    func(n *node, _ *Keeper) { n.keeper().Apply(at(0), set); n.keeper() },
		"class twice":  func(_ *node, k *Keeper) { k.Apply(at(1), request(set.Settings[1])); k.Apply(at(2), request()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "v2 systemd")
			n.pod(cgroups.Burstable, 1)
			n.pod(cgroups.Burstable, 2)
			before, k := n.files(), n.keeper()
			if k.Apply(at(0), set); maps.Equal(n.files(), before) {
				t.Fatal("nothing was written, so nothing can come back")
			}
			k.RestoreUnresponsive(at(9), wire.AgentTimeout)
			if maps.Equal(n.files(), before) {
				t.Fatal("restored after 9 s without a message, want 10 s")
			}
			leave(n, k)
			if after := n.files(); !maps.Equal(after, before) {
				t.Errorf("%v, want %v", after, before)
			}
			if left, err := n.record.load(); err != nil || len(left) > 0 {
				t.Errorf("record %v, %v: want an empty one", left, err)
			}
		})
	}
}

func TestFreshCgroupsAreLeftAlone(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	n.keeper().Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 300}))
	n.put(filepath.Join(dir, n.weight), 500) // the kubelet made it anew, for a request that is another now
	n.record.bootID = "another start of the machine"
	n.keeper()
	n.want(dir, n.weight, 500)

	n.record.bootID = "yet another"
	n.keeper().Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 300}))
	if err := os.RemoveAll(dir); err != nil { // a pod that is gone
		t.Fatal(err)
	}
	n.keeper()
}

// TestOnlyPodsBelowKubepods: what a request names is a Burstable or BestEffort pod, or nothing is written.
func TestOnlyPodsBelowKubepods(t *testing.T) {
	for layout := range layouts {
		t.Run(layout, func(t *testing.T) { onlyPodsBelowKubepods(t, newNode(t, layout)) })
	}
}

func onlyPodsBelowKubepods(t *testing.T, n *node) {
	guaranteed := uid(3)
	n.pod(cgroups.Guaranteed, 3)
	n.pod(cgroups.Burstable, 1)
	n.cgroup("kubepods/burstable/pod" + strings.Repeat("a", 32)) // a static pod
	n.cgroup("other/burstable/pod" + uid(4))
	before := n.files()
	var settings []wire.Setting
	for _, uid := range []string{
		"", ".", "..", "/", uid(9), guaranteed, strings.Repeat("a", 32), uid(4), "../../../system.slice/sshd.service",
		uid(1) + "/..", uid(1) + "\x00", strings.ToUpper(uid(1)), "../" + uid(1), strings.ReplaceAll(uid(1), "-", "/"),
		"..-..-..-..-" + strings.Repeat(".", 23), strings.Repeat("0", 1<<16), uid(1)[:35] + "é",
	} {
		settings = append(settings, wire.Setting{UID: uid, Idle: true, Weight: 1})
	}
	for _, weight := range []uint64{0, wire.MaxWeight + 1, 1 << 63} {
		settings = append(settings, wire.Setting{UID: uid(1), Weight: weight})
	}
	reply := n.keeper().Apply(at(0), request(settings...))
	if len(reply.Refused) != len(settings) || reply.Idle+reply.Weighted > 0 {
		t.Errorf("%d of %d refused, %d carried out: want all refused", len(reply.Refused), len(settings),
			reply.Idle+reply.Weighted)
	}
	for _, r := range reply.Refused {
		if r.Why != wire.Invalid && r.Why != wire.NotFound {
			t.Errorf("%q: %s, want Invalid or NotFound", r.UID, r.Why)
		}
	}
	if after := n.files(); !maps.Equal(after, before) {
		t.Errorf("files changed: %v, want %v", after, before)
	}
}

func TestSymlinksAreRefused(t *testing.T) {
	link := func(n *node, to, from string) {
		n.t.Helper()
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			n.t.Fatal(err)
		}
		if err := os.Symlink(to, from); err != nil {
			n.t.Fatal(err)
		}
	}
	for name, prepare := range map[string]func(*node){
		"the pod": func(n *node) { link(n, n.cgroup("system.slice"), filepath.Join(n.kubepods, "burstable", "pod"+uid(1))) },
		"the QoS class": func(n *node) {
			n.cgroup("other/pod" + uid(1))
			link(n, filepath.Join(n.machine, "other"), filepath.Join(n.kubepods, "burstable"))
		},
		"relative, within kubepods": func(n *node) {
			n.pod(cgroups.Guaranteed, 2)
			link(n, "../pod"+uid(2), filepath.Join(n.kubepods, "burstable", "pod"+uid(1)))
		},
		"the files": func(n *node) {
			dir := n.pod(cgroups.Burstable, 1)
			for _, f := range []string{weightFile, idleFile} {
				if err := os.Remove(filepath.Join(dir, f)); err != nil {
					n.t.Fatal(err)
				}
				link(n, filepath.Join(n.cgroup("system.slice"), f), filepath.Join(dir, f))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "v2 cgroupfs")
			prepare(n)
			before := n.files()
			reply := n.keeper().Apply(at(0), request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}))
			if len(reply.Refused) != 1 {
				t.Errorf("reply %+v, want a refusal", reply)
			}
			if after := n.files(); !maps.Equal(after, before) {
				t.Errorf("files changed: %v, want %v", after, before)
			}
		})
	}
	n := newNode(t, "v2 cgroupfs")
	link(n, n.kubepods, filepath.Join(n.machine, "link"))
	if _, err := OpenTree(filepath.Join(n.machine, "link")); err == nil {
		t.Error("a symbolic link was opened as kubepods")
	}
}

func TestRewritesAreSetAgain(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k, set := n.keeper(), request(wire.Setting{UID: uid(1), Weight: 300})
	k.Apply(at(0), set)
	k.Apply(at(10), set)
	n.put(filepath.Join(dir, n.weight), original)
	k.Apply(at(11), set)
	n.want(dir, n.weight, original) // looked at a second ago
	if reply := k.Apply(at(13), set); reply.Rewrites != 1 {
		t.Errorf("%d rewrites, want 1", reply.Rewrites)
	}
	n.want(dir, n.weight, 300)
}

func TestContestsEnd(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k, set := n.keeper(), request(wire.Setting{UID: uid(1), Idle: true, Weight: 1})
	k.Apply(at(0), set)
	var reply wire.Reply
	for i := 1; i <= 60; i++ {
		n.put(filepath.Join(dir, idleFile), 0)
		reply = k.Apply(at(float64(i)), set)
	}
	if reply.Rewrites != maxRewrites+1 || len(reply.Refused) != 1 || reply.Refused[0].Why != wire.Contested {
		t.Errorf("reply %+v, want %d rewrites and Contested", reply, maxRewrites+1)
	}
	n.want(dir, idleFile, 0)
	k.Apply(at(61), request())
	if k.Apply(at(62), set); len(k.originals) != 1 {
		t.Error("after an opt-out the pod is still left alone")
	}
	n.want(dir, idleFile, 1)
}

func TestNewRequestsBecomeOriginal(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k, set := n.keeper(), request(wire.Setting{UID: uid(1), Weight: 300})
	k.Apply(at(0), set)
	n.put(filepath.Join(dir, n.weight), 157) // the pod's request was resized
	k.Apply(at(5), set)
	n.want(dir, n.weight, 300)
	n.keeper() // a kill and a restart
	n.want(dir, n.weight, 157)

	n.keeper().Apply(at(0), set)
	n.put(filepath.Join(dir, n.weight), 200) // the last moment before the exit
	if err := k.RestoreAll(); err != nil {
		t.Fatal(err)
	}
	n.want(dir, n.weight, 200)
}

// TestBadRecords: a record that is no record stops the program, and one with impossible values changes nothing.
func TestBadRecords(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	tree, err := OpenTree(n.kubepods)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, text := range []string{"", "{", "[]", strings.Repeat(" ", maxRecord+1)} {
		if err := os.WriteFile(n.record.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewKeeper(tree, n.record, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), n.record.path) {
			t.Errorf("%.9q: error %v, want one that names the file", text, err)
		}
	}
	if err := n.record.save(map[string]entry{
		"../../x": {values: values{Weight: 1}}, uid(1): {values: values{Weight: 1 << 40}},
	}); err != nil {
		t.Fatal(err)
	}
	n.keeper()
	n.want(dir, n.weight, original)
}

//go:build linux

package weights

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// einval refuses what the kernel refuses of an idle group: its weight.
func einval(_, file string) error {
	if file == idleFile {
		return nil
	}
	return unix.EINVAL
}

// TestFailedWritesAreNoContest: a write that fails half-way is not taken for another writer's.
func TestFailedWritesAreNoContest(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k := n.keeper()
	k.Apply(at(0), request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}))
	k.tree.refuse = einval
	set := request(wire.Setting{UID: uid(1), Weight: 300})
	for i := range 20 {
		reply := k.Apply(at(float64(4*i+4)), set)
		if reply.Rewrites != 0 || len(reply.Refused) != 1 || reply.Refused[0].Why != wire.WriteFailed {
			t.Fatalf("attempt %d: reply %+v, want WriteFailed and no rewrite", i, reply)
		}
	}
	k.tree.refuse = nil
	if reply := k.Apply(at(100), set); reply.Weighted != 1 || reply.Rewrites != 0 {
		t.Errorf("reply %+v once the kernel takes it, want one weighted pod", reply)
	}
	n.want(dir, n.weight, 300)
	k.Apply(at(101), request())
	n.want(dir, n.weight, original)
}

// TestFailedRestoresAreNotUndone: a pod that is opted out stays out while its restore fails half-way.
func TestFailedRestoresAreNotUndone(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k := n.keeper()
	k.Apply(at(0), request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}))
	k.tree.refuse = einval
	for i := range 5 {
		n.put(filepath.Join(dir, n.weight), defaultWeight) // the kernel's, once it has left the class
		k.Apply(at(float64(10*i+10)), request())
		n.want(dir, idleFile, 0)
	}
	k.tree.refuse = nil
	k.Apply(at(200), request())
	n.want(dir, n.weight, original)
	if left, err := n.record.load(); err != nil || len(left) > 0 {
		t.Errorf("record %v, %v: want an empty one", left, err)
	}
}

// TestExternalValuesStay: after a kill, a value that this program did not write is not overwritten.
func TestExternalValuesStay(t *testing.T) {
	for name, c := range map[string]struct {
		set   wire.Setting
		files map[string]int
		want  uint64
	}{
		"weight":            {wire.Setting{Weight: 300}, map[string]int{weightFile: 500}, 500},
		"weight, taken out": {wire.Setting{Idle: true, Weight: 1}, map[string]int{idleFile: 0, weightFile: 500}, 500},
		"ours":              {wire.Setting{Weight: 300}, nil, original},
		"left the idle class": {
			wire.Setting{Idle: true, Weight: 1}, map[string]int{idleFile: 0, weightFile: defaultWeight}, original,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "v2 cgroupfs")
			dir := n.pod(cgroups.Burstable, 1)
			c.set.UID = uid(1)
			n.keeper().Apply(at(0), request(c.set))
			for file, v := range c.files {
				n.put(filepath.Join(dir, file), v)
			}
			n.keeper() // after a kill
			n.want(dir, weightFile, c.want)
			n.want(dir, idleFile, 0)
			if left, err := n.record.load(); err != nil || len(left) > 0 {
				t.Errorf("record %v, %v: want an empty one", left, err)
			}
		})
	}
}

// TestOldRecordsAreRestored: a record of a version that did not tell what it wrote.
func TestOldRecordsAreRestored(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	n.put(filepath.Join(dir, idleFile), 1)
	text := `{"bootID":"` + n.record.bootID + `","pods":{"` + uid(1) + `":{"weight":79}}}`
	if err := os.WriteFile(n.record.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.keeper()
	n.want(dir, idleFile, 0)
	n.want(dir, n.weight, original)
}

// TestOwnResizesAreNoContest: the kubelet writes a pod's own weight with each resize of its limits.
func TestOwnResizesAreNoContest(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	k := n.keeper()
	k.Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 300}))
	for i := 1; i <= 4*maxRewrites; i++ {
		now := float64(4 * i)
		k.Apply(at(now), request(wire.Setting{UID: uid(1), Weight: 300, Resizing: true}))
		n.put(filepath.Join(dir, n.weight), original)
		reply := k.Apply(at(now+3), request(wire.Setting{UID: uid(1), Weight: 300}))
		if reply.Weighted != 1 || reply.Rewrites != uint64(i) {
			t.Fatalf("resize %d: reply %+v, want the weight set again", i, reply)
		}
		n.want(dir, n.weight, 300)
	}
	for i := 1; i <= 4*maxRewrites; i++ { // another weight is another program's, also during a resize
		n.put(filepath.Join(dir, n.weight), 400+i)
		k.Apply(at(float64(100+4*i)), request(wire.Setting{UID: uid(1), Weight: 300, Resizing: true}))
	}
	n.want(dir, n.weight, 400+4*maxRewrites)
}

// TestOneSavePerRequest: the disk is written once for all pods that another writer has changed.
func TestOneSavePerRequest(t *testing.T) {
	n := newNode(t, "v2 systemd")
	var all []wire.Setting
	var dirs []string
	for i := range 50 {
		dirs = append(dirs, n.pod(cgroups.Burstable, i))
		all = append(all, wire.Setting{UID: uid(i), Weight: 300})
	}
	k := n.keeper()
	saves := countSaves(t, filepath.Dir(n.record.path))
	k.Apply(at(0), request(all...))
	if got := saves(); got != 1 {
		t.Errorf("%d saves for 50 new pods, want 1", got)
	}
	for i, dir := range dirs {
		n.put(filepath.Join(dir, n.weight), 400+i)
	}
	k.Apply(at(5), request(all...))
	if got := saves(); got != 1 {
		t.Errorf("%d saves for 50 pods that another writer changed, want 1", got)
	}
	k.Apply(at(10), request(all...))
	if got := saves(); got != 0 {
		t.Errorf("%d saves where nothing changed, want 0", got)
	}
}

// countSaves counts how often the record in a directory was replaced since the last call.
func countSaves(t *testing.T, dir string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVE); err != nil { // two events each, so none are merged
		t.Fatal(err)
	}
	return func() int {
		buffer := make([]byte, 1<<16)
		read, err := unix.Read(fd, buffer)
		if err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		return bytes.Count(buffer[:max(read, 0)], []byte("originals.json.new"))
	}
}

// TestFailedRestoresAreRetried: one pod that cannot be restored neither ends the program nor keeps others from it.
func TestFailedRestoresAreRetried(t *testing.T) {
	n := newNode(t, "v2 cgroupfs")
	stuck, other := n.pod(cgroups.Burstable, 1), n.pod(cgroups.Burstable, 2)
	n.keeper().Apply(at(0), request(wire.Setting{UID: uid(1), Weight: 300}, wire.Setting{UID: uid(2), Weight: 300}))
	tree, err := OpenTree(n.kubepods)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	attempts := 0
	tree.refuse = func(pod, _ string) error {
		if strings.Contains(pod, uid(1)) {
			attempts++
			return unix.EIO
		}
		return nil
	}
	k, err := NewKeeper(tree, n.record, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.want(stuck, n.weight, 300)
	n.want(other, n.weight, original)
	attempts = 0
	for second := range 600 {
		reply := k.Apply(at(float64(second)), request(wire.Setting{UID: uid(2), Weight: 200}))
		if reply.Weighted != 1 {
			t.Fatalf("second %d: reply %+v, want the other pod weighted", second, reply)
		}
	}
	if attempts < 8 || attempts > 20 { // 1, 2, 4, ... 60 s
		t.Errorf("%d attempts in 10 minutes, want 8 to 20", attempts)
	}
	k.RestoreUnresponsive(at(610), wire.AgentTimeout)
	n.want(other, n.weight, original)
	n.want(stuck, n.weight, 300)
	tree.refuse = nil
	for second := range 76 { // the longest back-off, and a quarter
		k.RestoreUnresponsive(at(611+float64(second)), wire.AgentTimeout)
	}
	n.want(stuck, n.weight, original)
	if left, err := n.record.load(); err != nil || len(left) > 0 {
		t.Errorf("record %v, %v: want an empty one", left, err)
	}
}

// TestRetriesHaveJitter: many nodes with one fault do not try again at the same moments.
func TestRetriesHaveJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 50 {
		r := retry{}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			r = r.next(start)
			wait, mean := r.at.Sub(start), want*time.Second
			if wait < mean*3/4 || wait > mean*5/4 {
				t.Fatalf("retry after %s, want %s plus or minus a quarter", wait, mean)
			}
			seen[wait] = true
		}
	}
	if len(seen) < 300 {
		t.Errorf("%d different waits of 400", len(seen))
	}
}

// TestSocketHasItsMode: every user may connect, whatever the mask of new files, which stays as it was.
func TestSocketHasItsMode(t *testing.T) {
	dir, err := os.MkdirTemp("", "w") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	mask := unix.Umask(0o077)
	defer unix.Umask(mask)
	l, err := Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Lstat(filepath.Join(dir, "s")); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("mode %v, %v: want 0666", st.Mode(), err)
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("mask %#o after Listen, want %#o", now, 0o077)
	}
}

package cluster

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

func TestFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	must.Succeed(t, os.WriteFile(file, nil, 0o644))
	err := Up(t.Context(), config.Default(dir), false, t.TempDir(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--state") {
		t.Errorf("up in a folder with others' files: %v, want a refusal that names --state", err)
	}
	if err := Down(t.Context(), dir, io.Discard); err == nil {
		t.Error("down of a folder that is no cluster's: no error")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file in it: %v", err)
	}
}

// saved is a cluster in a folder of the test's.
func saved(t *testing.T) *Cluster {
	t.Helper()
	state, err := resolve(filepath.Join(t.TempDir(), "state"))
	must.Succeed(t, err)
	c := &Cluster{Config: config.Default(state), Addons: map[string]time.Duration{}, out: io.Discard}
	must.Succeed(t, os.Mkdir(c.State, 0o755))
	c.Before = &clean.Before{Sysctls: map[string]string{"kernel/panic": "1"}, Absent: []string{"/var/lib/kubelet"}}
	c.Nodes = []config.Node{{Name: "vm", Index: 2, SystemReservedCPU: "1", VM: &config.VM{CPUs: 2}}}
	must.Succeed(t, c.save())
	return c
}

func TestOpen(t *testing.T) {
	want := saved(t)
	got, release, err := Open(t.Context(), want.State, "", io.Discard)
	must.Succeed(t, err)
	equal := cmp.Comparer(func(a, b config.Config) bool { return a == b })
	if d := cmp.Diff(want, got, equal, ignoreUnexported); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	busy, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, _, err := Open(busy, want.State, "", io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open while another command has the lock: %v, want that it waits", err)
	}
	for range 2 {
		must.Succeed(t, release())
		if _, release, err = Open(t.Context(), want.State, "", io.Discard); err != nil {
			t.Fatalf("open after the release: %v", err)
		}
	}
	must.Succeed(t, release())
	other := want.Config
	other.NodeName = "another"
	err = Up(t.Context(), other, true, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("up with chosen settings that differ: %v, want a refusal", err)
	}
	moved := want.State + "-moved"
	must.Succeed(t, os.Rename(want.State, moved))
	if _, err := Read(moved, "", io.Discard); err == nil {
		t.Error("certificates and settings hold the old path; a moved folder cannot work")
	}
}

var ignoreUnexported = cmp.FilterPath(func(p cmp.Path) bool {
	field, ok := p.Last().(cmp.StructField)
	return ok && strings.ToLower(field.Name()[:1]) == field.Name()[:1]
}, cmp.Ignore())

func TestBrokenFile(t *testing.T) {
	c := saved(t)
	must.Succeed(t, os.WriteFile(c.file(), []byte("{"), 0o644))
	if err := Down(t.Context(), c.State, io.Discard); err == nil {
		t.Error("down does not see a broken file: nothing would be put back")
	}
}

// TestBrokenNodes: a name or slot that no node can have would be a path or cgroup of others.
func TestBrokenNodes(t *testing.T) {
	for _, n := range []config.Node{
		{Name: "a"}, {Name: "a", Index: config.Slots}, {Name: "../a", Index: 1}, {Index: 1},
	} {
		c := saved(t)
		c.Nodes = []config.Node{n}
		must.Succeed(t, c.save())
		if _, err := Read(c.State, "", io.Discard); err == nil {
			t.Errorf("node %q in slot %d: no error", n.Name, n.Index)
		}
	}
}

// TestSymlink: a state folder behind a symlink is the same, and a refusal leaves the symlink.
func TestSymlink(t *testing.T) {
	c := saved(t)
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, os.Symlink(c.State, link))
	other := config.Default(link)
	other.NodeName = "another"
	if err := Up(t.Context(), other, true, "", io.Discard); err == nil {
		t.Fatal("up with other settings: no error")
	}
	got, err := Read(link, "", io.Discard)
	if err != nil || got.State != c.State {
		t.Fatalf("read through a symlink: %v, want the cluster of %s", err, c.State)
	}
	must.Succeed(t, os.RemoveAll(c.State))
	if got, err := resolve(filepath.Join(link, "new")); err != nil || got != filepath.Join(c.State, "new") {
		t.Errorf("through a symlink to nothing: %s, %v", got, err)
	}
}

// TestRefusedUp: a folder that was there stays, and one that was made goes. What an interrupted first save
// has left is no file of others.
func TestRefusedUp(t *testing.T) {
	up := func(state string) error {
		return Up(t.Context(), config.Default(state), false, filepath.Join(t.TempDir(), "none"), io.Discard)
	}
	empty := t.TempDir()
	if err := up(empty); err == nil {
		t.Fatal("up without programs: no error")
	}
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("an empty folder of the user's: %v", err)
	}
	made := filepath.Join(t.TempDir(), "state")
	if err := up(made); err == nil {
		t.Fatal("up without programs: no error")
	}
	if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder of which nothing came: %v, want that it is gone", err)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(empty, "cluster.json.tmp"), nil, 0o644))
	if err := up(empty); err == nil || strings.Contains(err.Error(), "has files") {
		t.Errorf("up after a save that was interrupted: %v", err)
	}
}

// TestFailedSave leaves nothing that would keep the next up from starting.
func TestFailedSave(t *testing.T) {
	c := &Cluster{Config: config.Default(t.TempDir())}
	must.Succeed(t, os.MkdirAll(filepath.Join(c.file(), "in-the-way"), 0o755))
	if err := c.save(); err == nil {
		t.Fatal("save over a folder: no error")
	}
	if _, err := os.Stat(c.file() + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file with the other name: %v, want that it is gone", err)
	}
}

func TestOneCluster(t *testing.T) {
	c, other := saved(t), t.TempDir()
	c.Before, c.Nodes = nil, nil // if down goes on, there is nothing but its folder to remove
	must.Succeed(t, c.save())
	sleeper := proc.Program{Name: "kubelet", Path: "/bin/sleep", Args: []string{"60"}}
	p, err := proc.Start(t.Context(), sleeper, other, filepath.Join(other, "log"))
	must.Succeed(t, err)
	defer func() { _ = p.Stop(context.Background(), time.Second) }()
	for name, err := range map[string]error{
		"down": Down(t.Context(), c.State, io.Discard),
		"up":   Up(t.Context(), c.Config, false, filepath.Join(c.State, "none"), io.Discard),
	} {
		if err == nil || !strings.Contains(err.Error(), "down --state "+other) {
			t.Errorf("%s while another cluster runs: %v, want a refusal that names %s", name, err, other)
		}
	}
}

// TestBrokenNode: an added node that is broken keeps no other from starting.
func TestBrokenNode(t *testing.T) {
	first, one, two := config.Node{Name: "a"}, config.Node{Name: "b", Index: 1}, config.Node{Name: "c", Index: 2}
	fail := func(name string) func(config.Node) error {
		return func(n config.Node) error {
			if n.Name == name {
				return io.EOF
			}
			return nil
		}
	}
	done, failed, err := each([]config.Node{first, one, two}, fail("b"))
	if d := cmp.Diff([]config.Node{first, two}, done); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if failed == nil || !strings.Contains(failed.Error(), "node remove b") {
		t.Errorf("%v, want the way out", failed)
	}
	if done, _, err := each([]config.Node{first, one}, fail("a")); err == nil || len(done) > 0 {
		t.Errorf("without the first node: done %v, error %v", done, err)
	}
}

func TestFreeSlot(t *testing.T) {
	type spot struct {
		Index int
		Name  string
	}
	first, one, two := spot{0, "mbcas-node-1"}, spot{1, "mbcas-vm-1"}, spot{2, "mbcas-vm-2"}
	tests := map[string]struct {
		have   []spot
		name   string
		want   spot
		wants  string // in the error
		reason string
	}{
		"first":       {want: one},
		"second":      {have: []spot{one}, want: two},
		"in a gap":    {have: []spot{two}, want: one, reason: "a removed node's slot is free again"},
		"named":       {name: "slow", want: spot{1, "slow"}},
		"no room":     {have: []spot{one, two}, wants: "node remove mbcas-vm-1"},
		"name taken":  {have: []spot{one}, name: "mbcas-vm-1", wants: "exists"},
		"name in use": {have: []spot{{2, "mbcas-vm-1"}}, want: spot{1, "mbcas-vm-2"}, reason: "the next name is free"},
		"the first's": {name: "mbcas-node-1", wants: "exists"},
	}
	for name, tt := range tests {
		var have []config.Node
		for _, h := range append([]spot{first}, tt.have...) {
			have = append(have, config.Node{Index: h.Index, Name: h.Name})
		}
		index, called, err := freeSlot(have, config.Node{Name: tt.name, VM: &config.VM{}})
		if tt.wants != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("%s: err %v, want one with %q; %s", name, err, tt.wants, tt.reason)
			}
			continue
		}
		if d := cmp.Diff(tt.want, spot{index, called}); d != "" || err != nil {
			t.Errorf("%s: %v; %s (-want +got):\n%s", name, err, tt.reason, d)
		}
	}
}

package cluster

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

func TestFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
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
	state := filepath.Join(t.TempDir(), "state")
	c := &Cluster{Config: config.Default(state), Addons: map[string]time.Duration{}, out: io.Discard}
	if err := os.Mkdir(c.State, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Before = &clean.Before{Sysctls: map[string]string{"kernel/panic": "1"}, Absent: []string{"/var/lib/kubelet"}}
	c.Nodes = []config.Node{{Name: "vm", Index: 2, SystemReservedCPU: "1", VM: &config.VM{CPUs: 2}}}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpen(t *testing.T) {
	want := saved(t)
	got, release, err := Open(t.Context(), want.State, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	equal := cmp.Comparer(func(a, b config.Config) bool { return a == b })
	if d := cmp.Diff(want, got, equal, ignoreUnexported); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	busy, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := Open(busy, want.State, "", io.Discard); err == nil {
		t.Error("two commands have the lock of one state folder")
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	other := want.Config
	other.NodeName = "another"
	err = Up(t.Context(), other, true, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("up with chosen settings that differ: %v, want a refusal", err)
	}
	moved := want.State + "-moved"
	if err := os.Rename(want.State, moved); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(c.file(), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), c.State, io.Discard); err == nil {
		t.Error("down does not see a broken file: nothing would be put back")
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

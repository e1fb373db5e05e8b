//go:build linux

package kernelrun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// TestClassIsWritten: a group enters the idle class, and has its weight again when it leaves, although the kernel
// forgets that.
func TestClassIsWritten(t *testing.T) {
	requireSupport(t)
	tree, err := makeTree()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tree.remove(); err != nil {
			t.Error(err)
		}
	}()
	g, err := tree.add("class")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tree.quota, "class", "cpu.idle")); err != nil {
		t.Skip("the kernel has no idle class for groups: ", err)
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(tree.quota, "class", file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	file, ofRequest, ofShares := "cpu.shares", "512", "2048"
	if tree.v2 {
		file, ofRequest, ofShares = "cpu.weight", "20", "79"
	}
	for _, c := range []struct {
		class        sim.Class
		idle, weight string // weight "": that of the idle class
	}{
		{sim.Class{Idle: true}, "1", ""},
		{sim.Class{}, "0", ofRequest},
		{sim.Class{Idle: true, Shares: 2048}, "1", ""},
		{sim.Class{Shares: 2048}, "0", ofShares},
	} {
		if err := g.setClass(c.class, 500); err != nil {
			t.Fatalf("%+v: %v", c.class, err)
		}
		if idle, weight := read("cpu.idle"), read(file); idle != c.idle || c.weight != "" && weight != c.weight {
			t.Errorf("%+v: cpu.idle %s, %s %s: want %s and %s", c.class, idle, file, weight, c.idle, c.weight)
		}
	}
}

//go:build linux

package weights

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// settingsOf are class and weight of every cgroup below top, but for those of other tests than that of own, which run
// beside this one and change theirs.
func settingsOf(t *testing.T, top, own string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err): // removed meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() && path != own && cgroups.IsReal(d.Name()):
			return filepath.SkipDir
		}
		switch d.Name() {
		case idleFile, weightFile, sharesFile:
			text, err := os.ReadFile(path)
			if err == nil {
				all[path] = string(text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRealCgroups: the kernel takes what is written, in both directions, and nothing outside of the pods changes.
func TestRealCgroups(t *testing.T) {
	c := cgroups.NewReal(t)
	for i, qos := range []cgroups.QoS{cgroups.Burstable, cgroups.Burstable, cgroups.Guaranteed} {
		c.AddPod(qos, uid(i), "container")
	}
	kubepods := filepath.Join(c.Tops[0], c.Kubepods())
	record, err := NewRecord(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := func() *Keeper {
		tree, err := OpenTree(kubepods)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tree.Close() })
		k, err := NewKeeper(tree, record, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := start()
	if !k.tree.idle {
		t.Skip("the kernel has no cpu.idle")
	}
	top := c.Tops[0]
	whole := filepath.Dir(top)
	before := settingsOf(t, whole, top)
	k.Apply(at(0), request(wire.Setting{UID: uid(0), Idle: true, Weight: 10}, wire.Setting{UID: uid(1), Weight: 50},
		wire.Setting{UID: uid(2), Idle: true, Weight: 10}))
	written := settingsOf(t, whole, top)
	for path, text := range written {
		pod := strings.HasPrefix(path, filepath.Join(top, c.Pod(cgroups.Burstable, uid(0)))+"/cpu.") ||
			strings.HasPrefix(path, filepath.Join(top, c.Pod(cgroups.Burstable, uid(1)))+"/cpu.")
		if was, known := before[path]; known && was != text && !pod {
			t.Errorf("%s changed from %q to %q", path, was, text)
		}
	}
	first := filepath.Join(top, c.Pod(cgroups.Burstable, uid(0)))
	if text := written[filepath.Join(first, idleFile)]; text != "1\n" {
		t.Fatalf("cpu.idle %q, want 1", text)
	}
	name, shares := weightFile, "50\n"
	if c.Version != kernel.V2 {
		name, shares = sharesFile, "1287\n" // 2 + 49 x 262142 / 9999
	}
	second := filepath.Join(top, c.Pod(cgroups.Burstable, uid(1)))
	if text := written[filepath.Join(second, name)]; text != shares {
		t.Errorf("%s %q, want %q", name, text, shares)
	}
	// Out of the class with another weight, which the kernel refuses while the cgroup is idle; and back.
	for i, s := range []wire.Setting{{UID: uid(0), Weight: 50}, {UID: uid(0), Idle: true, Weight: 50}} {
		if reply := k.Apply(at(float64(i+1)), request(s)); len(reply.Refused) > 0 {
			t.Errorf("refused %+v", reply.Refused)
		}
	}
	start() // a kill, and a restart
	after := settingsOf(t, top, top)
	for path, text := range before {
		if strings.HasPrefix(path, top) && after[path] != text {
			t.Errorf("%s is %q, want the original %q", path, after[path], text)
		}
	}
}

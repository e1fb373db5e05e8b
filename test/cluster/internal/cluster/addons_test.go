package cluster

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
)

func find(t *testing.T, name string) addon.Addon {
	t.Helper()
	a, err := addon.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAddonNeedsANode(t *testing.T) {
	c := Cluster{Config: config.Default(t.TempDir(), false), Out: io.Discard}
	// No programs are there: it must not come to building them.
	err := c.AddonUp(context.Background(), t.TempDir(), find(t, "metrics-server"), 0)
	if err == nil || !strings.Contains(err.Error(), "no node") {
		t.Errorf("add-on of a control plane alone: %v, want a refusal that says why", err)
	}
}

func TestAddonRecord(t *testing.T) {
	c := Cluster{Config: config.Default(t.TempDir(), true), Out: io.Discard}
	metrics, vpa := find(t, "metrics-server"), find(t, "vpa")
	if _, ok, err := c.addonOf(vpa); ok || err != nil {
		t.Errorf("before it is up: %v, %v", ok, err)
	}
	if err := c.checkUnneeded(metrics); err != nil {
		t.Errorf("nothing needs it: %v", err)
	}
	want := addonRecord{Interval: 10 * time.Second}
	if err := os.MkdirAll(vpa.Dir(c.Config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(addonFile(c.Config, vpa), want); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := c.addonOf(vpa); got != want || !ok || err != nil {
		t.Errorf("read back %+v, %v, %v", got, ok, err)
	}
	if err := c.checkUnneeded(metrics); err == nil || !strings.Contains(err.Error(), "addon down vpa") {
		t.Errorf("the VPA is up and needs metrics-server: %v, want what to do first", err)
	}
	if err := c.checkUnneeded(vpa); err != nil {
		t.Errorf("nothing needs the VPA: %v", err)
	}
	if err := os.WriteFile(addonFile(c.Config, vpa), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.addonOf(vpa); err == nil {
		t.Error("a broken record counts as none: up would lose the add-on")
	}
}

func TestPrepareAddon(t *testing.T) {
	c := Cluster{Config: config.Default(t.TempDir(), true), Out: io.Discard}
	issueAuthorities(t, c.Config)
	for _, a := range addon.All() {
		for range 2 { // a former one may have been interrupted
			if err := c.prepareAddon(a); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range a.Programs(c.Config, a.Interval, func(string) string { return "" }) {
			for _, arg := range p.Args {
				_, file, _ := strings.Cut(arg, "=")
				if !strings.HasPrefix(file, c.Config.State) {
					continue
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: %s: %v", p.Name, arg, err)
				}
			}
		}
	}
}

func issueAuthorities(t *testing.T, c config.Config) {
	t.Helper()
	if err := pki.Issue(c.PKI(""), nil); err != nil {
		t.Fatal(err)
	}
}

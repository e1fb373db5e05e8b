package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

func TestForeignFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := Cluster{Config: config.Default(dir, false), Out: io.Discard}
	if _, err := c.claim(context.Background()); err == nil || !strings.Contains(err.Error(), "--state") {
		t.Errorf("claim of a folder with others' files: %v, want a refusal that names --state", err)
	}
	if err := c.Down(context.Background()); err == nil {
		t.Error("down of a folder that is no cluster's: no error")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file in it: %v", err)
	}
}

func TestClaimThenRecorded(t *testing.T) {
	c := Cluster{Config: config.Default(filepath.Join(t.TempDir(), "state"), false), Out: io.Discard}
	release, err := c.claim(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	busy, stop := context.WithCancel(context.Background())
	stop()
	if _, err := lock(busy, c.Config.State); err == nil {
		t.Error("two commands have the lock of one state folder")
	}
	release()
	got, ok, err := Recorded(c.Config.State)
	if err != nil || !ok || got != c.Config {
		t.Errorf("Recorded = %+v, %v, %v, want what was claimed", got, ok, err)
	}
}

func TestSettingsOfAClusterDoNotChange(t *testing.T) {
	have := config.Default(filepath.Join(t.TempDir(), "state"), false)
	release, err := Cluster{Config: have, Out: io.Discard}.claim(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	release()
	want := have
	want.NodeName = "another"
	if got, err := Settings(want, false); err != nil || got != have {
		t.Errorf("defaults: %+v, %v, want the recorded settings", got, err)
	}
	if _, err := Settings(want, true); err == nil {
		t.Error("chosen settings that differ are ignored in silence")
	}
}

func TestRecordedOfAMovedFolder(t *testing.T) {
	old := config.Default(filepath.Join(t.TempDir(), "old"), false)
	release, err := Cluster{Config: old, Out: io.Discard}.claim(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	release()
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(old.State, moved); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Recorded(moved); err == nil {
		t.Error("certificates and settings hold the old path; a moved folder cannot work")
	}
}

func TestRecordedByAFormerVersion(t *testing.T) {
	c := config.Default(t.TempDir(), false)
	if err := os.WriteFile(c.Marker(), fmt.Appendf(nil, `{"state": %q, "apiPort": 6443}`, c.State), 0o644); err != nil {
		t.Fatal(err)
	}
	got, ok, err := Recorded(c.State)
	if err != nil || !ok || got.HPASync != config.KubernetesHPASync {
		t.Errorf("hpaSync %v, %v, %v; want Kubernetes' own, or no command works with that cluster", got.HPASync, ok, err)
	}
}

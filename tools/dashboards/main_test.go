package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestDashboardsAreWritten: the files in the repository are what this command writes, and there are no others.
func TestDashboardsAreWritten(t *testing.T) {
	const committed = "../../monitoring/dashboards"
	dir := t.TempDir()
	must.Succeed(t, write(dir))
	for _, d := range []string{dir, committed} {
		if files, err := filepath.Glob(filepath.Join(d, "*")); err != nil || len(files) != len(dashboards) {
			t.Errorf("%s has %d files (%v), want %d", d, len(files), err, len(dashboards))
		}
	}
	for _, d := range dashboards {
		want, err := os.ReadFile(filepath.Join(dir, d.uid+".json"))
		must.Succeed(t, err)
		have, err := os.ReadFile(filepath.Join(committed, d.uid+".json"))
		must.Succeed(t, err)
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s.json (-written +in the repository; make generate writes it):\n%s", d.uid, diff)
		}
	}
}

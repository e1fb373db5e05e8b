package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/program"
)

// TestExitCodes: 0 for success, 1 for a failure, 2 for bad usage, and an error begins on stderr
// with "error: ".
func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: t\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{
		"":                                   0,
		"--help":                             0,
		"--version":                          0,
		"scenarios":                          0,
		"policies":                           0,
		"sim duel --length 21s":              0,
		"sim " + bad:                         1,
		"sim":                                2,
		"sim nothing":                        2,
		"sim duel truth":                     2,
		"sim duel --policy king":             2,
		"sim duel --seed -1":                 2,
		"simulate":                           2,
		"sim duel --length 21s --out " + bad: 1,
	} {
		var stdout, stderr bytes.Buffer
		code := program.ExitCode(run(t.Context(), strings.Fields(args), &stdout, &stderr), "error", &stderr)
		if code != want {
			t.Errorf("%q: exit code %d, want %d; stderr %q", args, code, want, stderr.String())
		}
		if (code != 0) != strings.HasPrefix(stderr.String(), "error: ") {
			t.Errorf("%q: stderr %q", args, stderr.String())
		}
	}
}

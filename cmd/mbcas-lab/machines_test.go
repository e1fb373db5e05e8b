package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// machines are architectures other than amd64, and the emulator of each: one whose compiler fuses multiplication and addition,
// and one with the most significant byte first.
var machines = map[string]string{"arm64": "qemu-aarch64-static", "s390x": "qemu-s390x-static"}

// TestReplayOnOtherMachines: every scenario of the catalogue, recorded here, gives the recorded results on other architectures:
// the program is built for each, and emulated. MBCAS_RECORDING names a file to replay as well, such as that of a real node.
func TestReplayOnOtherMachines(t *testing.T) {
	if os.Getenv("MBCAS_LONG") == "" {
		t.Skip("optional: make test-all runs it (MBCAS_LONG=1)")
	}
	dir := t.TempDir()
	var files []string
	for _, s := range scenario.Catalogue() {
		cfg := mbcas.DefaultConfig()
		cfg.Round.Credits.MaxFactor, cfg.Round.Pacing.IncreaseInterval = 2, 40*time.Second
		var b bytes.Buffer
		if err := recordings.Played(t, s.Name, cfg, 130*time.Second).Write(&b); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, s.Name+".mbcas"))
		if err := os.WriteFile(files[len(files)-1], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if given := os.Getenv("MBCAS_RECORDING"); given != "" {
		files = append(files, given)
	}
	for arch, emulator := range machines {
		t.Run(arch, func(t *testing.T) {
			if _, err := exec.LookPath(emulator); err != nil {
				t.Skip("no " + emulator + " (Debian package qemu-user-static)")
			}
			program := filepath.Join(dir, "mbcas-lab-"+arch)
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			for _, file := range files {
				out, err := exec.CommandContext(t.Context(), emulator, program, "replay", file).CombinedOutput()
				if err != nil || !strings.Contains(string(out), " on amd64, ") || !strings.HasSuffix(string(out), "Every result is the one recorded.\n") {
					t.Errorf("%s: %v\n%s", filepath.Base(file), err, out)
				}
			}
		})
	}
}

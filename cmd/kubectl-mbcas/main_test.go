package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestExitCodes: 0 for success, 1 for a failure, 2 for bad usage, and an error is one line on stderr.
func TestExitCodes(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for args, want := range map[string]int{
		"":                   0,
		"--help":             0,
		"version --client":   0,
		"completion bash":    0,
		"list":               1, // no kubeconfig
		"doctor":             1,
		"lst":                2,
		"list --colour":      2,
		"completion nushell": 0, // cobra shows its help
		"list one":           2,
	} {
		var stdout, stderr bytes.Buffer
		code := exitCode(run(t.Context(), strings.Fields(args), &stdout, &stderr), &stderr)
		if code != want {
			t.Errorf("%q: exit code %d, want %d; stderr %q", args, code, want, stderr.String())
		}
		if code != 0 && (!strings.HasPrefix(stderr.String(), "error: ") || strings.Count(stderr.String(), "\n") != 1) {
			t.Errorf("%q: stderr %q, want one line", args, stderr.String())
		}
	}
}

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestKubeconfigErrors: a kubeconfig that cannot be used is named, with what to do.
func TestKubeconfigErrors(t *testing.T) {
	dir := t.TempDir()
	empty, missing := filepath.Join(dir, "empty"), filepath.Join(dir, "missing")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		empty:   "kubeconfig: " + empty + " names no cluster; name another with --kubeconfig",
		missing: "kubeconfig: stat " + missing + ": no such file or directory; name another with --kubeconfig or KUBECONFIG",
	} {
		var out bytes.Buffer
		cmd := Command(Streams{Out: &out, Err: &out}, "test")
		cmd.SetArgs([]string{"list", "--kubeconfig", file})
		if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

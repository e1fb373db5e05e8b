package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestKubeconfigErrors: a kubeconfig that cannot be used is named, with what to do.
func TestKubeconfigErrors(t *testing.T) {
	dir := t.TempDir()
	empty, missing := filepath.Join(dir, "empty"), filepath.Join(dir, "missing")
	must.Succeed(t, os.WriteFile(empty, nil, 0o600))
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

// TestNoAPIServer: where the API server does not answer, the error says what to check.
func TestNoAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"} // tcpmux: no process listens there
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	must.Succeed(t, clientcmd.WriteToFile(*config, file))
	var out bytes.Buffer
	cmd := Command(Streams{Out: &out, Err: &out}, "test")
	cmd.SetArgs([]string{"list", "--kubeconfig", file})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.HasSuffix(err.Error(), "names the right cluster") {
		t.Errorf("%v, want the address and what to check", err)
	}
}

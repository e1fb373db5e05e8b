package apiserver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Kubeconfig is a file with which a program is a user of those groups to the API server.
func (s *Server) Kubeconfig(t testing.TB, name string, groups ...string) string {
	t.Helper()
	text, err := s.User(t, name, groups...).KubeConfig()
	if err != nil {
		t.Fatalf("kubeconfig of user %s: %v", name, err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Controllers runs the named controllers of Kubernetes' own controller manager until the test ends,
// such as "resourcequota-controller". They are the real ones, with an administrator's rights.
func (s *Server) Controllers(t testing.TB, names ...string) {
	t.Helper()
	s.run(t, "kube-controller-manager", "--controllers="+strings.Join(names, ","))
}

// Scheduler runs the real kube-scheduler, as it ships, until the test ends. It places the pods of
// every test that are bound to no node.
func (s *Server) Scheduler(t testing.TB) {
	t.Helper()
	s.run(t, "kube-scheduler")
}

// run runs a program of the control plane with an administrator's rights.
func (s *Server) run(t testing.TB, name string, args ...string) {
	t.Helper()
	file := s.Kubeconfig(t, name, "system:masters")
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name)
	args = append(args, "--kubeconfig="+file, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")
	if exec.Command("setpriv", "--pdeathsig", "KILL", "true").Run() == nil { // as for the control plane: see dieWithParent
		program, args = "setpriv", append([]string{"--pdeathsig", "KILL", program}, args...)
	}
	cmd := exec.Command(program, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is always killed, or its end is the failure below
		close(ended)
	}()
	t.Cleanup(func() {
		select {
		case <-ended:
			t.Errorf("%s ended by itself:\n%s", name, log.String())
		default:
		}
		_ = cmd.Process.Kill() // it may have ended by now
		<-ended
	})
}

package apiserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// holdKey in the environment makes this test program start a server and wait to be killed.
const holdKey = "MBCAS_APISERVER_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdKey) != "" {
		hold()
	}
	os.Exit(Main(m))
}

func hold() {
	s, err := start(os.Getenv("KUBEBUILDER_ASSETS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Config.Host, s.env.ControlPlane.Etcd.URL.Host)
	io.Copy(io.Discard, os.Stdin)
	os.Exit(s.stop(0))
}

// TestNothingIsLeft: a killed test program takes its control plane with it.
func TestNothingIsLeft(t *testing.T) {
	Start(t) // or skip
	if exec.Command("setpriv", "--pdeathsig", "KILL", "true").Run() != nil {
		t.Skip("no setpriv that can set a death signal")
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), holdKey+"=1", "TMPDIR="+t.TempDir())
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	must.Succeed(t, err)
	defer stdin.Close()
	stdout, err := c.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, c.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("it did not start: %v", err)
	}
	addresses := strings.Fields(line)
	for _, a := range addresses {
		if !listens(t, a) {
			t.Errorf("nothing listens on %s, so nothing is tested", a)
		}
	}
	must.Succeed(t, c.Process.Kill())
	c.Wait()
	for _, a := range addresses {
		Eventually(t, a+" is closed", func() (bool, any) { return !listens(t, a), nil })
	}
}

func listens(t *testing.T, address string) bool {
	t.Helper()
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// TestWithoutServer: a test that needs the server is skipped with a reason where there is none, and
// fails in CI.
func TestWithoutServer(t *testing.T) {
	for ci, want := range map[string]string{"": "--- SKIP: TestNothingIsLeft", "true": "--- FAIL: TestNothingIsLeft"} {
		c := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeft$", "-test.v")
		c.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=", "CI="+ci)
		out, err := c.CombinedOutput()
		if (err != nil) != (ci == "true") || !strings.Contains(string(out), want) || !strings.Contains(string(out), "set KUBEBUILDER_ASSETS") {
			t.Errorf("with CI=%q: error %v, output:\n%s\nwant %q with a hint", ci, err, out, want)
		}
	}
}

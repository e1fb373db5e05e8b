package integration

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
)

const nobody = 65534

// Without root there is no node; the control plane works all the same, also beside
// another cluster.
func TestClusterOfAPlainUser(t *testing.T) {
	u := newUser(t)
	if os.Geteuid() == 0 {
		u.dropRoot()
	}
	if others, err := cluster.Others(u.state); err != nil {
		t.Fatal(err)
	} else if len(others) > 0 && others[0].PortOffset == 0 {
		if out, err := u.try("up"); err == nil || !strings.Contains(out, others[0].State) {
			t.Errorf("up beside a cluster with the same ports: %v, want an error that names the other\n%s", err, out)
		}
	}
	out := u.run("up", "--port-offset=3000", "--api-port=16443")
	if first, _, _ := strings.Cut(out, "\n"); !strings.HasPrefix(first, "no node: not root") {
		t.Errorf("up begins with %q, want the reason why there is no node", first)
	}
	if out := u.run("status"); !strings.Contains(out, "control plane alone") {
		t.Errorf("status does not say that there is no node:\n%s", out)
	}
	if out, err := u.kubectl("", "create", "namespace", "works"); err != nil {
		t.Errorf("create an object: %v\n%s", err, out)
	}
	if out, err := u.try("load", "x.tar"); err == nil || !strings.Contains(out, "no node") {
		t.Errorf("load without a node: %v\n%s", err, out)
	}

	u.crash()
	u.run("up")
	if out, err := u.kubectl("", "get", "namespace", "works"); err != nil {
		t.Errorf("what was created is gone after a crash: %v\n%s", err, out)
	}
	if out, err := u.try("up", "--require-node"); err == nil || !strings.Contains(out, "down, then up") {
		t.Errorf("up --require-node of a control plane alone: %v\n%s", err, out)
	}
	u.run("down")
	if _, err := os.Stat(u.state); !os.IsNotExist(err) {
		t.Errorf("the state folder after down: %v", err)
	}
}

// dropRoot runs u as the user "nobody", with a home and a copy of root's cache of programs:
// building them anew would take minutes.
func (u *user) dropRoot() {
	u.t.Helper()
	from := u.one("assets")
	home := filepath.Dir(u.state)
	to := filepath.Join(home, ".cache", "mbcas", "cluster", filepath.Base(from))
	if err := os.MkdirAll(to, 0o755); err != nil {
		u.t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, e := range entries {
		if err := copyEntry(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			u.t.Fatal(err)
		}
	}
	if err := os.Mkdir(u.state, 0o755); err != nil {
		u.t.Fatal(err)
	}
	for _, dir := range []string{home, u.state} {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			u.t.Fatal(err)
		}
	}
	u.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	// The go command's files are root's; for its version alone it needs none of them.
	u.env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, ".cache"), "GOENV=off", "GOTELEMETRY=off")
}

func copyEntry(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode().Type() == os.ModeSymlink {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	if !info.Mode().IsRegular() {
		return nil // the folder of node images: not needed here
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

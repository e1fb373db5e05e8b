// Package integration runs mbcas-cluster as its users do. One machine carries the nodes
// of one cluster, so its tests need a machine on which no other cluster is up.
//
//	go test ./integration            as root, with containerd, runc and CNI plugins
//	CI=true go test ./integration    what cannot run here is a failure
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/cluster"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// skipOrFail skips the test for a reason that the reader can do something about.
// Under CI there is no such reason.
func skipOrFail(t *testing.T, why ...string) {
	t.Helper()
	if text := strings.Join(why, "; "); os.Getenv("CI") == "true" {
		t.Fatalf("cannot run here, and CI=true: %s", text)
	} else {
		t.Skipf("SKIPPED: %s", text)
	}
}

// needNode skips the test where no node can run.
func needNode(t *testing.T) {
	t.Helper()
	if err := cluster.Obstacle(config.Default(t.TempDir())); err != nil {
		skipOrFail(t, err.Error())
	}
}

// user runs the program as a user does, with a cluster of its own.
type user struct {
	t     *testing.T
	bin   string // the program under test
	state string
}

func newUser(t *testing.T) user {
	t.Helper()
	// Not t.TempDir: what a failed down has left mounted must not be removed through.
	base, err := os.MkdirTemp("", "mbcas-")
	must.Succeed(t, err)
	u := user{t: t, bin: filepath.Join(base, "mbcas-cluster"), state: filepath.Join(base, "state")}
	u.goBuild(u.bin, "../cmd/mbcas-cluster")
	t.Cleanup(func() {
		if out, err := u.try("down"); err != nil {
			t.Errorf("down at the end: %v\n%s", err, out)
			return
		}
		os.RemoveAll(base)
	})
	return u
}

func (u user) goBuild(out, pkg string) {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), "go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("go build %s: %v\n%s", pkg, err, text)
	}
}

func (u user) command(program string, args ...string) *exec.Cmd {
	source, err := filepath.Abs("../programs")
	must.Succeed(u.t, err)
	if program == u.bin {
		args = append(args, "--state="+u.state, "--source="+source)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	return cmd
}

// try runs the program under test.
func (u user) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := u.command(u.bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (u user) run(args ...string) string {
	u.t.Helper()
	out, err := u.try(args...)
	if err != nil {
		u.t.Fatalf("mbcas-cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	u.t.Logf("mbcas-cluster %s\n%s", strings.Join(args, " "), out)
	return out
}

// one runs the program under test and returns the one line of its standard output.
func (u user) one(args ...string) string {
	u.t.Helper()
	out, err := u.command(u.bin, args...).Output()
	if err != nil {
		u.t.Fatalf("mbcas-cluster %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func (u user) kubectl(stdin string, args ...string) (string, error) {
	cmd := u.command(filepath.Join(u.one("assets"), "kubectl"), append(args, "--kubeconfig="+u.one("kubeconfig"))...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// crash kills every component at once, as a power cut does.
func (u user) crash() {
	u.t.Helper()
	all, err := proc.Components(u.state)
	if err != nil || len(all) == 0 {
		u.t.Fatalf("components: %v, %v", all, err)
	}
	for _, p := range all {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			u.t.Fatalf("%s (pid %d): %v", p.Name, p.PID, err)
		}
	}
	u.until("components have ended", func() error {
		if i := slices.IndexFunc(all, proc.Process.Alive); i >= 0 {
			return fmt.Errorf("%s (pid %d) is alive", all[i].Name, all[i].PID)
		}
		return nil
	})
}

// patience is long because it costs nothing where all is well: a virtual node gets
// little of a busy machine.
const patience = 5 * time.Minute

// until polls: the other side are real processes.
func (u user) until(what string, done func() error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			u.t.Fatalf("%s: not within %s: %v", what, patience, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// pod is what the tests want to know of one.
type pod struct {
	Metadata struct{ UID string }
	Status   struct {
		Phase             string
		ContainerStatuses []struct {
			ContainerID  string
			RestartCount int
		}
	}
}

func (u user) pod(name string) (p pod, err error) {
	out, err := u.kubectl("", "get", "pod", name, "--output=json")
	if err != nil {
		return p, fmt.Errorf("%w: %s", err, out)
	}
	return p, json.Unmarshal([]byte(out), &p)
}

func (u user) untilPhase(name, want string) pod {
	u.t.Helper()
	var p pod
	u.until("pod "+name+" is "+want, func() (err error) {
		if p, err = u.pod(name); err == nil && p.Status.Phase != want {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
	return p
}

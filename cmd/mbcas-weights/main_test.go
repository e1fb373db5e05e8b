//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// asProgram is the variable with which the test binary is the program.
const asProgram = "MBCAS_WEIGHTS_TEST_AS_PROGRAM"

// otherUsersSocket is the variable with which it is the client of TestOtherUsers.
const otherUsersSocket = "MBCAS_WEIGHTS_TEST_SOCKET"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if path := os.Getenv(otherUsersSocket); path != "" {
		if err := otherUsersClient(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"--peer-uid=-1"}, {"--peer-uid=4294967296"}, {"--kubepods"}, {"start"}, {"--log-level=loud"}} {
		var usage program.UsageError
		if _, err := parse(args, new(bytes.Buffer)); !errors.As(err, &usage) {
			t.Errorf("%v: error %v, want a usage error", args, err)
		}
	}
	s, err := parse([]string{"--peer-uid=1000"}, new(bytes.Buffer))
	if err != nil || s.peer != 1000 || s.kubepods != "/host/kubepods" || s.restore {
		t.Errorf("%+v, %v", s, err)
	}
}

const uid = "01234567-89ab-cdef-0123-456789abcdef"

// node is a node of real cgroups with one pod.
type node struct {
	t                     *testing.T
	kubepods, pod, record string
	socket                string
}

func newNode(t *testing.T) *node {
	t.Helper()
	c := cgroups.NewReal(t)
	c.AddPod(cgroups.Burstable, uid, "container")
	dir, err := os.MkdirTemp("", "w") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the agent's user reads it
		t.Fatal(err)
	}
	n := &node{
		t: t, kubepods: filepath.Join(c.Tops[0], c.Kubepods()), pod: filepath.Join(c.Tops[0], c.Pod(cgroups.Burstable, uid)),
		record: t.TempDir(), socket: filepath.Join(dir, "s"),
	}
	if n.idle() == "" {
		t.Skip("the kernel has no cpu.idle")
	}
	return n
}

func (n *node) idle() string {
	text, err := os.ReadFile(filepath.Join(n.pod, "cpu.idle"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// start runs the program. Its own user counts as the agent's.
func (n *node) start(more ...string) *exec.Cmd {
	n.t.Helper()
	args := append([]string{
		"--kubepods=" + n.kubepods, "--record=" + n.record, "--socket=" + n.socket, "--peer-uid=" + strconv.Itoa(os.Getuid()),
	}, more...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = n.t.Output()
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// ask says that the pod shall be idle, once the program answers.
func (n *node) ask() {
	n.t.Helper()
	cgroups.Eventually(n.t, "an answer", func() bool {
		c, err := net.Dial("unix", n.socket)
		if err != nil {
			return false
		}
		defer c.Close()
		var reply wire.Reply
		err = wire.Write(c, wire.Request{Settings: []wire.Setting{{UID: uid, Idle: true, Weight: 1}}})
		return err == nil && wire.Read(wire.NewReader(c), &reply) == nil && reply.Idle == 1
	})
	if idle := n.idle(); idle != "1" {
		n.t.Fatalf("cpu.idle is %q after an answer, want 1", idle)
	}
}

// TestStop: SIGTERM restores, and ends the program without an error.
func TestStop(t *testing.T) {
	n := newNode(t)
	p := n.start()
	n.ask()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the program ends with %v", err)
	}
	if idle := n.idle(); idle != "0" {
		t.Errorf("cpu.idle is %q after SIGTERM, want 0", idle)
	}
}

// TestKill: a kill leaves the values, and the next start or --restore brings the original ones back.
func TestKill(t *testing.T) {
	for name, restore := range map[string]func(*node){
		"start": func(n *node) {
			n.start()
			cgroups.Eventually(n.t, "restored", func() bool { return n.idle() == "0" })
		},
		"restore": func(n *node) {
			if err := n.start("--restore").Wait(); err != nil {
				n.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := n.start()
			n.ask()
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = p.Wait() // it was killed
			if idle := n.idle(); idle != "1" {
				t.Fatalf("cpu.idle is %q after a kill, want 1: nothing could restore it", idle)
			}
			restore(n)
			if idle := n.idle(); idle != "0" {
				t.Errorf("cpu.idle is %q, want 0", idle)
			}
		})
	}
}

// TestSecondProgram: of two programs with one record the second ends, so that they never write against each other.
func TestSecondProgram(t *testing.T) {
	n := newNode(t)
	n.start()
	n.ask()
	second := n.start("--socket=" + n.socket + "2")
	done := make(chan error, 1)
	go func() { done <- second.Wait() }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the second program ends without an error")
		}
	case <-time.After(20 * time.Second):
		t.Error("the second program runs on")
	}
	if idle := n.idle(); idle != "1" {
		t.Errorf("cpu.idle is %q, want 1: the second program has restored the pods of the first", idle)
	}
}

// TestOtherUsers: a process of another user than the agent's gets no answer.
func TestOtherUsers(t *testing.T) {
	n := newNode(t)
	n.start()
	n.ask()
	program := filepath.Join(filepath.Dir(n.socket), "client") // in a directory that the other user may read
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command(program)
	client.Env = append(os.Environ(), otherUsersSocket+"="+n.socket)
	client.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	client.Dir = "/"
	out, err := client.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "refused") {
		t.Errorf("%v: %s; want that the connection is refused", err, out)
	}
}

// otherUsersClient is the program that TestOtherUsers starts.
func otherUsersClient(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	_ = wire.Write(c, wire.Request{}) // it may be refused already
	err = wire.Read(wire.NewReader(c), new(wire.Reply))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("answered: %w", err)
	}
	fmt.Println("refused")
	return nil
}

package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

const lingers = "MBCAS_TEST_LINGERS"

// With lingers set, the test is a program that a request to end takes its first thread, and with that its
// environment, half a second before the rest of it ends.
func init() {
	if os.Getenv(lingers) == "" {
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	first := make(chan struct{})
	go func() {
		_ = os.WriteFile("ready", nil, 0o644)
		<-asked
		close(first)
		time.Sleep(500 * time.Millisecond)
		_ = os.WriteFile("ended", nil, 0o644)
		os.Exit(0)
	}()
	<-first
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // init runs in the first thread
}

func TestStopWaitsForTheWholeProcess(t *testing.T) {
	self, err := os.Executable()
	must.Succeed(t, err)
	p := start(t, Program{Name: "lingering", Path: self, Env: []string{lingers + "=1"}})
	until(t, func() bool { _, err := os.Stat(filepath.Join(p.State, "ready")); return err == nil })
	must.Succeed(t, p.Stop(t.Context(), 10*time.Second))
	if _, err := os.Stat(filepath.Join(p.State, "ended")); err != nil {
		t.Errorf("it still runs, with files and ports open, after Stop: %v", err)
	}
}

func TestOthers(t *testing.T) {
	p := start(t, sleeper)
	for state, want := range map[string]bool{p.State: false, "/elsewhere": true} {
		others, err := Others(state)
		if err != nil || slices.Contains(others, p) != want {
			t.Errorf("the others of %s: %v, %v; want %v among them: %v", state, others, err, p, want)
		}
	}
}

// start starts a process of the cluster in a folder of the test's, and stops it at the end.
func start(t *testing.T, p Program) Process {
	t.Helper()
	state := t.TempDir()
	got, err := Start(t.Context(), p, state, filepath.Join(state, "log"))
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := got.Stop(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	return got
}

var sleeper = Program{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}}

func TestStartFindStop(t *testing.T) {
	p := start(t, sleeper)
	if found, ok := Find(p.State, "sleeper"); !ok || found != p {
		t.Errorf("Find = %v, %v, want %v", found, ok, p)
	}
	for state, name := range map[string]string{p.State: "other", p.State + "-2": "sleeper"} {
		if found, ok := Find(state, name); ok {
			t.Errorf("%s of %s is %v", name, state, found)
		}
	}
	must.Succeed(t, p.Stop(context.Background(), 5*time.Second))
	if _, ok := Find(p.State, "sleeper"); ok || p.Alive() {
		t.Error("it is alive after Stop")
	}
}

// What a component starts carries its mark, and is not taken for it.
func TestFindOfAComponentWithChildren(t *testing.T) {
	p := start(t, Program{Name: "parent", Path: "/bin/sh", Args: []string{"-c", "sleep 60 & wait"}})
	var all []Process
	until(t, func() bool {
		var err error
		if all, err = All(p.State); err != nil {
			t.Fatal(err)
		}
		return len(all) == 2
	})
	if found, ok := Find(p.State, "parent"); !ok || found != p {
		t.Errorf("Find = %v, %v, want %v", found, ok, p)
	}
	for _, stray := range all {
		if err := stray.Stop(context.Background(), 5*time.Second); err != nil {
			t.Error(err)
		}
	}
}

func TestStopLeavesOthers(t *testing.T) {
	other := exec.Command("sleep", "60")
	must.Succeed(t, other.Start())
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	marked := start(t, sleeper)
	for name, former := range map[string]Process{
		"a process of no cluster":      {PID: other.Process.Pid, State: marked.State, Name: "sleeper"},
		"another component":            {PID: marked.PID, State: marked.State, Name: "etcd"},
		"a process of another cluster": {PID: marked.PID, State: "/elsewhere", Name: "sleeper"},
	} {
		if former.Alive() {
			t.Errorf("%s, with the same id, is taken for one that had it before", name)
		}
		must.Succeed(t, former.Stop(context.Background(), time.Second))
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil || !marked.Alive() {
		t.Errorf("a process was stopped in place of one that had its id before: %v", err)
	}
}

// TestPriority: a program starts with its priority. Every user may set one lower than its own.
func TestPriority(t *testing.T) {
	nice := sleeper
	nice.Nice = 15
	p := start(t, nice)
	const zero = 20 // the system call returns 20 less the priority
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, p.PID); err != nil || zero-got != 15 {
		t.Errorf("priority %d, %v, want 15", zero-got, err)
	}
	session, err := os.ReadFile(autogroup(p.PID))
	if err == nil && !strings.HasSuffix(strings.TrimSpace(string(session)), " nice 15") {
		t.Errorf("priority of the session: %q, want 15", session)
	}
}

func TestStopKillsWhatIgnoresTheRequest(t *testing.T) {
	p := start(t, Program{
		Name: "stubborn", Path: "/bin/sh",
		Args: []string{"-c", "trap '' TERM; touch ready; while :; do sleep 0.1; done"},
	})
	until(t, func() bool { _, err := os.Stat(filepath.Join(p.State, "ready")); return err == nil })
	must.Succeed(t, p.Stop(context.Background(), 100*time.Millisecond))
	if p.Alive() {
		t.Error("it is alive after Stop")
	}
}

// until polls: the other side is a real process, there is no clock to fake.
func until(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("not within 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The kernel shows the environment of a process a moment after its start.
func TestStartedIsAlive(t *testing.T) {
	for range 50 {
		if p := start(t, sleeper); !p.Alive() {
			t.Fatal("a process that was started is not recognised")
		}
	}
}

func TestStartClosesInheritedFiles(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	fd, err := unix.Open(lock, unix.O_CREAT|unix.O_RDWR, 0o600) // as flock(1) leaves it to us: not close-on-exec
	must.Succeed(t, err)
	defer unix.Close(fd)
	p := start(t, sleeper)
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
	if err != nil || len(open) == 0 {
		t.Fatalf("open files of pid %d: %v, %v", p.PID, open, err)
	}
	for _, f := range open {
		if to, _ := os.Readlink(f); to == lock {
			t.Errorf("the process has the caller's lock open, and holds it as long as it lives")
		}
	}
}

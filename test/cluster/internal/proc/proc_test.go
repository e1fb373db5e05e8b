package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const rest = " 0 0 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 987654 1000 1 0\n"
	tests := map[string]struct {
		stat   string
		tick   uint64
		dead   bool
		fails  bool
		reason string
	}{
		"plain":       {stat: "7 (etcd) S 1" + rest, tick: 987654},
		"odd name":    {stat: "7 (a b) R (c)) S 1" + rest, tick: 987654, reason: "a command may hold blanks and parentheses"},
		"zombie":      {stat: "7 (etcd) Z 1" + rest, tick: 987654, dead: true, reason: "a zombie serves nothing"},
		"cut short":   {stat: "7 (etcd) S 1 2 3", fails: true},
		"no command":  {stat: "7 etcd S", fails: true},
		"not numbers": {stat: "7 (etcd) S 1 0 0 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 soon 1000 1 0", fails: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tick, dead, err := parseStat([]byte(tt.stat))
			if (err != nil) != tt.fails {
				t.Fatalf("parseStat: err %v, want failure %v; %s", err, tt.fails, tt.reason)
			}
			if err == nil && (tick != tt.tick || dead != tt.dead) {
				t.Errorf("parseStat = %d, %v, want %d, %v; %s", tick, dead, tt.tick, tt.dead, tt.reason)
			}
		})
	}
}

func TestRecycledIDIsAnotherProcess(t *testing.T) {
	self, err := Observe(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Fatal("this process is not recognised")
	}
	later := self
	later.Tick++
	if later.Alive() {
		t.Error("a process with the same id that started later is taken for the recorded one")
	}
	rebooted := self
	rebooted.Boot = "00000000-0000-0000-0000-000000000000"
	if rebooted.Alive() {
		t.Error("a process of another boot is taken for the recorded one")
	}
}

func TestStopLeavesAStranger(t *testing.T) {
	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stranger.Process.Kill(), stranger.Wait() })
	seen, err := Observe(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	record := seen
	record.Tick-- // the record of a process that had this id before
	if err := record.Stop(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	if !seen.Alive() {
		t.Error("a process was stopped by the record of another one")
	}
}

// TestPriority: a program starts with its priority. Every user may set one lower than its own.
func TestPriority(t *testing.T) {
	dir := t.TempDir()
	rec, err := Records{Dir: dir, State: dir}.Start(Program{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}, Nice: 15}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rec.Stop(context.Background(), 5*time.Second); err != nil {
			t.Error(err)
		}
	})
	const zero = 20 // the system call returns 20 less the priority
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, rec.PID); err != nil || zero-got != 15 {
		t.Errorf("priority %d, %v, want 15", zero-got, err)
	}
	if session, err := os.ReadFile(autogroup(rec.PID)); err == nil && !strings.HasSuffix(strings.TrimSpace(string(session)), " nice 15") {
		t.Errorf("priority of the session: %q, want 15", session)
	}
}

func TestStartRecordStop(t *testing.T) {
	dir := t.TempDir()
	records := Records{Dir: dir, State: dir}
	rec, err := records.Start(Program{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, ok := records.Load("sleeper")
	if !ok {
		t.Fatal("no record was written")
	}
	if d := cmp.Diff(rec, loaded); d != "" {
		t.Errorf("record differs after loading (-want +got):\n%s", d)
	}
	if err := os.Remove(filepath.Join(dir, "sleeper.json")); err != nil {
		t.Fatal(err)
	}
	lost := strays(t, records)
	if len(lost) != 1 || lost[0].PID != rec.PID {
		t.Fatalf("strays = %v, want the process whose record was lost, %d", lost, rec.PID)
	}
	if states, err := States(); err != nil || !slices.Contains(states, dir) {
		t.Errorf("States = %v, %v, want %s among them", states, err, dir)
	}
	if others := (Records{Dir: dir, State: dir + "-2"}); len(strays(t, others)) != 0 {
		t.Error("another cluster's process counts as a stray")
	}
	if err := lost[0].Stop(context.Background(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if rec.Alive() {
		t.Error("it is alive after Stop")
	}
}

func strays(t *testing.T, r Records) []Record {
	t.Helper()
	found, err := r.Strays()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestStopKillsWhoIgnoresTheRequest(t *testing.T) {
	dir := t.TempDir()
	records := Records{Dir: dir, State: dir}
	rec, err := records.Start(Program{
		Name: "stubborn", Path: "/bin/sh",
		Args: []string{"-c", "trap '' TERM; touch ready; while :; do sleep 0.1; done"},
	}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
	if err := rec.Stop(context.Background(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if rec.Alive() {
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

func TestLoadOfABrokenRecord(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "cut": `{"pid": 1`, "init": `{"pid": 1}`, "group": `{"pid": -5}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if rec, ok := (Records{Dir: dir}).Load("x"); ok {
				t.Errorf("Load = %v, want none: signalling it could hit others", rec)
			}
		})
	}
}

func TestStartClosesInheritedFiles(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	fd, err := unix.Open(lock, unix.O_CREAT|unix.O_RDWR, 0o600) // as flock(1) leaves it to us: not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	records := Records{Dir: dir, State: dir}
	rec, err := records.Start(Program{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rec.Stop(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", rec.PID))
	if err != nil || len(open) == 0 {
		t.Fatalf("open files of pid %d: %v, %v", rec.PID, open, err)
	}
	for _, f := range open {
		if to, _ := os.Readlink(f); to == lock {
			t.Errorf("the process has the caller's lock open, and holds it as long as it lives")
		}
	}
}

func TestStartOfAMissingProgram(t *testing.T) {
	dir := t.TempDir()
	_, err := Records{Dir: dir, State: dir}.Start(Program{Name: "none", Path: "/no/such/program"}, filepath.Join(dir, "log"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want not exist", err)
	}
}

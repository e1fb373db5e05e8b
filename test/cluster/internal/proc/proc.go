// Package proc starts, recognises and stops long-running processes.
//
// Promises:
//   - A process is known by its id, its start time and the boot it belongs to, so a
//     recycled id is never taken for it: TestRecycledIDIsAnotherProcess.
//   - A process inherits none of the caller's open files: TestStartClosesInheritedFiles.
//   - Only a process that matches its record is signalled: TestStopLeavesAStranger.
package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program is one long-running process of a cluster, as it should be.
type Program struct {
	Name string
	Path string
	Args []string
	// Nice is its priority, as of setpriority(2): -20 comes first. Where we may not set it, it stays as it is.
	Nice int

	// Ready is nil once the program does its work. It is called again until then.
	Ready func(context.Context) error
}

// Record identifies one started process across restarts of this program.
type Record struct {
	Name string   `json:"name"`
	PID  int      `json:"pid"`
	Boot string   `json:"boot"`  // the kernel's boot id
	Tick uint64   `json:"start"` // start time in clock ticks after boot, from /proc/PID/stat
	Args []string `json:"args"`
}

// Records is a folder with one record per process.
type Records struct {
	Dir   string
	State string // the state folder, as the value of the mark
}

// Start starts p in a session of its own, with its output appended to the file
// log, and records it. The process outlives the caller.
func (r Records) Start(p Program, log string) (Record, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), mark+"="+r.State)
	cmd.Dir = r.State
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// What our caller has open is not for a process that outlives us: it would keep
	// a lock held, or a pipe from ending.
	if err := closeOnExec(); err != nil {
		return Record{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return Record{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	if p.Nice != 0 { // its threads are yet to come, and inherit it
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, p.Nice)
		// The kernel may compare processes within their session only (sched(7), autogroup); the session has a priority of its own.
		_ = os.WriteFile(autogroup(cmd.Process.Pid), []byte(strconv.Itoa(p.Nice)), 0)
	}
	go func() { _ = cmd.Wait() }() // reaps it if it ends before us; its end is seen through Alive
	rec, err := observe(cmd.Process.Pid)
	if err != nil {
		return Record{}, fmt.Errorf("%s: ended at once; see %s", p.Name, log)
	}
	rec.Name, rec.Args = p.Name, append([]string{p.Path}, p.Args...)
	return rec, r.save(rec)
}

func autogroup(pid int) string { return fmt.Sprintf("/proc/%d/autogroup", pid) }

// closeOnExec marks every open file but the standard three. close_range(2) could,
// but not in the kernels of all distributions.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func (r Records) save(rec Record) error {
	raw, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.Name, err)
	}
	path := filepath.Join(r.Dir, rec.Name+".json")
	if err := os.WriteFile(path+".tmp", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// Load returns the record of the named process, and whether there is one. A
// record that cannot be read counts as none: the mark still finds the process.
func (r Records) Load(name string) (Record, bool) {
	raw, err := os.ReadFile(filepath.Join(r.Dir, name+".json"))
	if err != nil {
		return Record{}, false
	}
	var rec Record
	if err := json.Unmarshal(raw, &rec); err != nil || rec.PID <= 1 {
		return Record{}, false
	}
	return rec, true
}

// All are the records that can be read.
func (r Records) All() []Record {
	files, _ := filepath.Glob(filepath.Join(r.Dir, "*.json"))
	var all []Record
	for _, f := range files {
		if rec, ok := r.Load(strings.TrimSuffix(filepath.Base(f), ".json")); ok {
			all = append(all, rec)
		}
	}
	return all
}

// Delete removes the record of a process that has ended.
func (r Records) Delete(name string) error {
	err := os.Remove(filepath.Join(r.Dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Alive says whether the recorded process still runs.
func (rec Record) Alive() bool {
	seen, err := observe(rec.PID)
	return err == nil && seen.Tick == rec.Tick && seen.Boot == rec.Boot
}

// Stop signals the recorded process to end, waits up to grace, then kills it. It
// does nothing when the process is gone or its id belongs to another one.
func (rec Record) Stop(ctx context.Context, grace time.Duration) error {
	if err := rec.signal(unix.SIGTERM); err != nil {
		return err
	}
	if rec.gone(ctx, grace) {
		return nil
	}
	if err := rec.signal(unix.SIGKILL); err != nil {
		return err
	}
	if rec.gone(ctx, 10*time.Second) {
		return nil
	}
	return fmt.Errorf("%s (pid %d): still there 10 s after SIGKILL", rec.Name, rec.PID)
}

// signal holds the process by a descriptor while it compares identities, so the
// id cannot be reused between the comparison and the signal.
func (rec Record) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(rec.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s (pid %d): pidfd_open: %w", rec.Name, rec.PID, err)
	}
	defer unix.Close(fd)
	if !rec.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%s (pid %d): signal: %w", rec.Name, rec.PID, err)
	}
	return nil
}

func (rec Record) gone(ctx context.Context, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for rec.Alive() {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// Observe is the identity of the process that has the id pid at this moment.
func Observe(pid int) (Record, error) { return observe(pid) }

func observe(pid int) (Record, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Record{}, err
	}
	tick, dead, err := parseStat(raw)
	if err != nil {
		return Record{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	if dead {
		return Record{}, fmt.Errorf("pid %d: %w", pid, fs.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Record{}, err
	}
	return Record{PID: pid, Tick: tick, Boot: strings.TrimSpace(string(boot))}, nil
}

// parseStat reads the start time (field 22) and whether the process is a zombie
// or dead (field 3). The command in field 2 may hold blanks and parentheses, so
// fields are counted from the last closing one.
func parseStat(raw []byte) (tick uint64, dead bool, err error) {
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return 0, false, errors.New("no command field")
	}
	f := strings.Fields(string(raw[i+1:])) // f[0] is field 3
	if len(f) < 20 {
		return 0, false, fmt.Errorf("%d fields after the command, want 20 or more", len(f))
	}
	tick, err = strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("field 22: %w", err)
	}
	return tick, f[0] == "Z" || f[0] == "X", nil
}

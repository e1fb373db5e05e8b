// Package proc starts, recognises and stops the long-running processes of a cluster.
//
// A process is known by its environment, which it hands on to container shims. So there is no record that
// could be lost, or outlive its process.
//
// Promises:
//   - Only a process that carries the cluster's mark is signalled, whatever has its id meanwhile:
//     TestStopLeavesOthers.
//   - A process inherits none of the caller's open files: TestStartClosesInheritedFiles.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables that every process of a cluster carries.
const (
	stateMark = "MBCAS_CLUSTER_MEMBER_OF" // the state folder
	nameMark  = "MBCAS_CLUSTER_COMPONENT"
)

// Program is one long-running process of a cluster, as it should be.
type Program struct {
	Name string
	Path string
	Args []string
	Env  []string // as NAME=value, besides the caller's
	// Nice is its priority, as of setpriority(2): -20 comes first. Where we may not set it, it stays as it is.
	Nice int

	// Ready is nil once the program does its work. It is called again until then.
	Ready func(context.Context) error
}

// Process is a process with a cluster's mark: a component, or one that a component started.
type Process struct {
	PID   int
	State string
	Name  string // of the component
}

// Start starts p in a session of its own, with its output appended to the file log. The process
// outlives the caller.
func Start(ctx context.Context, p Program, state, log string) (Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = slices.Concat(os.Environ(), p.Env, []string{stateMark + "=" + state, nameMark + "=" + p.Name})
	cmd.Dir = state
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// What our caller has open is not for a process that outlives us: it would keep
	// a lock held, or a pipe from ending.
	if err := closeOnExec(); err != nil {
		return Process{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	pid := cmd.Process.Pid
	if p.Nice != 0 { // its threads are yet to come, and inherit it
		_ = unix.Setpriority(unix.PRIO_PROCESS, pid, p.Nice)
		// The kernel may compare processes within their session only (sched(7), autogroup); the session
		// has a priority of its own.
		_ = os.WriteFile(autogroup(pid), []byte(strconv.Itoa(p.Nice)), 0)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // reaps it if it ends before us; its end is seen through Alive
		close(ended)
	}()
	started := Process{PID: pid, State: state, Name: p.Name}
	for !started.Alive() { // the kernel shows its environment only when it has loaded the program
		select {
		case <-ended:
			return started, fmt.Errorf("%s: ended at once; see %s", p.Name, log)
		case <-ctx.Done():
			return started, fmt.Errorf("%s: %w", p.Name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return started, nil
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

// identify reads the marks of the process that has the id pid at this moment. One that has ended, and
// waits to be reaped, has none.
func identify(pid int) Process {
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // gone, or another user's
	p := Process{PID: pid}
	for v := range strings.SplitSeq(string(env), "\x00") {
		switch name, value, _ := strings.Cut(v, "="); name {
		case stateMark:
			p.State = value
		case nameMark:
			p.Name = value
		}
	}
	return p
}

// All are the processes with the mark of the cluster in the folder state: components, container shims,
// and what else these started.
func All(state string) ([]Process, error) {
	return marked(func(of string) bool { return of == state })
}

// Others are the processes with the mark of another cluster than that in the folder state.
func Others(state string) ([]Process, error) {
	return marked(func(of string) bool { return of != state && of != "" })
}

// marked are the processes with the mark of such a state folder.
func marked(such func(state string) bool) ([]Process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	var found []Process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p := identify(pid); such(p.State) {
			found = append(found, p)
		}
	}
	return found, err
}

// Components are those of All that Start has started. Each leads its session, as nothing does that it started.
func Components(state string) ([]Process, error) {
	all, err := All(state)
	return slices.DeleteFunc(all, func(p Process) bool {
		session, err := unix.Getsid(p.PID)
		return err != nil || session != p.PID
	}), err
}

// Find is the component with the name, if it runs.
func Find(state, name string) (Process, bool) {
	all, _ := Components(state)
	i := slices.IndexFunc(all, func(p Process) bool { return p.Name == name })
	if i < 0 {
		return Process{}, false
	}
	return all[i], true
}

// Alive says whether the process still runs.
func (p Process) Alive() bool { return identify(p.PID) == p }

// Stop signals the process to end, waits up to grace, then kills it. When it returns, the process has let go of
// its files and ports. It does nothing when the process is gone or its id belongs to another one.
func (p Process) Stop(ctx context.Context, grace time.Duration) error {
	err := hold(p.PID, p.Alive, func(fd int) error {
		if err := send(fd, unix.SIGTERM); err != nil {
			return err
		}
		if ended, err := await(ctx, fd, grace); ended || err != nil {
			return err
		}
		if err := send(fd, unix.SIGKILL); err != nil {
			return err
		}
		const limit = 10 * time.Second
		if ended, err := await(ctx, fd, limit); ended || err != nil {
			return err
		}
		return fmt.Errorf("still there %s after SIGKILL", limit)
	})
	if err != nil {
		return fmt.Errorf("%s (pid %d): %w", p.Name, p.PID, err)
	}
	return nil
}

// Signal signals the process unless it is another one than is meant.
func Signal(pid int, sig unix.Signal, meant func() bool) error {
	return hold(pid, meant, func(fd int) error { return send(fd, sig) })
}

// hold opens a descriptor of the process, which refers to no later one with the same id, then checks that it
// is the one that is meant, and calls do.
func hold(pid int, meant func() bool, do func(fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(fd)
	if !meant() {
		return nil
	}
	return do(fd)
}

func send(fd int, sig unix.Signal) error {
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%v: %w", sig, err)
	}
	return nil
}

// await says whether the process ends within the limit. It has ended when its last thread has: its memory,
// and with it its environment, goes before that, and before its files.
func await(ctx context.Context, fd int, limit time.Duration) (ended bool, err error) {
	const interval = 20 // ms, to see that ctx has ended
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, interval)
		switch {
		case n > 0:
			return true, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("poll: %w", err)
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
	}
	return false, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of each process below it whose own parent ends, see
// PR_SET_CHILD_SUBREAPER in prctl(2).
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt processes that outlive a suite: prctl: %w", err)
	}
	return nil
}

// orphans are the children of this process that still run, each as its number and command line. It ends
// none of them. It must not be called while a program of this process runs.
func orphans() ([]string, error) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended; its children are another's now
		}
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list, err)
			}
			// One that has ended is reaped here: nothing else waits for it.
			if ended, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil || ended == pid {
				continue
			}
			command, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if err != nil {
				continue // it ended just now
			}
			words := bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})
			found = append(found, fmt.Sprintf("%d %s", pid, words))
		}
	}
	return found, nil
}

// busiest is what top(1) says of the last two seconds: how busy the CPUs are, how much of them the
// hypervisor took (st), and which processes use most.
func busiest(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "top", "-b", "-d", "2", "-n", "2", "-w", "120").Output()
	if err != nil {
		return fmt.Sprintf("top: %v", err)
	}
	_, last, _ := strings.Cut(string(out[1:]), "\ntop - ") // the first frame counts since the boot
	lines := strings.Split(last, "\n")
	return strings.Join(lines[:min(len(lines), 14)], "\n")
}

// loadAverage is that of the last minute (/proc/loadavg), or 0 where the file cannot be read.
func loadAverage() (load float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return load
}

// cpuTime is the time of all CPUs since the boot, and what of it the hypervisor took, in ticks of
// /proc/stat; see proc_stat(5). 0 where the file cannot be read.
func cpuTime() (total, stolen float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal, and guests, which user has
	if len(fields) < 9 {
		return 0, 0
	}
	for _, f := range fields[1:9] {
		stolen, err = strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0
		}
		total += stolen
	}
	return total, stolen
}

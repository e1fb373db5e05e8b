//go:build linux

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// rewatchInterval is how often lost watches are put back: a QoS directory that was removed takes its watch along.
const rewatchInterval = 30 * time.Second

// Watch hints that pods came or went: a value in the channel means that
// to Read now may show something new. Hints are never needed, may come for nothing and
// may be missing: where the machine has no more inotify watches to give, none come
// and Read finds out by listing. The channel holds one hint and is never closed;
// watching ends with ctx or Close.
func (h *Host) Watch(ctx context.Context) <-chan struct{} {
	hints := make(chan struct{}, 1)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		h.log.Debug("no watches, lists instead", "err", err)
		return hints
	}
	f := os.NewFile(uintptr(fd), "inotify")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		f.Close()
		return hints
	}
	h.watches = append(h.watches, f)
	h.addWatches(fd)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	h.watching.Go(func() {
		defer stop()
		h.watch(f, hints)
	})
	return hints
}

// watch turns events into hints until f is closed.
func (h *Host) watch(f *os.File, hints chan<- struct{}) {
	defer f.Close()
	buf := make([]byte, 16<<10) // events are only counted; what they say is found by listing
	for {
		if err := f.SetReadDeadline(time.Now().Add(rewatchInterval)); err != nil {
			return
		}
		_, err := f.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			h.rewatch(f)
			continue
		case err != nil:
			return
		}
		h.rewatch(f) // the event may be that of a new QoS directory
		h.hint.Store(true)
		select {
		case hints <- struct{}{}:
		default:
		}
	}
}

// rewatch adds the watches through the file, so that a closed descriptor is never used.
func (h *Host) rewatch(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { h.addWatches(int(fd)) })
}

// addWatches watches the kubepods cgroup and its QoS directories. To
// add a watch that is there already changes nothing.
func (h *Host) addWatches(fd int) {
	root := h.Layout().Kubepods
	dirs := []string{root}
	names, _ := subdirs(root)
	for _, name := range names {
		if isQoS(name) {
			dirs = append(dirs, filepath.Join(root, name))
		}
	}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil && !gone(err) {
			h.log.Debug("no watch, lists instead", "dir", dir, "err", err)
		}
	}
}

//go:build linux

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel/cgroupname"
)

// rewatchInterval is how often lost watches are added again: a removed QoS directory removes its
// watch.
const rewatchInterval = 30 * time.Second

// Watch sends a hint when a pod starts or ends: Read may then return something new. Hints may be
// superfluous or missing: where the machine has no inotify watches left, none is sent, and Read
// lists at its interval. The channel buffers one hint and is never closed; watching ends with ctx
// or Close.
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
	buf := make([]byte, 16<<10) // the content of events is not used: Read lists
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

// rewatch adds the watches through the file, so that no closed descriptor is used.
func (h *Host) rewatch(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { h.addWatches(int(fd)) })
}

// addWatches watches the kubepods cgroup and its QoS directories. Adding a watch that exists
// changes nothing.
func (h *Host) addWatches(fd int) {
	root := h.Layout().Kubepods
	dirs := []string{root}
	names, _ := subdirs(root)
	for _, name := range names {
		if cgroupname.IsQoS(name) {
			dirs = append(dirs, filepath.Join(root, name))
		}
	}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil && !gone(err) {
			h.log.Debug("no watch, lists instead", "dir", dir, "err", err)
		}
	}
}

// Package clean takes a node off the machine so that nothing of it is left.
//
// Promises:
//   - Mounts below the state folder are undone, last first, before anything is
//     removed, and a folder that still holds one is never removed:
//     TestUnmountOrder, TestRemoveRefusesMounts.
//   - Only folders that were absent before are removed outside the state folder:
//     TestRemovable.
//   - Settings of the kernel are as they were: TestClusterLifecycle.
package clean

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Node removes everything a node left outside its state folder, and its mounts
// below it. Kubelet and runtime have been stopped. It goes on after a fault and
// reports them all; running it again does what is left.
func Node(ctx context.Context, state string, links []string, b Before, records proc.Records) error {
	var left []string
	for _, runtime := range []string{filepath.Join(state, "containerd"), filepath.Join(state, "nodes/*/containerd")} {
		left = slices.Concat(left, shimSockets(runtime), cniResults(runtime))
	}
	pods, err := Kubepods()
	errs := []error{
		err,
		endPods(ctx, pods),
		Strays(ctx, records),
		Unmount(state),
	}
	pods, err = Kubepods() // a stray kubelet may have made some meanwhile
	errs = append(errs, err, removeCgroups(ctx, pods))
	for _, name := range links {
		errs = append(errs, RemoveLink(name))
	}
	errs = append(errs, b.restore(), removeFiles(left))
	mounts, err := Mounts()
	errs = append(errs, err)
	for _, path := range removable(b.Absent, mounts) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// RemoveLocalNode removes everything a node that was added on this machine left outside its folder dir, and its mounts below it. Its
// kubelet and runtime have been stopped.
func RemoveLocalNode(ctx context.Context, dir, name string, records proc.Records) error {
	left := append(shimSockets(filepath.Join(dir, "containerd")), cniResults(filepath.Join(dir, "containerd"))...)
	cgroups, err := existing(filepath.Join(LocalNodes, name))
	return errors.Join(
		err,
		endPods(ctx, cgroups),
		strays(ctx, records, func(r proc.Record) bool { return names(r.Args, dir) }),
		Unmount(dir),
		removeCgroups(ctx, cgroups),
		removeLocalNodesCgroup(),
		removeFiles(left),
	)
}

// names says whether an argument, or the value of a flag, lies in dir.
func names(args []string, dir string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		_, value, _ := strings.Cut(a, "=")
		return within(dir, a) || within(dir, value)
	})
}

// removeLocalNodesCgroup removes the cgroup above those of the nodes that were added, if these are gone.
func removeLocalNodesCgroup() error {
	dirs, err := existing(LocalNodes)
	for _, dir := range dirs {
		_ = os.Remove(dir) // another node's may be in it
	}
	return err
}

func removeFiles(paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endPods kills what runs in the pod cgroups. They are the cluster's: it does not
// set up a node where such cgroups are.
func endPods(ctx context.Context, dirs []string) error {
	return until(ctx, 10*time.Second, "processes of pods", func() (bool, error) {
		left := false
		for _, dir := range dirs {
			for _, pid := range members(dir) {
				left = true
				if err := kill(pid, dir); err != nil {
					return false, err
				}
			}
		}
		return !left, nil
	})
}

// members lists the processes in a cgroup and those below it.
func members(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return nil // cgroups may vanish meanwhile
		}
		raw, _ := os.ReadFile(path)
		for f := range strings.FieldsSeq(string(raw)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// kill opens the process by a descriptor and compares again before it kills.
func kill(pid int, dir string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone
	}
	defer unix.Close(fd)
	if !slices.Contains(members(dir), pid) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d of a pod: kill: %w", pid, err)
	}
	return nil
}

// Strays ends container shims, and components whose record was lost.
func Strays(ctx context.Context, records proc.Records) error {
	return strays(ctx, records, func(proc.Record) bool { return true })
}

func strays(ctx context.Context, records proc.Records, those func(proc.Record) bool) error {
	all, err := records.Strays()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		if those(s) {
			errs = append(errs, s.Stop(ctx, 2*time.Second))
		}
	}
	return errors.Join(errs...)
}

// Unmount undoes every mount below dir.
func Unmount(dir string) error {
	for range 10 { // a mount point can carry several mounts
		mounts, err := Mounts()
		if err != nil {
			return err
		}
		points := below(mounts, dir)
		if len(points) == 0 {
			return nil
		}
		for _, p := range points {
			if err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW); err != nil {
				// Busy: take it out of the tree now, the kernel frees it with its last user.
				_ = unix.Unmount(p, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
		}
	}
	return fmt.Errorf("%s: something is still mounted below it; see /proc/self/mountinfo", dir)
}

// RemoveState removes the state folder unless anything is mounted in it: what is
// mounted may be a user's data.
func RemoveState(dir string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	if err := holdsNoMount(dir, mounts); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func holdsNoMount(dir string, mounts []Mount) error {
	if points := below(mounts, dir); len(points) > 0 {
		return fmt.Errorf("%s: not removed, %s is mounted in it", dir, points[0])
	}
	return nil
}

// removable are the folders that were absent before and hold no mount.
func removable(absent []string, mounts []Mount) []string {
	return slices.DeleteFunc(slices.Clone(absent), func(path string) bool {
		return slices.ContainsFunc(mounts, func(m Mount) bool { return within(path, m.Point) })
	})
}

// removeCgroups removes cgroups with all below them, deepest first. The kernel lets a cgroup
// go only some time after its last process.
func removeCgroups(ctx context.Context, dirs []string) error {
	return until(ctx, 10*time.Second, "cgroups of pods", func() (bool, error) {
		gone := true
		for _, dir := range dirs {
			var all []string
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			})
			slices.Reverse(all) // a parent is walked before its children
			for _, path := range all {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					gone = false
				}
			}
		}
		return gone, nil
	})
}

// RemoveLink removes a network interface if it is there.
func RemoveLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// shimSockets are where the container shims listen: outside the runtime's folder, but
// each is written down below it.
func shimSockets(runtime string) []string {
	files, _ := filepath.Glob(filepath.Join(runtime, "state/io.containerd.runtime.v2.task/*/*/address"))
	var sockets []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		path, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "unix://")
		if err == nil && ok && filepath.Dir(path) == "/run/containerd/s" {
			sockets = append(sockets, path)
		}
	}
	return sockets
}

// cniResults are what the network plugins keep of each pod's address: outside the runtime's folder too, by the ids of its sandboxes.
func cniResults(runtime string) []string {
	var results []string
	tasks, _ := filepath.Glob(filepath.Join(runtime, "state/io.containerd.runtime.v2.task/*/*"))
	for _, task := range tasks {
		found, _ := filepath.Glob("/var/lib/cni/results/*-" + filepath.Base(task) + "-*")
		results = append(results, found...)
	}
	return results
}

func until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: still there after %s", what, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Package clean takes nodes off the machine so that nothing of them is left.
//
// Promises:
//   - Mounts below the state folder are undone, last first, before anything is
//     removed, and a folder that still holds one is never removed:
//     TestRemoveRefusesMounts, TestUnmount.
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

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Nodes removes everything that nodes left outside the state folder, and their mounts
// below it. Kubelets and runtimes have been stopped. It goes on after a fault and
// reports them all; running it again does what is left.
func Nodes(ctx context.Context, state string, b Before) error {
	left := leftByRuntime(filepath.Join(state, "containerd"))
	left = append(left, leftByRuntime(filepath.Join(state, "nodes/*/containerd"))...)
	pods, err := Cgroups("kubepods", config.AddedNodes)
	errs := []error{err, endPods(ctx, pods), Strays(ctx, state), Unmount(state)}
	pods, err = Cgroups("kubepods", config.AddedNodes) // a stray kubelet may have made some meanwhile
	errs = append(errs, err, removeCgroups(ctx, pods))
	for i := 1; i < config.Slots; i++ {
		errs = append(errs, RemoveLink(config.Tap(i)))
	}
	errs = append(errs, RemoveLink(config.Bridge), b.restore(), removeFiles(left))
	mounts, err := mountinfo.GetMounts(nil)
	errs = append(errs, err)
	for _, path := range removable(b.Absent, mounts) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// LocalNode removes everything that a node of this machine beside the first left outside its folder
// dir, and its mounts below it. Its kubelet and runtime have been stopped.
func LocalNode(ctx context.Context, state, dir string, n config.Node) error {
	left := leftByRuntime(filepath.Join(dir, "containerd"))
	cgroups, err := Cgroups(n.Cgroup())
	if err != nil {
		return err
	}
	errs := []error{
		endPods(ctx, cgroups), Strays(ctx, state, n.Processes()...), Unmount(dir),
		removeCgroups(ctx, cgroups), removeFiles(left),
	}
	above, err := Cgroups(config.AddedNodes)
	for _, dir := range above {
		_ = os.Remove(dir) // another node's may be in it
	}
	return errors.Join(append(errs, err)...)
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
	return until(ctx, "processes of pods", func() (bool, error) {
		left := false
		for _, dir := range dirs {
			for _, pid := range members(dir) {
				left = true
				meant := func() bool { return slices.Contains(members(dir), pid) }
				if err := proc.Signal(pid, unix.SIGKILL, meant); err != nil {
					return false, fmt.Errorf("process %d of a pod: %w", pid, err)
				}
			}
		}
		return !left, nil
	})
}

// members lists the processes in a cgroup and those below it.
func members(dir string) []int {
	var pids []int
	for _, path := range tree(dir) { // cgroups may vanish meanwhile
		raw, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(raw)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// tree is a folder and all folders below it, each before those in it.
func tree(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// Strays ends what still carries the cluster's mark, of the named components or of all: container shims, and
// components that nothing has stopped.
func Strays(ctx context.Context, state string, components ...string) error {
	all, err := proc.All(state)
	errs := []error{err}
	for _, p := range all {
		if len(components) == 0 || slices.Contains(components, p.Name) {
			errs = append(errs, p.Stop(ctx, 2*time.Second))
		}
	}
	return errors.Join(errs...)
}

// mountsBelow are the mounts in dir, dir's own left out.
func mountsBelow(dir string) ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
}

// Unmount undoes every mount below dir.
func Unmount(dir string) error {
	for range 10 { // a mount point can carry several mounts
		mounts, err := mountsBelow(dir)
		if err != nil || len(mounts) == 0 {
			return err
		}
		for _, m := range slices.Backward(mounts) {
			if err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW); err != nil {
				// Busy: take it out of the tree now, the kernel frees it with its last user.
				_ = unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
		}
	}
	return fmt.Errorf("%s: something is still mounted below it; see /proc/self/mountinfo", dir)
}

// RemoveState removes a folder of the cluster unless anything is mounted in it: what is
// mounted may be a user's data.
func RemoveState(dir string) error {
	mounts, err := mountsBelow(dir)
	if err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s: not removed, %s is mounted in it", dir, mounts[0].Mountpoint)
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// removable are the folders that were absent before and hold no mount.
func removable(absent []string, mounts []*mountinfo.Info) []string {
	return slices.DeleteFunc(slices.Clone(absent), func(path string) bool {
		return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool {
			return strings.HasPrefix(m.Mountpoint+"/", path+"/")
		})
	})
}

// Cgroups lists the cgroups with one of the names that are there, in each hierarchy. No name may be that
// of a root: all processes of the machine are in it.
func Cgroups(names ...string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	errs := []error{err}
	var dirs []string
	for _, name := range names {
		if !filepath.IsLocal(name) || filepath.Clean(name) == "." {
			errs = append(errs, fmt.Errorf("%q names no cgroup below the root", name))
			continue
		}
		for _, m := range mounts {
			dir := filepath.Join(m.Mountpoint, name)
			there, err := exists(dir)
			if errs = append(errs, err); there {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, errors.Join(errs...)
}

// exists says whether something is at the path. An error tells neither.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// removeCgroups removes cgroups with all below them, deepest first. The kernel lets a cgroup
// go only some time after its last process.
func removeCgroups(ctx context.Context, dirs []string) error {
	return until(ctx, "cgroups of pods", func() (bool, error) {
		gone := true
		for _, dir := range dirs {
			for _, path := range slices.Backward(tree(dir)) {
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

// leftByRuntime are files outside the runtime's folder, each known from what is below it: where the container
// shims listen, and what the network plugins keep of each pod's address.
func leftByRuntime(runtime string) []string {
	var left []string
	tasks, _ := filepath.Glob(filepath.Join(runtime, "state/io.containerd.runtime.v2.task/*/*"))
	for _, task := range tasks {
		results, _ := filepath.Glob("/var/lib/cni/results/*-" + filepath.Base(task) + "-*")
		left = append(left, results...)
		raw, err := os.ReadFile(filepath.Join(task, "address"))
		socket, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "unix://")
		if err == nil && ok && filepath.Dir(socket) == "/run/containerd/s" {
			left = append(left, socket)
		}
	}
	return left
}

// until calls done until it is true, for at most 10 s.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: still there after 10 s", what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

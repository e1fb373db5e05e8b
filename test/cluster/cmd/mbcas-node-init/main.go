// Command mbcas-node-init is the first process of a virtual node. It turns the
// machine that the kernel has booted into a node, then only waits for orphans; a
// second process of the same program keeps runtime and kubelet running.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// settings are kept here once the initial file system is out of sight.
const settings = "/run/node.json"

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "keep":
		err = keepNode()
	case os.Getpid() == 1:
		err = first()
	default:
		err = errors.New("runs as the first process of a virtual node only")
	}
	fmt.Fprintln(os.Stderr, "mbcas-node-init:", err)
	if os.Getpid() == 1 {
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(1)
}

// first ends only when the node cannot go on.
func first() error {
	if err := mountEarly(); err != nil {
		return err
	}
	n, err := read(config.BootFile)
	if err != nil {
		return err
	}
	if err := loadModules(n.Modules); err != nil {
		return err
	}
	if err := switchRoot(); err != nil {
		return err
	}
	if err := setUp(n); err != nil {
		return err
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := os.WriteFile(settings, raw, 0o600); err != nil {
		return err
	}
	// The program's own file went out of sight with the initial file system.
	keeper, err := os.StartProcess("/proc/self/exe", []string{"mbcas-node-init", "keep"}, &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	return reap(keeper.Pid)
}

// reap waits for whatever is orphaned, and returns when the keeper has ended.
func reap(keeper int) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("wait: %w", err)
		}
		if pid == keeper {
			return fmt.Errorf("the keeper of the node has ended: status %#x", int(status))
		}
	}
}

func read(path string) (config.Boot, error) {
	var n config.Boot
	raw, err := os.ReadFile(path)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return n, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

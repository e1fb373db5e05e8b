package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

const newRoot = "/disk"

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountAll(mounts ...mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

func mountEarly() error {
	return mountAll(
		mount{"proc", "/proc", "proc", 0, ""},
		mount{"sysfs", "/sys", "sysfs", 0, ""},
		mount{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	)
}

func loadModules(paths []string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s: %w", path, err)
		}
	}
	return nil
}

// switchRoot makes the disk the root, with this boot's payload on it.
func switchRoot() error {
	const disk = "/dev/vda"
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := os.Stat(disk); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not appear", disk)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := mountAll(mount{disk, newRoot, "ext4", 0, ""}); err != nil {
		return err
	}
	if err := copyTree(config.Payload, newRoot); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, newRoot+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return unix.Chdir("/")
}

// copyTree writes over what a former boot has left there.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, raw, 0o600)
	})
}

// setUp is what an init system does between the root and the first service.
func setUp(n config.Boot) error {
	err := mountAll(
		mount{"", "/", "", unix.MS_SHARED | unix.MS_REC, ""}, // volumes that pods pass on
		mount{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		mount{"devpts", "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=000"},
		mount{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
		mount{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		mount{"tmpfs", "/tmp", "tmpfs", 0, ""},
	)
	if err != nil {
		return err
	}
	// They are of sandboxes of former boots. A crash may have cut them short; then these could not be removed.
	if err := os.RemoveAll("/var/lib/cni/results"); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(n.Node.Name)); err != nil {
		return err
	}
	if time.Now().Before(n.Clock) {
		tv := unix.NsecToTimeval(n.Clock.UnixNano())
		if err := unix.Settimeofday(&tv); err != nil {
			return fmt.Errorf("set the clock: %w", err)
		}
	}
	return network(n)
}

// network puts the machine's only interface into the bridge that pods will be on,
// so pods are on the same network as those of the host.
func network(n config.Boot) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	slot := n.Config.Slot(n.Node.Index)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = config.Bridge, slot.HardwareAddr()
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge %s: %w", config.Bridge, err)
	}
	if err := netlink.LinkSetMaster(eth, bridge); err != nil {
		return fmt.Errorf("eth0 into bridge %s: %w", config.Bridge, err)
	}
	for _, link := range []netlink.Link{eth, bridge} {
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	addr, err := netlink.ParseAddr(netip.PrefixFrom(slot.IP, n.Config.PodRange.Bits()).String())
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(bridge, addr); err != nil {
		return err
	}
	gateway := net.IP(n.Config.NodeIP().AsSlice()) // the host, which is also the API server
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Dst: everywhere, Gw: gateway})
}

// Package vm is a node in an emulated machine: another kernel, with cgroup
// v2 and nothing else. It is slow and for correctness only.
//
// Promises:
//   - The node has its own certificates and no key of an authority: TestPayload.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

func disk(c config.Config, n config.Node) string { return filepath.Join(c.Dir(n), "disk.raw") }

// RemoveDisk removes the disk of a machine that does not run. Prepare makes a fresh one.
func RemoveDisk(c config.Config, n config.Node) error {
	err := os.Remove(disk(c, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func initial(c config.Config, n config.Node) string { return filepath.Join(c.Dir(n), "initial.cpio") }

// imageServer is the URL at which the node takes images.
func imageServer(c config.Config, n config.Node) string {
	return fmt.Sprintf("https://%s:%d", c.Slot(n.Index).IP, config.ImageServerPort)
}

// emulatorNice has the emulator run before pods and everything else here: a machine that waits for a
// CPU while its clock goes on stops for seconds, as no real one does.
const emulatorNice = -15

// Program is the emulator.
func Program(c config.Config, n config.Node, img Image) proc.Program {
	return proc.Program{
		Name: n.Processes()[0],
		Path: img.Emulator,
		Args: []string{
			"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
			"-name", n.Name,
			"-machine", "q35",
			"-accel", "tcg,thread=multi",
			"-cpu", "max",
			"-smp", strconv.Itoa(n.VM.CPUs),
			"-m", strconv.Itoa(n.VM.MemoryMiB),
			"-rtc", "base=utc",
			"-kernel", img.Kernel(),
			"-initrd", initial(c, n),
			"-append", "console=ttyS0 quiet panic=-1 mitigations=off cgroup_no_v1=all psi=1",
			"-serial", "stdio",
			"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + disk(c, n),
			"-device", "virtio-blk-pci,drive=disk",
			"-netdev", "tap,id=net,script=no,downscript=no,ifname=" + config.Tap(n.Index),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net,romfile=,mac=%s", c.Slot(n.Index).HardwareAddr()),
		},
		Nice:  emulatorNice,
		Ready: controlplane.Probe(c, imageServer(c, n)+"/healthz"),
	}
}

// loadLimit is for one archive. The machine unpacks some 100 KB a second when it
// gets little of a busy host.
const loadLimit = 10 * time.Minute

// Load imports an image archive into the machine's runtime.
func Load(ctx context.Context, c config.Config, n config.Node, archive string) error {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	return controlplane.PostFile(ctx, c, imageServer(c, n)+"/images", archive)
}

// Prepare makes everything the machine needs for its next start. first is the
// path of its first process.
func Prepare(ctx context.Context, c config.Config, n config.Node, img Image, first string) error {
	if err := os.MkdirAll(c.Dir(n), 0o755); err != nil {
		return err
	}
	to := disk(c, n)
	if _, err := os.Stat(to); err != nil {
		if err := run(ctx, "cp", "--sparse=always", "--reflink=auto", img.disk(), to+".new"); err != nil {
			return err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	files, err := initialFiles(c, n, img, first)
	if err != nil {
		return err
	}
	if err := os.WriteFile(initial(c, n), archive(files), 0o600); err != nil {
		return err
	}
	return addTap(config.Tap(n.Index))
}

func initialFiles(c config.Config, n config.Node, img Image, first string) (map[string]file, error) {
	sources := map[string]string{"/init": first}
	boot := config.Boot{Config: c.Inside(n), Node: n, Clock: time.Now()}
	modules, err := filepath.Glob(filepath.Join(img.modules(), "*.ko"))
	if err != nil {
		return nil, err
	}
	slices.Sort(modules)
	for _, path := range modules {
		to := "/modules/" + filepath.Base(path)
		sources[to] = path
		boot.Modules = append(boot.Modules, to)
	}
	files := map[string]file{
		"/dev/console": {mode: modeDevice, dev: [2]uint32{5, 1}}, // the kernel opens it before there is a /dev
	}
	for to, from := range sources {
		raw, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files[to] = file{mode: modeProgram, data: raw}
	}
	raw, err := json.Marshal(boot)
	if err != nil {
		return nil, err
	}
	files[config.BootFile] = file{mode: modeFile, data: raw}
	payload, err := payload(c, n)
	if err != nil {
		return nil, err
	}
	for path, data := range payload {
		files[config.Payload+path] = file{mode: modeFile, data: data}
	}
	return files, nil
}

// payload are the files of the node, by their path on its disk.
func payload(c config.Config, n config.Node) (map[string][]byte, error) {
	in := c.Inside(n)
	certificates := filepath.Join(c.Dir(n), "pki")
	if err := pki.Issue(certificates, pki.NodeLeaves(n.Name, c.Slot(n.Index).IP), c.PKI("")); err != nil {
		return nil, err
	}
	files, err := node.Files(in, n, node.Host{CNI: "/usr/lib/cni", Cgroups: node.V2, Overlay: true})
	if err != nil {
		return nil, err
	}
	copies := map[string]string{in.PauseArchive(): c.PauseArchive()}
	for _, name := range []string{"ca.crt", "kubelet.crt", "kubelet.key", "kubelet-server.crt", "kubelet-server.key"} {
		copies[in.PKI(name)] = filepath.Join(certificates, name)
	}
	for to, from := range copies {
		if files[to], err = os.ReadFile(from); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// addTap puts the machine on the cluster's bridge.
func addTap(name string) error {
	bridge, err := netlink.LinkByName(config.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", config.Bridge, err)
	}
	tap, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		flags := netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_VNET_HDR
		tap = &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: flags}
		err = netlink.LinkAdd(tap)
	}
	if err == nil {
		err = netlink.LinkSetMaster(tap, bridge)
	}
	if err == nil {
		err = netlink.LinkSetUp(tap)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// Package vm is a node in an emulated machine: another kernel, with cgroup
// v2 and nothing else. It is slow and for correctness only.
//
// Promises:
//   - A module is loaded after all it depends on: TestModuleOrder.
//   - The initial file system is one that the kernel reads: TestArchive.
//   - The node has its own certificates and no key of an authority: TestPayload.
package vm

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Node is one virtual node, as it is recorded in the state folder.
type Node struct {
	Name      string `json:"name"` // of the node
	Index     int    `json:"index"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int    `json:"memoryMiB"`
	// Loaded says that it has the images that were loaded before it was added.
	Loaded bool `json:"loaded"`
}

// Name is what the machine in a slot is called unless it is named.
func Name(index int) string { return fmt.Sprintf("mbcas-vm-%d", index) }

// Slot is the machine's share of the addresses.
func (m Node) Slot(c config.Config) config.Slot {
	s := c.Slot(m.Index, m.Name)
	s.Emulated = true
	return s
}

// Process is the name of the machine's process in records and logs.
func (m Node) Process() string { return "vm-" + m.Name }

// Dir is the folder of everything of the machine.
func (m Node) Dir(c config.Config) string { return c.Path("vms", m.Name) }

func (m Node) disk(c config.Config) string { return filepath.Join(m.Dir(c), "disk.raw") }

func (m Node) initial(c config.Config) string { return filepath.Join(m.Dir(c), "initial.cpio") }

// emulatorNice has the emulator run before pods and everything else here: a machine that waits for a CPU while its clock goes on stops for
// seconds, as no real one does.
const emulatorNice = -15

// Program is the emulator.
func (m Node) Program(c config.Config, img Image) proc.Program {
	return proc.Program{
		Name:  m.Process(),
		Path:  img.Emulator,
		Args:  m.args(c, img),
		Nice:  emulatorNice,
		Ready: func(ctx context.Context) error { return controlplane.Probe(ctx, c, m.imageServer(c)+"/healthz") },
	}
}

func (m Node) args(c config.Config, img Image) []string {
	return []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-name", m.Name,
		"-machine", "q35",
		"-accel", "tcg,thread=multi",
		"-cpu", "max",
		"-smp", strconv.Itoa(m.CPUs),
		"-m", strconv.Itoa(m.MemoryMiB),
		"-rtc", "base=utc",
		"-kernel", img.Kernel(),
		"-initrd", m.initial(c),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off cgroup_no_v1=all psi=1",
		"-serial", "stdio",
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + m.disk(c),
		"-device", "virtio-blk-pci,drive=disk",
		"-netdev", "tap,id=net,script=no,downscript=no,ifname=" + c.Tap(m.Index),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net,romfile=,mac=%s", m.Slot(c).HardwareAddr()),
	}
}

// imageServer is the URL for images.
func (m Node) imageServer(c config.Config) string {
	return fmt.Sprintf("https://%s:%d", m.Slot(c).IP, c.ImageServerPort())
}

// loadLimit is for one archive. The machine unpacks some 100 KB a second when it
// gets little of a busy host.
const loadLimit = 10 * time.Minute

// Load imports an image archive into the machine's runtime.
func (m Node) Load(ctx context.Context, c config.Config, archive string) error {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	if err := controlplane.PostFile(ctx, c, m.imageServer(c)+"/images", archive); err != nil {
		return fmt.Errorf("load %s into %s: %w", archive, m.Name, err)
	}
	return nil
}

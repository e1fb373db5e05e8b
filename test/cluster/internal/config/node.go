package config

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"
)

// Node is one node of a cluster.
type Node struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // of its slot

	// SystemReservedCPU is that of Config. Nodes of one machine each count all CPUs as their own, so
	// together they must keep back enough for each other.
	SystemReservedCPU string `json:"systemReservedCPU"`

	VM *VM `json:"vm,omitempty"` // nil: a node of this machine
}

// VM is the emulated machine of a virtual node.
type VM struct {
	CPUs      int `json:"cpus"`
	MemoryMiB int `json:"memoryMiB"`
	// Loaded says that it has the images that were loaded before it was added.
	Loaded bool `json:"loaded"`
}

// First is the first node, in slot 0. All others were added to it.
func (c Config) First() Node { return Node{Name: c.NodeName, SystemReservedCPU: c.SystemReservedCPU} }

// ValidateAdded reports what is wrong with a node that was added: its name is part of
// paths, and slot 0, the root of all cgroups, is the first node's.
func (n Node) ValidateAdded() error {
	if n.Index < 1 || n.Index >= Slots || !dnsLabel.MatchString(n.Name) {
		return fmt.Errorf("node %q in slot %d: want a DNS label and a slot from 1 to %d", n.Name, n.Index, Slots-1)
	}
	return nil
}

// Dir is the folder of everything of the node.
func (c Config) Dir(n Node) string {
	switch {
	case n.VM != nil:
		return c.Path("vms", n.Name)
	case n.Index > 0:
		return c.Path("nodes", n.Name)
	}
	return c.State
}

// Inside is the cluster as the node's own programs see it. A virtual node sees nothing of this machine's disk.
func (c Config) Inside(n Node) Config {
	c.State = c.Dir(n)
	if n.VM != nil {
		c.State = DefaultState
	}
	return c
}

// AddedNodes is the cgroup above those of the nodes of this machine that were added to the first.
const AddedNodes = "mbcas-nodes"

// Cgroup is the cgroup above that of the node's pods, or "": the root of all.
func (n Node) Cgroup() string {
	if n.Index == 0 || n.VM != nil {
		return ""
	}
	return filepath.Join(AddedNodes, n.Name)
}

// Processes are the names of the node's processes on this machine in the order of their start.
func (n Node) Processes() []string {
	switch {
	case n.VM != nil:
		return []string{"vm-" + n.Name}
	case n.Index > 0:
		return []string{"containerd-" + n.Name, "kubelet-" + n.Name}
	}
	return []string{"containerd", "kubelet"}
}

// KubeletHealthPort is on loopback, which nodes of one machine share.
func (n Node) KubeletHealthPort() int { return kubeletHealthPort - n.Index }

// Slot is a share of the pod range. All nodes are on one network, so
// pods of all nodes reach each other and the API server without a route.
type Slot struct {
	IP          netip.Addr // the node's own
	First, Last netip.Addr // its pods'
}

// Slots is the number of nodes that a cluster can have: slot 0 is the first, with
// half of the range; those added to it have a quarter each.
const Slots = 3

// Slot is the share with the given index.
func (c Config) Slot(index int) Slot {
	base, size := c.PodRange.Addr(), uint32(1)<<(32-c.PodRange.Bits())
	quarter := size / 4
	from, to := uint32(1), 2*quarter-1 // the first address of the range is the network's
	if index > 0 {
		from = uint32(index+1) * quarter
		to = min(from+quarter-1, size-2) // the last address is for broadcasts
	}
	return Slot{IP: plus(base, from), First: plus(base, from+1), Last: plus(base, to)}
}

func plus(a netip.Addr, n uint32) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b)
}

// MaxPods is how many pods the node may have.
func (s Slot) MaxPods() int {
	first, last := s.First.As4(), s.Last.As4()
	return min(110, int(binary.BigEndian.Uint32(last[:])-binary.BigEndian.Uint32(first[:]))+1)
}

// HardwareAddr is a locally administered address for the node's bridge.
func (s Slot) HardwareAddr() net.HardwareAddr {
	b := s.IP.As4()
	return net.HardwareAddr{0x02, 0x42, b[0], b[1], b[2], b[3]}
}

// Bridge is the network interface made for the cluster, and for pods inside a virtual node.
const Bridge = "mbcas0"

// Tap is the interface on this machine through which a virtual node is on the
// bridge.
func Tap(index int) string { return fmt.Sprintf("%s-t%d", Bridge, index) }

// Boot is what the first process of a virtual node reads.
type Boot struct {
	Config  Config   `json:"config"`
	Node    Node     `json:"node"`
	Modules []string `json:"modules"` // to load, in this order, before there is a disk

	// Clock was the host's when it wrote this: an emulated machine may start in the past.
	Clock time.Time `json:"clock"`
}

// Places in the initial file system of a virtual node. The payload is copied to the root of its disk.
const (
	BootFile = "/boot.json"
	Payload  = "/payload"
)

// VMKubelet is the program on the disk of a virtual node.
const VMKubelet = "/usr/bin/kubelet"

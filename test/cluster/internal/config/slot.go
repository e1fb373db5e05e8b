package config

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// Slot is one node's share of the pod range. All nodes are on one network, so
// pods of all nodes reach each other and the API server without a route.
type Slot struct {
	Index       int
	Node        string
	IP          netip.Addr // the node's own
	First, Last netip.Addr // its pods'

	// Emulated says that the node is slow, so only pods that select it are to run there.
	Emulated bool

	// CgroupRoot is the cgroup above the node's pods, as the kubelet's cgroupRoot. Empty: the root of all.
	CgroupRoot string
}

// Slots is the number of nodes that a cluster can have: slot 0 is the first, with
// half of the range; those added to it have a quarter each.
const Slots = 3

// HostSlot is this machine's.
func (c Config) HostSlot() Slot { return c.Slot(0, c.NodeName) }

// Slot is the share with the given index for the named node.
func (c Config) Slot(index int, node string) Slot {
	base, size := c.PodRange.Addr(), uint32(1)<<(32-c.PodRange.Bits())
	quarter := size / 4
	from, to := uint32(1), 2*quarter-1 // the first address of the range is the network's
	if index > 0 {
		from = uint32(index+1) * quarter
		to = min(from+quarter-1, size-2) // the last address is for broadcasts
	}
	return Slot{Index: index, Node: node, IP: plus(base, from), First: plus(base, from+1), Last: plus(base, to)}
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

// Tap is the interface on this machine through which a virtual node is on the
// bridge.
func (c Config) Tap(index int) string { return fmt.Sprintf("%s-t%d", c.Bridge, index) }

// Links are the interfaces that the cluster may have made on this machine.
func (c Config) Links() []string {
	var links []string
	for i := 1; i < Slots; i++ {
		links = append(links, c.Tap(i))
	}
	return append(links, c.Bridge)
}

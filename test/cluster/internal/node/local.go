package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// LocalNode is a further node of this machine: a kubelet and a runtime of its own beside the first node's, on the same
// kernel. Each of them takes all CPUs for its own, so together they must keep back enough for each other.
type LocalNode struct {
	Name              string `json:"name"`
	Index             int    `json:"index"`
	SystemReservedCPU string `json:"systemReservedCPU"`
}

// LocalNodeName is what the node in a slot is called unless it is named.
func LocalNodeName(index int) string { return fmt.Sprintf("mbcas-node-%d", index+1) } // the first is mbcas-node-1

// Slot is the node's share of the addresses.
func (s LocalNode) Slot(c config.Config) config.Slot {
	slot := c.Slot(s.Index, s.Name)
	slot.CgroupRoot = "/" + s.cgroup()
	return slot
}

func (s LocalNode) cgroup() string { return filepath.Join(clean.LocalNodes, s.Name) }

// Dir is the folder of everything of the node.
func (s LocalNode) Dir(c config.Config) string { return c.Path("nodes", s.Name) }

// Inside is the cluster as the node's own programs see it.
func (s LocalNode) Inside(c config.Config) config.Config {
	c.State = s.Dir(c)
	c.SystemReservedCPU = s.SystemReservedCPU
	return c
}

// Prepare makes everything the node needs for its next start.
func (s LocalNode) Prepare(c config.Config, h Host) error {
	in, slot := s.Inside(c), s.Slot(c)
	link, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	if err := makeCgroup(s.cgroup(), h.Cgroups); err != nil {
		return err
	}
	if err := pki.IssueMore(in.PKI(""), pki.NodeLeaves(s.Name, slot.IP), c.PKI("")); err != nil {
		return err
	}
	files, err := Files(in, slot, h)
	if err != nil {
		return err
	}
	files[in.Kubeconfig("kubelet")] = controlplane.Kubeconfig(in, "kubelet")
	if err := write(files); err != nil {
		return err
	}
	return addAddress(link, s.address(c))
}

func (s LocalNode) address(c config.Config) netip.Prefix { return netip.PrefixFrom(s.Slot(c).IP, 32) }

// Runtime is the node's container runtime.
func (s LocalNode) Runtime(c config.Config, h Host) proc.Program {
	return runtime(s.Inside(c), h, s.runtime())
}

// Kubelet is the node's agent.
func (s LocalNode) Kubelet(c config.Config, program func(name string) string) proc.Program {
	return kubelet(s.Inside(c), s.Slot(c), program, s.kubelet())
}

func (s LocalNode) runtime() string { return "containerd-" + s.Name }
func (s LocalNode) kubelet() string { return "kubelet-" + s.Name }

// Processes are the names of the node's processes in the order of their end.
func (s LocalNode) Processes() []string { return []string{s.kubelet(), s.runtime()} }

// RemoveAddress takes the node's address off the bridge.
func (s LocalNode) RemoveAddress(c config.Config) error {
	link, err := netlink.LinkByName(c.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	for _, a := range have {
		if a.IPNet.String() != s.address(c).String() {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return fmt.Errorf("bridge %s: remove address %v: %w", c.Bridge, a.IPNet, err)
		}
	}
	return nil
}

// makeCgroup makes a cgroup in every hierarchy. Where all controllers are those of v2, they are passed on, as a kubelet requires
// of the cgroup above its own.
func makeCgroup(name string, mode CgroupMode) error {
	mounts, err := clean.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Type != "cgroup" && m.Type != "cgroup2" {
			continue
		}
		dir := m.Point
		for part := range strings.SplitSeq(name, "/") {
			if mode == V2 && m.Type == "cgroup2" {
				if err := passOn(dir); err != nil {
					return err
				}
			}
			dir = filepath.Join(dir, part)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// passOn gives the children of a v2 cgroup the controllers that it has.
func passOn(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(raw)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("%s: pass on %s: %w", dir, controller, err)
		}
	}
	return nil
}

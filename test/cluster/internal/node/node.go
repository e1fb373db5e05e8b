package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Programs are the processes of a node of this machine: its container runtime, and its kubelet.
func Programs(
	c config.Config, n config.Node, h Host, program func(name string) string,
) (runtime, kubelet proc.Program) {
	names, in := n.Processes(), c.Inside(n)
	runtime = proc.Program{
		Name: names[0], Path: h.Containerd, Args: RuntimeArgs(in),
		Ready: func(ctx context.Context) error {
			_, err := ctr(ctx, in, h, "version")
			return err
		},
	}
	kubelet = proc.Program{
		Name: names[1], Path: program("kubelet"), Args: KubeletArgs(in, n),
		Ready: controlplane.Probe(c, fmt.Sprintf("http://127.0.0.1:%d/healthz", n.KubeletHealthPort())),
	}
	return runtime, kubelet
}

// RuntimeArgs are the container runtime's, on any node.
func RuntimeArgs(c config.Config) []string {
	return []string{"--config=" + containerdConfigPath(c)}
}

// KubeletArgs are the kubelet's, on any node. c is the cluster as the node sees it.
func KubeletArgs(c config.Config, n config.Node) []string {
	args := []string{
		"--config=" + kubeletConfigPath(c),
		"--kubeconfig=" + c.Kubeconfig("kubelet"),
		"--root-dir=" + c.KubeletRoot(),
		"--cert-dir=" + c.PKI("kubelet"),
		"--hostname-override=" + n.Name,
		"--node-ip=" + c.Slot(n.Index).IP.String(),
	}
	if n.VM != nil {
		args = append(args, "--node-labels="+Virtual+"=true")
	}
	return args
}

// Prepare makes everything that a node of this machine needs for its next start. For the first, the caller has
// checked that an interface of the bridge's name is the cluster's own.
func Prepare(c config.Config, n config.Node, h Host) error {
	in, ip := c.Inside(n), c.Slot(n.Index).IP
	addresses := []netip.Prefix{netip.PrefixFrom(ip, 32)}
	if n.Index == 0 {
		if err := addBridge(c); err != nil {
			return err
		}
		addresses = []netip.Prefix{netip.PrefixFrom(ip, c.PodRange.Bits()), netip.PrefixFrom(c.APIAddress(), 32)}
	}
	if cgroup := n.Cgroup(); cgroup != "" {
		if err := makeCgroup(cgroup, h.Cgroups); err != nil {
			return err
		}
	}
	if err := pki.Issue(in.PKI(""), pki.NodeLeaves(n.Name, ip), c.PKI("")); err != nil {
		return err
	}
	files, err := Files(in, n, h)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return addAddresses(addresses)
}

// addBridge makes the cluster's interface unless it is there.
func addBridge(c config.Config) error {
	_, err := netlink.LinkByName(config.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = config.Bridge
		// A bridge without an address of its own takes over that of its lowest
		// port, so neighbours would lose it whenever a pod comes or goes.
		attrs.HardwareAddr = c.Slot(0).HardwareAddr()
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}
	if err != nil {
		return fmt.Errorf("bridge %s: add: %w", config.Bridge, err)
	}
	return nil
}

func addAddresses(all []netip.Prefix) error {
	bridge, err := netlink.LinkByName(config.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", config.Bridge, err)
	}
	for _, p := range all {
		addr, err := netlink.ParseAddr(p.String())
		if err == nil {
			err = netlink.AddrReplace(bridge, addr)
		}
		if err != nil {
			return fmt.Errorf("bridge %s: add address %v: %w", config.Bridge, p, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bridge %s: up: %w", config.Bridge, err)
	}
	return nil
}

// RemoveAddress takes the address of a node of this machine off the bridge.
func RemoveAddress(c config.Config, n config.Node) error {
	bridge, err := netlink.LinkByName(config.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", config.Bridge, err)
	}
	have, err := netlink.AddrList(bridge, netlink.FAMILY_V4)
	for _, a := range have {
		if err == nil && a.IP.String() == c.Slot(n.Index).IP.String() {
			err = netlink.AddrDel(bridge, &a)
		}
	}
	if err != nil {
		return fmt.Errorf("bridge %s: remove the address of %s: %w", config.Bridge, n.Name, err)
	}
	return nil
}

// makeCgroup makes a cgroup in every hierarchy. Where all controllers are those of v2, they are passed
// on, as a kubelet requires of the cgroup above its own.
func makeCgroup(name string, mode CgroupMode) error {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return err
	}
	for _, m := range mounts {
		dir := m.Mountpoint
		for part := range strings.SplitSeq(name, "/") {
			if mode == V2 && m.FSType == "cgroup2" {
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
	to := filepath.Join(dir, "cgroup.subtree_control")
	for controller := range strings.FieldsSeq(string(raw)) {
		if err := os.WriteFile(to, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("%s: pass on %s: %w", dir, controller, err)
		}
	}
	return nil
}

// Load imports an image archive into the runtime, where the kubelet finds it. c is the cluster as the node sees it.
func Load(ctx context.Context, c config.Config, h Host, archive string) error {
	_, err := ctr(ctx, c, h, "--namespace=k8s.io", "images", "import", archive)
	return err
}

// Images are the names of the images that the runtime has.
func Images(ctx context.Context, c config.Config, h Host) ([]string, error) {
	out, err := ctr(ctx, c, h, "--namespace=k8s.io", "images", "list", "--quiet")
	// The kubelet's side of the runtime adds a second name for each, the digest.
	digest := func(name string) bool { return strings.HasPrefix(name, "sha256:") }
	return slices.DeleteFunc(strings.Fields(out), digest), err
}

// Export writes images of the runtime to an archive.
func Export(ctx context.Context, c config.Config, h Host, archive string, images ...string) error {
	_, err := ctr(ctx, c, h, append([]string{"--namespace=k8s.io", "images", "export", archive}, images...)...)
	return err
}

func ctr(ctx context.Context, c config.Config, h Host, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.Ctr, append([]string{"--address=" + c.ContainerdSocket()}, args...)...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, nil
}

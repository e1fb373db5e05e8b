package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/nodeconfig"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
)

// Prepare makes everything the machine needs for its next start. first is the
// path of its first process.
func (m Node) Prepare(ctx context.Context, c config.Config, img Image, first string, now time.Time) error {
	if err := os.MkdirAll(m.Dir(c), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(m.disk(c)); errors.Is(err, fs.ErrNotExist) {
		if err := run(ctx, "cp", "--sparse=always", "--reflink=auto", img.disk(), m.disk(c)+".new"); err != nil {
			return err
		}
		if err := os.Rename(m.disk(c)+".new", m.disk(c)); err != nil {
			return err
		}
	}
	files, err := m.initialFiles(c, img, first, now)
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.initial(c), archive(files), 0o600); err != nil {
		return err
	}
	return m.addTap(c)
}

// inside is the cluster as the machine's own programs see it.
func (m Node) inside(c config.Config) config.Config {
	c.State = nodeconfig.State
	return c
}

func (m Node) initialFiles(c config.Config, img Image, first string, now time.Time) (map[string]file, error) {
	program, err := os.ReadFile(first)
	if err != nil {
		return nil, err
	}
	files := map[string]file{
		"/init":        {mode: modeProgram, data: program},
		"/dev/console": {mode: modeDevice, dev: [2]uint32{5, 1}}, // the kernel opens it before there is a /dev
	}
	settings := m.settings(c, now)
	modules, err := filepath.Glob(filepath.Join(img.modules(), "*.ko"))
	if err != nil {
		return nil, err
	}
	slices.Sort(modules)
	for _, path := range modules {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		to := "/modules/" + filepath.Base(path)
		files[to] = file{mode: modeFile, data: raw}
		settings.Modules = append(settings.Modules, to)
	}
	raw, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return nil, err
	}
	files[nodeconfig.Settings] = file{mode: modeFile, data: raw}
	payload, err := m.payload(c)
	if err != nil {
		return nil, err
	}
	for path, data := range payload {
		files[nodeconfig.Payload+path] = file{mode: modeFile, data: data}
	}
	return files, nil
}

func (m Node) settings(c config.Config, now time.Time) nodeconfig.Node {
	in, s := m.inside(c), m.Slot(c)
	return nodeconfig.Node{
		Name:     m.Name,
		Address:  netip.PrefixFrom(s.IP, c.PodRange.Bits()),
		Hardware: s.HardwareAddr().String(),
		Gateway:  c.NodeIP(),
		Bridge:   c.Bridge,
		Clock:    now,
		Images:   []string{in.Path("pause.tar")},
		Runtime:  nodeconfig.Program{Path: "/usr/bin/containerd", Args: node.RuntimeArgs(in)},
		Kubelet:  nodeconfig.Program{Path: nodeconfig.Kubelet, Args: node.KubeletArgs(in, s)},
		ImageServer: nodeconfig.ImageServer{
			Port:        c.ImageServerPort(),
			Certificate: in.PKI("kubelet-server.crt"),
			Key:         in.PKI("kubelet-server.key"),
			Authority:   in.PKI("ca.crt"),
			Runtime:     in.ContainerdSocket(),
		},
	}
}

// payload are the files of the node, by their path on its disk.
func (m Node) payload(c config.Config) (map[string][]byte, error) {
	in, s := m.inside(c), m.Slot(c)
	certificates := filepath.Join(m.Dir(c), "pki")
	if err := pki.IssueMore(certificates, pki.NodeLeaves(m.Name, s.IP), c.PKI("")); err != nil {
		return nil, err
	}
	files, err := node.Files(in, s, node.Host{CNI: "/usr/lib/cni", Cgroups: node.V2, Overlay: true})
	if err != nil {
		return nil, err
	}
	files[in.Kubeconfig("kubelet")] = controlplane.Kubeconfig(in, "kubelet")
	copies := map[string]string{in.Path("pause.tar"): c.Path("pause.tar")}
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
func (m Node) addTap(c config.Config) error {
	name := c.Tap(m.Index)
	bridge, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	tap, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_VNET_HDR}); err != nil {
			return fmt.Errorf("interface %s: add: %w", name, err)
		}
		tap, err = netlink.LinkByName(name)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetMaster(tap, bridge); err != nil {
		return fmt.Errorf("interface %s: into bridge %s: %w", name, c.Bridge, err)
	}
	return netlink.LinkSetUp(tap)
}

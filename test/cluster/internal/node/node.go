package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
	"github.com/vishvananda/netlink"
)

// Runtime is the container runtime of this machine's first node.
func Runtime(c config.Config, h Host) proc.Program { return runtime(c, h, "containerd") }

func runtime(c config.Config, h Host, name string) proc.Program {
	return proc.Program{
		Name: name,
		Path: h.Containerd,
		Args: RuntimeArgs(c),
		Ready: func(ctx context.Context) error {
			_, err := ctr(ctx, c, h, "version")
			return err
		},
	}
}

// Kubelet is the node agent of this machine's first node.
func Kubelet(c config.Config, program func(name string) string) proc.Program {
	return kubelet(c, c.HostSlot(), program, "kubelet")
}

func kubelet(c config.Config, s config.Slot, program func(name string) string, name string) proc.Program {
	return proc.Program{
		Name:  name,
		Path:  program("kubelet"),
		Args:  KubeletArgs(c, s),
		Ready: func(ctx context.Context) error { return healthz(ctx, c.KubeletHealthPort(s)) },
	}
}

// RuntimeArgs are the container runtime's, on any node.
func RuntimeArgs(c config.Config) []string {
	return []string{"--config=" + containerdConfigPath(c)}
}

// KubeletArgs are the kubelet's, on the node in the slot.
func KubeletArgs(c config.Config, s config.Slot) []string {
	args := []string{
		"--config=" + kubeletConfigPath(c),
		"--kubeconfig=" + c.Kubeconfig("kubelet"),
		"--root-dir=" + c.KubeletRoot(),
		"--cert-dir=" + c.PKI("kubelet"),
		"--hostname-override=" + s.Node,
		"--node-ip=" + s.IP.String(),
	}
	if s.Emulated {
		args = append(args, "--node-labels="+Virtual+"=true")
	}
	return args
}

func healthz(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet healthz: %s", resp.Status)
	}
	return nil
}

// RuntimeVersion is the runtime's name and version, by the word of the node.
func RuntimeVersion(ctx context.Context, c config.Config) (string, error) {
	var n struct {
		Status struct {
			NodeInfo struct{ ContainerRuntimeVersion string }
		}
	}
	err := controlplane.Get(ctx, c, "/api/v1/nodes/"+c.NodeName, &n)
	return n.Status.NodeInfo.ContainerRuntimeVersion, err
}

// AddBridge makes the cluster's interface with the node's and the API server's
// addresses, or completes it. The caller has checked that an interface of
// that name is the cluster's own.
func AddBridge(c config.Config) error {
	link, err := netlink.LinkByName(c.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = c.Bridge
		// A bridge without an address of its own takes over that of its lowest
		// port, so neighbours would lose it whenever a pod comes or goes.
		attrs.HardwareAddr = c.HostSlot().HardwareAddr()
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("bridge %s: add: %w", c.Bridge, err)
		}
		link, err = netlink.LinkByName(c.Bridge)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	for _, p := range []netip.Prefix{
		netip.PrefixFrom(c.NodeIP(), c.PodRange.Bits()),
		netip.PrefixFrom(c.ServiceIP(), 32),
	} {
		if err := addAddress(link, p); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bridge %s: up: %w", c.Bridge, err)
	}
	return nil
}

func addAddress(bridge netlink.Link, p netip.Prefix) error {
	addr, err := netlink.ParseAddr(p.String())
	if err == nil {
		err = netlink.AddrReplace(bridge, addr)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: add address %v: %w", bridge.Attrs().Name, p, err)
	}
	return nil
}

// Load imports image archives into the runtime, where the kubelet finds them.
func Load(ctx context.Context, c config.Config, h Host, archives ...string) error {
	for _, a := range archives {
		if _, err := os.Stat(a); err != nil {
			return err
		}
		if _, err := ctr(ctx, c, h, "--namespace=k8s.io", "images", "import", a); err != nil {
			return fmt.Errorf("load %s: %w", a, err)
		}
	}
	return nil
}

// Images are the names of the images that the runtime has.
func Images(ctx context.Context, c config.Config, h Host) ([]string, error) {
	out, err := ctr(ctx, c, h, "--namespace=k8s.io", "images", "list", "--quiet")
	if err != nil {
		return nil, err
	}
	// The kubelet's side of the runtime adds a second name for each, the digest.
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return strings.HasPrefix(name, "sha256:") }), nil
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
		return "", fmt.Errorf("ctr %s: %w: %s", args[0], err, text)
	}
	return text, nil
}

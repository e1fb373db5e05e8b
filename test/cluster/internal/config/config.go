// Package config holds the settings of one cluster and the places of its files.
//
// Promises:
//   - Everything of a cluster lies below State: TestPathsStayInState.
//   - Validate reports every fault at once: TestValidate.
//   - Two clusters that cannot run beside each other are detected before anything
//     starts: TestClash.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Config is everything a user can choose about a cluster. It is written to the
// state folder by the first up and read back by every later command.
type Config struct {
	// State is the folder that holds certificates, logs, process records and the
	// data of every component. Down removes it.
	State string `json:"state"`

	// Node says whether a kubelet and a container runtime run beside the control
	// plane. It needs root.
	Node bool `json:"node"`

	// NodeName is the name of the node object.
	NodeName string `json:"nodeName"`

	// ServiceRange is where cluster IPs come from. Its first address belongs to
	// the service "kubernetes"; with a node, the API server listens there.
	ServiceRange netip.Prefix `json:"serviceRange"`

	// PodRange is where pod addresses come from. Its first address is the bridge's
	// and the node's own.
	PodRange netip.Prefix `json:"podRange"`

	// Bridge is the name of the network interface made for the cluster.
	Bridge string `json:"bridge"`

	// PortOffset is added to every port except the API server's, so that a second
	// control plane can run beside the first.
	PortOffset int `json:"portOffset"`

	// APIPort is the API server's port. Pods use 443, so with a node it
	// is 443; without one it is 6443, which needs no privilege.
	APIPort int `json:"apiPort"`

	// SystemReservedCPU is what the kubelet keeps back for everything that is not
	// a pod, as a Kubernetes quantity. More makes allocatable, and so the market's
	// supply, smaller; less lets pods starve the control plane beside them.
	SystemReservedCPU string `json:"systemReservedCPU"`

	// HPASync is the interval of the HPA controller. Its other waits follow in
	// proportion, see controlplane.HPAWaits. Shorter lets tests end sooner, but the
	// replicas then move as they would on no cluster of a user.
	HPASync time.Duration `json:"hpaSync"`
}

// KubernetesHPASync is the HPASync of Kubernetes itself.
const KubernetesHPASync = 15 * time.Second

// Default is the cluster we would run ourselves in the given state folder.
func Default(state string, node bool) Config {
	c := Config{
		State:             state,
		Node:              node,
		NodeName:          "mbcas-node-1",
		ServiceRange:      netip.MustParsePrefix("10.96.0.0/16"),
		PodRange:          netip.MustParsePrefix("10.244.0.0/24"),
		Bridge:            "mbcas0",
		APIPort:           443,
		SystemReservedCPU: "400m",
		HPASync:           KubernetesHPASync,
	}
	if !node {
		c.APIPort = 6443
	}
	return c
}

// RootState is the state folder of root's cluster.
const RootState = "/var/lib/mbcas-cluster"

// DefaultState is the state folder without the flag.
func DefaultState() (string, error) {
	if os.Geteuid() == 0 {
		return RootState, nil
	}
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "mbcas-cluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("state folder: %w; choose one with --state", err)
	}
	return filepath.Join(home, ".local", "state", "mbcas-cluster"), nil
}

// socketPathMax is what a Unix socket address holds (sun_path), less its NUL.
const socketPathMax = 107

var (
	// The state folder is written into TOML, YAML and command lines, where these
	// characters need no quoting.
	plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/+@-]+$`)
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	quantity  = regexp.MustCompile(`^[0-9]+m?$`)
	ifaceName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,11}$`)
)

// ValidName says whether a node can have the name.
func ValidName(name string) bool { return dnsLabel.MatchString(name) }

// ValidCPU says whether a quantity of CPU is one that we take.
func ValidCPU(q string) bool { return quantity.MatchString(q) }

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !plainPath.MatchString(c.State) || filepath.Clean(c.State) != c.State {
		bad("--state %q: want a clean absolute path of plain characters", c.State)
	}
	if longest := c.PodResourcesSocket(); len(longest) > socketPathMax {
		bad("--state %q: too long by %d characters for Unix sockets below it", c.State, len(longest)-socketPathMax)
	}
	if !ValidName(c.NodeName) {
		bad("--node-name %q: want a DNS label", c.NodeName)
	}
	if !ifaceName.MatchString(c.Bridge) {
		bad("--bridge %q: want an interface name of at most 12 characters", c.Bridge)
	}
	for _, r := range []struct {
		flag string
		p    netip.Prefix
	}{{"--service-range", c.ServiceRange}, {"--pod-range", c.PodRange}} {
		if !r.p.IsValid() || !r.p.Addr().Is4() || !r.p.Addr().IsPrivate() || r.p.Masked() != r.p || r.p.Bits() > 28 {
			bad("%s %v: want a private IPv4 range of at least 16 addresses, such as 10.96.0.0/16", r.flag, r.p)
		}
	}
	if c.ServiceRange.Overlaps(c.PodRange) {
		bad("--service-range %v and --pod-range %v overlap", c.ServiceRange, c.PodRange)
	}
	if c.APIPort < 1 || c.APIPort > 65535 {
		bad("--api-port %d: want 1 to 65535", c.APIPort)
	}
	if c.PortOffset < 0 || c.PortOffset > 40000 {
		bad("--port-offset %d: want 0 to 40000", c.PortOffset)
	}
	if !ValidCPU(c.SystemReservedCPU) {
		bad("--system-reserved-cpu %q: want millicores such as 400m, or cores", c.SystemReservedCPU)
	}
	if c.HPASync < time.Second || c.HPASync > 5*time.Minute {
		bad("--hpa-sync %v: want 1s to 5m", c.HPASync)
	}
	return errors.Join(errs...)
}

// ServiceIP is the cluster IP of the service "kubernetes".
func (c Config) ServiceIP() netip.Addr { return c.ServiceRange.Addr().Next() }

// NodeIP is the address of the bridge and of this machine's node.
func (c Config) NodeIP() netip.Addr { return c.HostSlot().IP }

// APIAddress is where the API server listens: one address that both pods and
// the host reach, or loopback where there are no pods.
func (c Config) APIAddress() netip.Addr {
	if c.Node {
		return c.ServiceIP()
	}
	return netip.MustParseAddr("127.0.0.1")
}

// APIURL is the API server's URL.
func (c Config) APIURL() string {
	return "https://" + netip.AddrPortFrom(c.APIAddress(), uint16(c.APIPort)).String()
}

// Ports, all on loopback but the kubelet's, which is on its node's address, metrics-server's, which is on
// NodeIP, and the VPA webhook's, which knows no address to be on.

func (c Config) EtcdPort() int              { return 12379 + c.PortOffset }
func (c Config) EtcdPeerPort() int          { return 12380 + c.PortOffset }
func (c Config) ControllerManagerPort() int { return 10257 + c.PortOffset }
func (c Config) SchedulerPort() int         { return 10259 + c.PortOffset }
func (c Config) KubeletPort() int           { return 10250 + c.PortOffset }
func (c Config) MetricsServerPort() int     { return 10251 + c.PortOffset }
func (c Config) VPAWebhookPort() int        { return 10252 + c.PortOffset }
func (c Config) VPAAdmissionPort() int      { return 10253 + c.PortOffset }
func (c Config) VPARecommenderPort() int    { return 10254 + c.PortOffset }
func (c Config) VPAUpdaterPort() int        { return 10255 + c.PortOffset }

// KubeletHealthPort is that of the node in the slot.
func (c Config) KubeletHealthPort(s Slot) int { return 10248 - s.Index + c.PortOffset }

// ImageServerPort is where a virtual node takes images, on its own address.
func (c Config) ImageServerPort() int { return 10270 + c.PortOffset }

// Conflict says what two clusters on one machine would both take, or "".
func (c Config) Conflict(o Config) string {
	if c.Node && o.Node {
		return "the node of this machine"
	}
	if c.APIPort == o.APIPort && c.APIAddress() == o.APIAddress() {
		return fmt.Sprintf("port %d for the API server (--api-port)", c.APIPort)
	}
	others := o.ports()
	for _, p := range c.ports() {
		if slices.Contains(others, p) {
			return fmt.Sprintf("port %d (--port-offset)", p)
		}
	}
	return ""
}

func (c Config) ports() []int {
	all := []int{
		c.EtcdPort(), c.EtcdPeerPort(), c.ControllerManagerPort(), c.SchedulerPort(), c.KubeletPort(),
		c.MetricsServerPort(), c.VPAWebhookPort(), c.VPAAdmissionPort(), c.VPARecommenderPort(), c.VPAUpdaterPort(),
	}
	for i := range Slots {
		all = append(all, c.KubeletHealthPort(Slot{Index: i}))
	}
	return all
}

// Path is a place below the state folder.
func (c Config) Path(parts ...string) string {
	return filepath.Join(append([]string{c.State}, parts...)...)
}

// Marker is the file that makes a folder a cluster's state folder: Config as JSON.
func (c Config) Marker() string { return c.Path("cluster.json") }

// Before is the file that holds what the machine was like before the cluster.
func (c Config) Before() string { return c.Path("before.json") }

// PKI is a file of the certificates' folder.
func (c Config) PKI(name string) string { return c.Path("pki", name) }

// Log is the log file of a component.
func (c Config) Log(name string) string { return c.Path("logs", name+".log") }

// Kubeconfig is the client configuration of one identity; "admin" is the user's.
func (c Config) Kubeconfig(name string) string { return c.Path(name + ".kubeconfig") }

// KubeletRoot is the kubelet's own folder.
func (c Config) KubeletRoot() string { return c.Path("kubelet") }

// PodResourcesSocket is the longest of the sockets below the state folder.
func (c Config) PodResourcesSocket() string {
	return filepath.Join(c.KubeletRoot(), "pod-resources", "kubelet.sock")
}

// ContainerdSocket is where the container runtime listens.
func (c Config) ContainerdSocket() string { return c.Path("containerd", "containerd.sock") }

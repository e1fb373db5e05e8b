// Package config holds the settings of one cluster and of its nodes, and the places of their files.
//
// Promises:
//   - Everything of a cluster lies below State: TestPathsStayInState.
//   - Validate reports every fault at once: TestValidate.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"
)

// Config is everything a user can choose about a cluster. It does not change while the cluster exists.
type Config struct {
	// State is the folder that holds certificates, logs and the data of every component. Down removes it.
	State string `json:"state"`

	// NodeName is the name of the first node.
	NodeName string `json:"nodeName"`

	// ServiceRange is where cluster IPs come from. Its first address belongs to
	// the service "kubernetes"; the API server listens there.
	ServiceRange netip.Prefix `json:"serviceRange"`

	// PodRange is where pod addresses come from. Its first address is the bridge's
	// and the first node's own.
	PodRange netip.Prefix `json:"podRange"`

	// SystemReservedCPU is what the kubelet keeps back for everything that is not
	// a pod, as a Kubernetes quantity. More makes allocatable, and so the market's
	// supply, smaller; less lets pods starve the control plane beside them.
	SystemReservedCPU string `json:"systemReservedCPU"`

	// HPASync is the interval of the HPA controller. Its other waits follow in
	// proportion, see controlplane.HPAWaits. Shorter lets tests end sooner, but the
	// replicas then move as they would on no cluster of a user.
	HPASync time.Duration `json:"hpaSync"`
}

// DefaultState is the state folder unless another is chosen, and that of a virtual node on its own disk.
const DefaultState = "/var/lib/mbcas-cluster"

// Default is the cluster that runs in the given state folder unless something is chosen.
func Default(state string) Config {
	return Config{
		State:             state,
		NodeName:          "mbcas-node-1",
		ServiceRange:      netip.MustParsePrefix("10.96.0.0/16"),
		PodRange:          netip.MustParsePrefix("10.244.0.0/24"),
		SystemReservedCPU: "400m",
		HPASync:           15 * time.Second, // as Kubernetes itself
	}
}

// socketPathMax is what a Unix socket address holds (sun_path), less its NUL.
const socketPathMax = 107

var (
	// The state folder is written into TOML, YAML and command lines, where these
	// characters need no quoting.
	plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/+@-]+$`)
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	quantity  = regexp.MustCompile(`^[0-9]+m?$`)
)

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !plainPath.MatchString(c.State) || filepath.Clean(c.State) != c.State {
		bad("--state %q: want a clean absolute path of plain characters", c.State)
	}
	if longest := filepath.Join(c.KubeletRoot(), "pod-resources", "kubelet.sock"); len(longest) > socketPathMax {
		bad("--state %q: too long by %d characters for Unix sockets below it", c.State, len(longest)-socketPathMax)
	}
	if !dnsLabel.MatchString(c.NodeName) {
		bad("node name %q: want a DNS label", c.NodeName)
	}
	for flag, r := range map[string]netip.Prefix{"service": c.ServiceRange, "pod": c.PodRange} {
		if !r.IsValid() || !r.Addr().Is4() || !r.Addr().IsPrivate() || r.Masked() != r || r.Bits() > 28 {
			bad("--%s-range %v: want a private IPv4 range of at least 16 addresses, such as 10.96.0.0/16", flag, r)
		}
	}
	if c.ServiceRange.Overlaps(c.PodRange) {
		bad("--service-range %v and --pod-range %v overlap", c.ServiceRange, c.PodRange)
	}
	if !quantity.MatchString(c.SystemReservedCPU) {
		bad("--system-reserved-cpu %q: want millicores such as 400m, or cores", c.SystemReservedCPU)
	}
	if c.HPASync < time.Second || c.HPASync > 5*time.Minute {
		bad("--hpa-sync %v: want 1s to 5m", c.HPASync)
	}
	return errors.Join(errs...)
}

// APIAddress is the cluster IP of the service "kubernetes", where the API server listens: pods and
// this machine both reach it.
func (c Config) APIAddress() netip.Addr { return c.ServiceRange.Addr().Next() }

// APIURL is the API server's URL.
func (c Config) APIURL() string { return "https://" + c.APIAddress().String() }

// NodeIP is the address of the bridge and of the first node.
func (c Config) NodeIP() netip.Addr { return c.Slot(0).IP }

// Ports, all on loopback but the kubelet's, which is on its node's address, metrics-server's, which is on
// NodeIP, a virtual node's, which takes images there, and the VPA webhook's, which knows no address to be on.
const (
	EtcdPort              = 12379
	EtcdPeerPort          = 12380
	kubeletHealthPort     = 10248 // less the index of the node
	KubeletPort           = 10250
	MetricsServerPort     = 10251
	VPAWebhookPort        = 10252
	VPAAdmissionPort      = 10253
	VPARecommenderPort    = 10254
	VPAUpdaterPort        = 10255
	VPAShortPort          = 10256
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
	ImageServerPort       = 10270
)

// Path is a place below the state folder.
func (c Config) Path(parts ...string) string {
	return filepath.Join(append([]string{c.State}, parts...)...)
}

// PKI is a file of the certificates' folder.
func (c Config) PKI(name string) string { return c.Path("pki", name) }

// Log is the log file of a component.
func (c Config) Log(name string) string { return c.Path("logs", name+".log") }

// Kubeconfig is the client configuration of one identity; "admin" is the user's.
func (c Config) Kubeconfig(name string) string { return c.Path(name + ".kubeconfig") }

// KubeletRoot is the kubelet's own folder.
func (c Config) KubeletRoot() string { return c.Path("kubelet") }

// ContainerdSocket is where the container runtime listens.
func (c Config) ContainerdSocket() string { return c.Path("containerd", "containerd.sock") }

// PauseArchive is the image of every pod's sandbox.
func (c Config) PauseArchive() string { return c.Path("pause.tar") }

package node

import (
	"encoding/json"
	"fmt"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
)

// PauseImage is the sandbox of every pod; tests use it as an idle container too.
const PauseImage = "mbcas.io/pause:dev"

// Virtual is the label and the taint of emulated nodes.
const Virtual = "mbcas.io/virtual"

// Files are what containerd, the CNI plugins and the kubelet of a node read besides certificates, by
// path. c is the cluster as the node sees it.
func Files(c config.Config, n config.Node, h Host) (map[string][]byte, error) {
	kubelet, err := kubeletConfig(c, n, h)
	if err != nil {
		return nil, err
	}
	cni, err := cniConfig(c, n)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		containerdConfigPath(c):                 []byte(containerdConfig(c, h)),
		c.Path("cni", "conf", "mbcas.conflist"): cni,
		kubeletConfigPath(c):                    kubelet,
		c.Kubeconfig("kubelet"):                 controlplane.Kubeconfig(c, "kubelet"),
	}, nil
}

func containerdConfigPath(c config.Config) string { return c.Path("containerd", "config.toml") }
func kubeletConfigPath(c config.Config) string    { return c.Path("kubelet.json") }

// containerdConfig is in version 2 of the format, which 1.6 needs and 2.x still
// reads. Network namespaces are mounted below the state folder, so unmounting
// that folder frees them.
func containerdConfig(c config.Config, h Host) string {
	snapshotter := "overlayfs"
	if !h.Overlay {
		snapshotter = "native" // copies whole layers: slow, but works on any filesystem
	}
	dir := c.Path("containerd")
	return fmt.Sprintf(`version = 2
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "%[2]s"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%[3]s"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "%[4]s"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
Root = "%[1]s/runc"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[5]s"
conf_dir = "%[6]s"
`, dir, c.ContainerdSocket(), PauseImage, snapshotter, h.CNI, c.Path("cni", "conf"))
}

// object is a piece of JSON configuration.
type object map[string]any

// cniConfig puts pods on the cluster's bridge. The bridge has its addresses
// before the first pod, so the plugin need not turn on IP forwarding for the
// whole machine (isGateway would): pods reach each other, the API server and the
// kubelet, and nothing beyond this machine.
func cniConfig(c config.Config, n config.Node) ([]byte, error) {
	s := c.Slot(n.Index)
	return json.MarshalIndent(object{
		"cniVersion": "0.4.0",
		"name":       "mbcas",
		"plugins": []object{{
			"type":      "bridge",
			"bridge":    config.Bridge,
			"isGateway": false,
			"ipMasq":    false,
			"ipam": object{
				"type": "host-local",
				"ranges": [][]object{{{
					"subnet":     c.PodRange.String(),
					"rangeStart": s.First.String(),
					"rangeEnd":   s.Last.String(),
					"gateway":    c.NodeIP().String(), // of every node: it leads to the API server
				}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
				"dataDir": c.Path("cni", "networks"),
			},
		}},
	}, "", "  ")
}

// kubeletConfig is a KubeletConfiguration; JSON is YAML too.
func kubeletConfig(c config.Config, n config.Node, h Host) ([]byte, error) {
	s := c.Slot(n.Index)
	k := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"address":            s.IP.String(),
		"port":               config.KubeletPort,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        n.KubeletHealthPort(),
		"readOnlyPort":       0,
		"tlsCertFile":        c.PKI("kubelet-server.crt"),
		"tlsPrivateKeyFile":  c.PKI("kubelet-server.key"),
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": c.PKI("ca.crt")},
		},
		"authorization": object{"mode": "Webhook"},

		"containerRuntimeEndpoint": "unix://" + c.ContainerdSocket(),
		"podLogsDir":               c.Path("pod-logs"),
		"volumePluginDir":          c.Path("volume-plugins"),
		"cgroupDriver":             "cgroupfs",
		"maxPods":                  s.MaxPods(),
		"failSwapOn":               false,
		"makeIPTablesUtilChains":   false, // no kube-proxy, so no rules to leave behind

		// Nothing answers there: lookups fail at once. Without it the kubelet warns at
		// every pod and gives it the host's resolvers, which pods can't reach.
		"clusterDNS":    []string{c.NodeIP().String()},
		"clusterDomain": "cluster.local",

		"systemReserved": object{"cpu": n.SystemReservedCPU, "memory": "1Gi"},
		"evictionHard": object{
			"memory.available":  "200Mi",
			"nodefs.available":  "2%",
			"imagefs.available": "2%",
		},
		// Images come from archives and can't be pulled again: never collect them.
		"imageGCHighThresholdPercent": 100,
	}
	if cgroup := n.Cgroup(); cgroup != "" {
		k["cgroupRoot"] = "/" + cgroup
	}
	if n.VM != nil {
		k["registerWithTaints"] = []object{{"key": Virtual, "value": "true", "effect": "NoSchedule"}}
	}
	if h.Cgroups != V2 {
		k["failCgroupV1"] = false
	}
	return json.MarshalIndent(k, "", "  ")
}

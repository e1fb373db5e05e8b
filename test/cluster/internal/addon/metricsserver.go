package addon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// metricsServer gives the API server metrics.k8s.io, which `kubectl top`, the HPA
// controller and the VPA's recommender use.
var metricsServer = Addon{
	Name: "metrics-server",
	Recipe: build.Recipe{
		Prefix:   "metrics-server-",
		Modules:  []string{"sigs.k8s.io/metrics-server"},
		Programs: []build.Program{{Name: "metrics-server", Package: "sigs.k8s.io/metrics-server/cmd/metrics-server"}},
		Files:    []string{"manifests/base/rbac.yaml"},
		// The place that its own Makefile stamps.
		Stamps: func(version string) []string { return []string{"k8s.io/client-go/pkg/version.gitVersion=" + version} },
		Lasts:  "3 minutes",
	},
	Interval: 15 * time.Second, // of its manifests
	Least:    10 * time.Second, // else it refuses to start
	accounts: []string{"metrics-server"},
	server:   []string{metricsService + "." + namespace + ".svc"},
	objects:  metricsObjects,
	programs: metricsPrograms,
}

// metricsService is the name of its Service, by which the API server knows it.
const metricsService = "metrics-server"

const metricsPath = "/apis/metrics.k8s.io/v1beta1"

func metricsPrograms(r run) []proc.Program {
	kubeconfig := r.kubeconfig("metrics-server")
	return []proc.Program{{
		Name: "metrics-server",
		Path: r.program("metrics-server"),
		Args: []string{
			"--bind-address=" + r.NodeIP().String(),
			"--secure-port=" + strconv.Itoa(config.MetricsServerPort),
			"--tls-cert-file=" + r.certificate(serverName+".crt"),
			"--tls-private-key-file=" + r.certificate(serverName+".key"),
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--kubelet-certificate-authority=" + r.Config.PKI("ca.crt"),
			"--kubelet-preferred-address-types=InternalIP",
			"--kubelet-use-node-status-port",
			// It refuses a time-out of nine tenths of the interval or more.
			"--kubelet-request-timeout=" + min(10*time.Second, r.interval*2/3).String(),
			"--metric-resolution=" + r.interval.String(),
		},
		// The node has metrics after two scrapes: usage is a difference.
		Ready: func(ctx context.Context) error {
			var got struct{ Usage map[string]string }
			return controlplane.Get(ctx, r.Config, metricsPath+"/nodes/"+r.NodeName, &got)
		},
	}}
}

type object map[string]any

// metricsObjects tell the API server where metrics-server is. It runs in no pod, so
// the Service selects none and has its endpoint by hand: the node's own address, for
// loopback is no valid one. The port's name joins Service and EndpointSlice.
func metricsObjects(c config.Config) ([]byte, error) {
	ca, err := os.ReadFile(c.PKI("ca.crt"))
	if err != nil {
		return nil, err
	}
	meta := object{"name": metricsService, "namespace": namespace}
	named := object{"kubernetes.io/service-name": metricsService}
	endpoint := object{"addresses": []string{c.NodeIP().String()}, "conditions": object{"ready": true}}
	raw, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "List",
		"items": []object{
			{
				"apiVersion": "v1", "kind": "Service", "metadata": meta,
				"spec": object{"ports": []object{{"name": "https", "port": 443, "protocol": "TCP"}}},
			},
			{
				"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
				"metadata":    object{"name": metricsService, "namespace": namespace, "labels": named},
				"addressType": "IPv4",
				"ports":       []object{{"name": "https", "port": config.MetricsServerPort, "protocol": "TCP"}},
				"endpoints":   []object{endpoint},
			},
			{
				"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
				"metadata": object{"name": "v1beta1.metrics.k8s.io"},
				"spec": object{
					"group": "metrics.k8s.io", "version": "v1beta1", "service": meta,
					"groupPriorityMinimum": 100, "versionPriority": 100,
					"caBundle": ca, // base64, as JSON has bytes
				},
			},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("objects of metrics-server: %w", err)
	}
	return raw, nil
}

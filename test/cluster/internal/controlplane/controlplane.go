// Package controlplane is the control plane: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler.
//
// Promises:
//   - Every address is one of this machine, none is a wildcard: TestAddresses.
//   - Aggregated API servers are trusted through the front proxy from the start,
//     so metrics can be added to a running cluster: TestAggregation.
//   - The HPA controller waits as Kubernetes' own does unless set otherwise:
//     TestHPAWaits.
package controlplane

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// seldomCollects has the API server collect its garbage at 1 GB instead of 220 MB. One collection takes half a
// second of a CPU, about once a minute. On the one machine of this cluster it would take that from the pods;
// elsewhere the API server has a machine of its own.
const seldomCollects = "GOGC=800"

// Programs are the control plane's processes in the order of their start.
// program gives the path of a built program.
func Programs(c config.Config, program func(name string) string) []proc.Program {
	local := func(port int, path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", port, path) }
	programs := []proc.Program{
		{Name: "etcd", Args: etcdArgs(c), Ready: probe(c, etcdClient, local(config.EtcdPort, "/health"))},
		{
			Name: "kube-apiserver", Args: apiServerArgs(c), Env: []string{seldomCollects},
			Ready: Probe(c, c.APIURL()+"/readyz"),
		},
		{
			Name: "kube-controller-manager", Args: controllerManagerArgs(c),
			Ready: Probe(c, local(config.ControllerManagerPort, "/healthz")),
		},
		{
			Name: "kube-scheduler", Args: clientArgs(c, "scheduler", config.SchedulerPort),
			Ready: Probe(c, local(config.SchedulerPort, "/healthz")),
		},
	}
	for i := range programs {
		programs[i].Path = program(programs[i].Name)
	}
	return programs
}

func etcdArgs(c config.Config) []string {
	client := fmt.Sprintf("https://127.0.0.1:%d", config.EtcdPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", config.EtcdPeerPort)
	return []string{
		"--name=mbcas",
		"--data-dir=" + c.Path("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=mbcas=" + peer,
		"--cert-file=" + c.PKI("etcd.crt"),
		"--key-file=" + c.PKI("etcd.key"),
		"--trusted-ca-file=" + c.PKI("etcd-ca.crt"),
		"--client-cert-auth",
		"--peer-cert-file=" + c.PKI("etcd.crt"),
		"--peer-key-file=" + c.PKI("etcd.key"),
		"--peer-trusted-ca-file=" + c.PKI("etcd-ca.crt"),
		"--peer-client-cert-auth",
		"--unsafe-no-fsync", // a cluster for tests may lose its data with the machine
	}
}

func apiServerArgs(c config.Config) []string {
	return []string{
		"--bind-address=" + c.APIAddress().String(),
		"--advertise-address=" + c.APIAddress().String(),
		"--secure-port=443", // the port that pods use
		"--tls-cert-file=" + c.PKI("apiserver.crt"),
		"--tls-private-key-file=" + c.PKI("apiserver.key"),

		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", config.EtcdPort),
		"--etcd-cafile=" + c.PKI("etcd-ca.crt"),
		"--etcd-certfile=" + c.PKI("etcd-client.crt"),
		"--etcd-keyfile=" + c.PKI("etcd-client.key"),

		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--allow-privileged=true",

		"--service-cluster-ip-range=" + c.ServiceRange.String(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.PKI("sa.pub"),
		"--service-account-signing-key-file=" + c.PKI("sa.key"),

		"--kubelet-certificate-authority=" + c.PKI("ca.crt"),
		"--kubelet-client-certificate=" + c.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.PKI("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",

		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.PKI("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.PKI("front-proxy-client.key"),
		"--enable-aggregator-routing=true", // to endpoints: nothing here carries cluster IPs

		"--audit-policy-file=" + c.Path("audit-policy.yaml"),
		"--audit-log-path=" + c.Log("audit"),
		"--audit-log-maxsize=100", // MB
		"--audit-log-maxbackup=2",
	}
}

func controllerManagerArgs(c config.Config) []string {
	return slices.Concat(clientArgs(c, "controller-manager", config.ControllerManagerPort), []string{
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.PKI("sa.key"),
		"--root-ca-file=" + c.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + c.PKI("ca.crt"),
		"--cluster-signing-key-file=" + c.PKI("ca.key"),
		"--service-cluster-ip-range=" + c.ServiceRange.String(),
		"--flex-volume-plugin-dir=" + c.Path("volume-plugins"),
		"--kube-api-qps=100", // with the default of 20 the start takes seconds longer
		"--kube-api-burst=200",
	}, HPAWaits(c.HPASync))
}

// HPAWaits are the controller manager's flags for an HPA controller that syncs
// every sync. Kubernetes' own waits are 15 s and, in that unit, 20, 20 and 2; they
// keep their proportion, so a faster HPA behaves as the real one does, sooner.
func HPAWaits(sync time.Duration) []string {
	return []string{
		"--horizontal-pod-autoscaler-sync-period=" + sync.String(),
		"--horizontal-pod-autoscaler-downscale-stabilization=" + (20 * sync).String(),
		"--horizontal-pod-autoscaler-cpu-initialization-period=" + (20 * sync).String(),
		"--horizontal-pod-autoscaler-initial-readiness-delay=" + (2 * sync).String(),
	}
}

// clientArgs are those of a client of the API server that serves its health.
func clientArgs(c config.Config, id string, port int) []string {
	kubeconfig := c.Kubeconfig(id)
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.PKI(id+".crt"),
		"--tls-private-key-file=" + c.PKI(id+".key"),
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
	}
}

package e2e

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/process"
)

const (
	// adapterTool has the folder of prometheus-adapter and of its manifests.
	adapterTool = "MBCAS_PROMETHEUS_ADAPTER"
	// adapterNamespace is where these have its account.
	adapterNamespace = "monitoring"
)

// exported are series of the test itself, as the service that it sends requests to would have them.
type exported struct {
	registry *prometheus.Registry
	latency  *prometheus.HistogramVec // by namespace and service
	waiting  *prometheus.GaugeVec     // requests, by namespace and pod
}

func newExported() exported {
	e := exported{
		registry: prometheus.NewRegistry(),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_duration_seconds", Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2},
		}, []string{"namespace", "service"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "requests_waiting"}, []string{"namespace", "pod"}),
	}
	e.registry.MustRegister(e.latency, e.waiting)
	return e
}

func (e exported) handler() http.Handler {
	return promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{})
}

// of counts the requests to a service.
func (e exported) of(namespace, service string) func(pod string) (ended func()) {
	return func(pod string) func() {
		begin, waiting := time.Now(), e.waiting.WithLabelValues(namespace, pod)
		waiting.Inc()
		return func() {
			waiting.Dec()
			e.latency.WithLabelValues(namespace, service).Observe(time.Since(begin).Seconds())
		}
	}
}

// aRealAdapterServes: prometheus-adapter, with the rules of the documentation, serves what Prometheus has to the HPA
// controller and to MBCAS.
func (m *monitoring) aRealAdapterServes(t *testing.T) {
	m.namespace(t, adapterNamespace, "off")
	ip, port := m.nodeIP(t), strings.TrimPrefix(process.FreeAddress(t), "127.0.0.1:")
	defer apply(t, adapterRights(t))()
	manifests := fmt.Sprintf(registration, port, ip)
	for _, group := range []string{"external.metrics.k8s.io", "custom.metrics.k8s.io"} {
		manifests += fmt.Sprintf(metricsAPI, group)
	}
	defer apply(t, manifests)() // gone before what answers is
	m.runAdapter(t, ip, port)
	kubectl(t, "wait", "--for=condition=Available", "--timeout=60s",
		"apiservice/v1beta1.external.metrics.k8s.io", "apiservice/v1beta1.custom.metrics.k8s.io")
	t.Run("AnHPAScalesOutAndInAgain", m.anHPAScalesOutAndInAgain)
	t.Run("SignalsFollowTheirMetrics", m.signalsFollowTheirMetrics)
}

// registration tells the API server where the adapter is: it runs in no pod, so its Service has its endpoint by hand.
const registration = `
apiVersion: v1
kind: Service
metadata: {name: prometheus-adapter, namespace: monitoring}
spec: {ports: [{name: https, port: 443, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: prometheus-adapter, namespace: monitoring, labels: {kubernetes.io/service-name: prometheus-adapter}}
addressType: IPv4
ports: [{name: https, port: %s, protocol: TCP}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`

// metricsAPI is one of the two that the adapter serves. As in its own manifests, its certificate is not verified.
const metricsAPI = `
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.%[1]s}
spec:
  group: %[1]s
  version: v1beta1
  service: {name: prometheus-adapter, namespace: monitoring}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`

// nodeIP is the address of the node, which is this machine: the API server takes no loopback address for an endpoint.
func (m *monitoring) nodeIP(t *testing.T) string {
	t.Helper()
	var node corev1.Node
	if err := m.Get(t.Context(), client.ObjectKey{Name: m.node}, &node); err != nil {
		t.Fatal(err)
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && net.ParseIP(a.Address) != nil {
			return a.Address
		}
	}
	t.Fatalf("node %s has no address: %v", m.node, node.Status.Addresses)
	return ""
}

// adapterRights are the adapter's account and rights, of its own manifests.
func adapterRights(t *testing.T) string {
	t.Helper()
	var all []string
	for _, name := range []string{"service-account", "cluster-role", "cluster-role-binding",
		"cluster-role-binding-delegator", "role-binding-auth-reader"} {
		text, err := os.ReadFile(filepath.Join(os.Getenv(adapterTool), name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n---\n")
}

// runAdapter runs the adapter beside the cluster until the test ends, as its own account.
func (m *monitoring) runAdapter(t *testing.T, ip, port string) {
	t.Helper()
	dir := t.TempDir()
	access, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	token := kubectl(t, "-n", adapterNamespace, "create", "token", "prometheus-adapter", "--duration=2h")
	for name := range access.AuthInfos {
		access.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	}
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, adapterRules(t), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Start(t, filepath.Join(os.Getenv(adapterTool), "prometheus-adapter"),
		"--config="+config, "--prometheus-url="+m.prometheus,
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address="+ip, "--secure-port="+port, "--cert-dir="+dir,
		"--metrics-relist-interval=5s", "--metrics-max-age=1m")
}

// adapterRules are the rules of the documentation, as one configuration. A rate is over a shorter time than there.
func adapterRules(t *testing.T) []byte {
	t.Helper()
	type rules struct {
		External []any `json:"externalRules"`
		Custom   []any `json:"rules"`
	}
	var all rules
	for _, page := range []string{"docs/autoscalers.md", "docs/demand-signals.md"} {
		var some rules
		if err := yaml.UnmarshalStrict([]byte(yamlOf(t, page, "externalRules:")), &some); err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		all.External, all.Custom = append(all.External, some.External...), append(all.Custom, some.Custom...)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(text), "[2m]", "[20s]"))
}

// yamlOf is the block of YAML in a page that begins so.
func yamlOf(t *testing.T, page, begins string) string {
	t.Helper()
	for _, block := range strings.Split(readFile(t, page), "```yaml\n")[1:] {
		if text, _, _ := strings.Cut(block, "```"); strings.HasPrefix(text, begins) {
			return text
		}
	}
	t.Fatalf("%s has no YAML that begins with %q", page, begins)
	return ""
}

// serves waits until a metrics API has a value of a metric.
func (m *monitoring) serves(t *testing.T, path string) {
	t.Helper()
	wait(t, time.Minute, path+" has a value", func() (bool, string) {
		text, err := exec.CommandContext(t.Context(), "kubectl", "get", "--raw", path).CombinedOutput()
		return err == nil && strings.Contains(string(text), `"value"`), cmp.Or(string(text), fmt.Sprint(err))
	})
}

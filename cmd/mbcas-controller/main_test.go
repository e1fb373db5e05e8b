package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// libraries is what the libraries have logged so far.
var libraries safeBuffer

func TestMain(m *testing.M) {
	logLibraries(&libraries, slog.LevelInfo)
	os.Exit(apiserver.Main(m))
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown flag":        {"--nonsense"},
		"an argument":         {"serve"},
		"bad mode":            {"--mode=sometimes"},
		"bad settings":        {"--resizes-per-second=0"},
		"too few requests":    {"--qps=100"},
		"too soon frozen":     {"--freeze-after=44s"},
		"more than the most":  {"--resizes-per-second=200"},
		"restore without all": {"restore"},
		"restore by none":     {"restore", "--all", "--workers=0"},
		"restore at no rate":  {"restore", "--all", "--rate=0"},
	} {
		var bad program.UsageError
		if err := run(t.Context(), args, new(slog.LevelVar), io.Discard, io.Discard); !errors.As(err, &bad) {
			t.Errorf("%s: error %v, want a usage error", name, err)
		}
	}
}

// TestTwoOnOneHost: two replicas on one host, as two pods in its network are, have names of their own, by
// which people find the host.
func TestTwoOnOneHost(t *testing.T) {
	host, err := os.Hostname()
	must.Succeed(t, err)
	names := map[string]bool{}
	for range 2 {
		r, err := newReplica(&rest.Config{}, nil, "mbcas-system", slog.New(slog.DiscardHandler))
		must.Succeed(t, err)
		if names[r.Name] = true; !strings.HasPrefix(r.Name, kube.ReplicaLease(host)) {
			t.Errorf("the Lease %s does not say its host, %s", r.Name, host)
		}
	}
	if len(names) != 2 {
		t.Errorf("both replicas are %v", names)
	}
}

// TestMemoryLimit: the heap stays below the container's limit, unless GOMEMLIMIT says how.
func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		container, goes string
		want            int64
	}{{"536870912", "", 483183819}, {"536870912", "400MiB", -1}, {"", "", -1}, {"0", "", -1}, {"512Mi", "", -1}} {
		env := map[string]string{memoryLimitKey: c.container, "GOMEMLIMIT": c.goes}
		if got := memoryLimit(func(key string) string { return env[key] }); got/10 != c.want/10 {
			t.Errorf("container %q, GOMEMLIMIT %q: %d, want %d", c.container, c.goes, got, c.want)
		}
	}
}

// TestQPS: the client may send what the budget of resizes needs, and says so in the settings.
func TestQPS(t *testing.T) {
	for args, want := range map[string]float64{"": 650, "--max-resizes-per-second=20": 170, "--qps=1000": 1000} {
		s, err := serveFlags(strings.Fields(args), io.Discard)
		if err != nil || s.qps != want || s.published["qps"] != fmt.Sprint(want) {
			t.Errorf("%q: %v requests per second, published %q, %v; want %v", args, s.qps, s.published["qps"], err, want)
		}
	}
	_, err := serveFlags([]string{"--qps=100"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--max-resizes-per-second") {
		t.Errorf("error %v, want one that names both flags", err)
	}
}

func TestVersion(t *testing.T) {
	linked := version
	t.Cleanup(func() { version = linked })
	for set, want := range map[string]string{"v1.2.3": "mbcas-controller v1.2.3\n", "": "mbcas-controller "} {
		version = set // what -ldflags "-X main.version=…" does; the linker sets nothing but a string variable of this name
		for _, arg := range []string{"version", "--version", "-version"} {
			var out bytes.Buffer
			if err := run(t.Context(), []string{arg}, new(slog.LevelVar), &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), want) {
				t.Errorf("%s, linked as %q: %q, %v; want %q", arg, set, out.String(), err, want)
			}
		}
	}
}

// TestServe runs the command as its Deployment does, under its own role and fenced by its policies, through one life: become
// the leader, get ready, raise a pod, say so in every way, restore everything, and stop when told to.
func TestServe(t *testing.T) {
	s := apiserver.Start(t)
	c, ctx := s.Client, t.Context()
	ns := &corev1.Namespace{}
	ns.Name = kube.SystemNamespace
	must.Succeed(t, c.Create(ctx, ns))
	s.Install(t, "", "rbac/controller_role.yaml", "rbac/bindings.yaml",
		"policy/controller.yaml", "policy/controller_records.yaml", "policy/leases.yaml")
	kubeconfig := s.Kubeconfig(t, "system:serviceaccount:mbcas-system:mbcas-controller", "system:serviceaccounts")

	node := s.Kubelet(t, "serve")
	now, lease := metav1.NowMicro(), &coordinationv1.Lease{} // its agent is alive, and renews it once
	lease.Namespace, lease.Name, lease.Spec.RenewTime = kube.SystemNamespace, kube.AgentLease(node.Node), &now
	must.Succeed(t, c.Create(ctx, lease))
	pod := node.Run(t, apiserver.Pod(s.Namespace(t), "web", apiserver.Container("app", "100m", "500m")))
	mode := func(value string) {
		shop := &corev1.Namespace{}
		shop.Name = pod.Namespace
		patch := `{"metadata":{"labels":{"mbcas.io/mode":"` + value + `"}}}`
		must.Succeed(t, c.Patch(ctx, shop, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	mode("enforce")
	signal := demandSignal(t, s, node, pod.Namespace)

	out, logged := &safeBuffer{}, len(libraries.String())
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- run(serving, []string{
			"--mode=enforce", "--kubeconfig=" + kubeconfig, "--health-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0",
			"--start-grace=0s", "--freeze-after=1h", "--restore-after=2h", "--signal-interval=1s",
		}, new(slog.LevelVar), out, out)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	health, metrics := served(t, logged, "health probe"), served(t, logged, "metrics")
	wait(t, "ready", func() bool {
		ready, _ := get("http://" + health + "/readyz")
		healthy, _ := get("http://" + health + "/healthz")
		return ready == http.StatusOK && healthy == http.StatusOK
	})

	pa := &v1alpha1.PodAllocation{}
	wait(t, "declared limits recorded", func() bool {
		return c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, pa) == nil && len(pa.Status.DeclaredLimits) == 1
	})
	wait(t, "settings published", func() bool {
		cm := &corev1.ConfigMap{}
		if c.Get(ctx, client.ObjectKey{Namespace: kube.SystemNamespace, Name: kube.SettingsName}, cm) != nil {
			return false
		}
		settings, err := kube.ReadSettings(cm)
		must.Succeed(t, err)
		return settings.Mode() == kube.ModeEnforce && settings["start-grace"] == "0s" && settings.Version() != ""
	})
	before, total := pa.DeepCopy(), cpu.Milli(1500)
	pa.Spec.DesiredCPULimit, pa.Spec.Containers = &total, []v1alpha1.ContainerLimit{{Name: "app", CPULimit: total}}
	pa.Spec.Decision = &v1alpha1.Decision{Budget: 100, Price: 0.000, Floor: 110, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NowMicro()}
	must.Succeed(t, c.Patch(ctx, pa, client.MergeFrom(before)))
	wait(t, "raised", func() bool {
		return c.Get(ctx, client.ObjectKeyFromObject(pa), pa) == nil && pa.Status.Phase == v1alpha1.PhaseApplied
	})
	event := func(reason, kind string, uid types.UID, note string) {
		t.Helper()
		wait(t, "an event "+reason, func() bool {
			var events eventsv1.EventList
			must.Succeed(t, c.List(ctx, &events, client.InNamespace(pod.Namespace)))
			return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.UID == uid && strings.Contains(e.Note, note)
			})
		})
	}
	event("CPUResized", "Pod", pod.UID, "app=1500m")
	wait(t, "the metric read", func() bool {
		must.Succeed(t, c.Get(ctx, client.ObjectKeyFromObject(signal), signal))
		return meta.IsStatusConditionTrue(signal.Status.Conditions, v1alpha1.SignalAvailable)
	})
	event(v1alpha1.ReasonMetricRead, "DemandSignal", signal.UID, "")
	mayReadMetrics(t, kubeconfig, pod.Namespace)
	audited(t, out.String(), pod)
	if _, body := get("http://" + metrics + "/metrics"); !strings.Contains(body, `mbcas_controller_resizes_total{outcome="Accepted",purpose="allocate"} 1`) ||
		!strings.Contains(body, `mbcas_controller_allocations{phase="Applied",reason="Settled"} 1`) {
		t.Errorf("metrics lack the resize or the allocation:\n%s", body)
	}

	mode("recommend") // where it may still take back what it did
	var restored bytes.Buffer
	if err := run(ctx, []string{"restore", "--all", "--timeout=1m", "--kubeconfig=" + kubeconfig}, new(slog.LevelVar), &restored, io.Discard); err != nil {
		t.Fatalf("restore: %v\n%s", err, restored.String())
	}
	if line := restored.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `"audit":true`) || !strings.Contains(line, `"purpose":"restore"`) {
		t.Errorf("restore wrote %q, want one audit line", line)
	}
	got := &corev1.Pod{}
	must.Succeed(t, c.Get(ctx, client.ObjectKeyFromObject(pod), got))
	if limits := kube.Limits(got); kube.Total(limits) != 500 {
		t.Errorf("limits %v after restore, want app=500m", limits)
	}
	if logs := out.String() + libraries.String(); strings.Contains(logs, "is forbidden") {
		t.Errorf("its role lacks something:\n%s", logs)
	}
}

// demandSignal makes a DemandSignal, its target's pod, and its metric.
func demandSignal(t *testing.T, s *apiserver.Server, node *apiserver.Kubelet, namespace string) *v1alpha1.DemandSignal {
	t.Helper()
	yes, ctx := true, t.Context()
	crds := []*apiextensionsv1.CustomResourceDefinition{apiserver.ExternalMetric("latencies")}
	if _, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{CRDs: crds, MaxTime: time.Minute}); err != nil {
		t.Fatal(err)
	}
	value := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValue", "metadata": map[string]any{"namespace": namespace, "name": "shop"},
		"metricName": "latencies", "value": "150m", "timestamp": time.Now().UTC().Format(time.RFC3339),
	}}
	must.Succeed(t, s.Client.Create(ctx, value))
	pod := apiserver.Pod(namespace, "shop", apiserver.Container("app", "100m", "500m"))
	pod.Labels = map[string]string{"pod-template-hash": "abc"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "shop-abc", UID: "rs-shop", Controller: &yes}}
	node.Run(t, pod)
	aim := resource.MustParse("200m")
	d := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	d.Spec.TargetRef = v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"}
	d.Spec.Metric = v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.MetricTarget{
		Metric: v1alpha1.MetricID{Name: "latencies"}, Target: v1alpha1.SignalObjective{Type: "Value", Value: &aim},
	}}
	must.Succeed(t, s.Client.Create(ctx, d))
	return d
}

// mayReadMetrics holds the role to what the clients of the metrics APIs ask for: a metric that is not there is not found, and
// not forbidden, and a write of one is.
func mayReadMetrics(t *testing.T, kubeconfig, namespace string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.Succeed(t, err)
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	must.Succeed(t, err)
	c := disco.RESTClient()
	for _, path := range []string{
		"custom.metrics.k8s.io/v1beta2/namespaces/" + namespace + "/pods/*/queue", "custom.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/ingresses.networking.k8s.io/web/p99",
		"external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/queue",
	} {
		if err := c.Get().AbsPath("/apis/" + path).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("read of %s: %v, want not found", path, err)
		}
		if err := c.Post().AbsPath("/apis/" + path).Body([]byte("{}")).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("write of %s: %v, want forbidden", path, err)
		}
	}
}

// audited looks for the one line about the one resize.
func audited(t *testing.T, log string, pod *corev1.Pod) {
	t.Helper()
	n := 0
	for line := range strings.Lines(log) {
		var a struct {
			Audit                    bool
			Pod, UID, Node, Outcome  string
			Price, Reason, Namespace string
			From, To                 map[string]cpu.Milli
			Latency                  float64
		}
		if json.Unmarshal([]byte(line), &a) != nil || !a.Audit {
			continue
		}
		n++
		if a.Pod != pod.Name || a.Namespace != pod.Namespace || a.UID != string(pod.UID) || a.Node != "serve" || a.Outcome != "Accepted" ||
			a.Price != "0.000" || a.Reason != "BoundByNothing" || a.From["app"] != 500 || a.To["app"] != 1500 || a.Latency <= 0 {
			t.Errorf("audit line %s", line)
		}
	}
	if n != 1 {
		t.Errorf("%d audit lines, want 1:\n%s", n, log)
	}
}

// served is the address of a server of the program, once the log of the libraries has it, from an
// offset on.
func served(t *testing.T, from int, name string) string {
	t.Helper()
	line, found := regexp.MustCompile(`"starting server","name":"`+name+`","addr":"([^"]+)"`), []string(nil)
	wait(t, "a log line about the server "+name, func() bool {
		found = line.FindStringSubmatch(libraries.String()[from:])
		return found != nil
	})
	return found[1]
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	apiserver.Eventually(t, what, func() (bool, any) { return is(), nil })
}

// get is the status and the body of an answer; 0 and the error where there is none.
func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

package controller

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

const (
	benchNodes = 10
	benchPods  = 100 // of each node
	benchPhase = time.Minute
)

// BenchmarkController1000Pods runs the controller as it ships, on the real API server, with 1,000 pods on ten nodes, for a minute in which
// nothing changes and a minute in which the decision about every second pod changes once by 40 %: more often than any load in docs/policy.md
// has it, and within the rate of resizes that ships. It reports the controller's resident memory, its requests to the API
// server for each pod and minute, by its own count, and how many it makes for one resize.
func BenchmarkController1000Pods(b *testing.B) {
	for b.Loop() {
		c := startController(b)
		c.fill(b)
		b.ReportMetric(c.resident(b), "MiB")
		before := c.requests(b)
		c.spend(b, nil)
		b.ReportMetric((c.requests(b)-before)/(benchNodes*benchPods), "steady-requests/pod/min")
		before = c.requests(b)
		resizes := c.sum(b, "mbcas_controller_resizes_total")
		c.spend(b, c.pods[:len(c.pods)/2])
		asked, resized := c.requests(b)-before, c.sum(b, "mbcas_controller_resizes_total")-resizes
		b.ReportMetric(asked/(benchNodes*benchPods), "busy-requests/pod/min")
		b.ReportMetric(resized/(benchNodes*benchPods), "busy-resizes/pod/min")
		b.ReportMetric(asked/resized, "requests/resize")
		b.ReportMetric(c.resident(b), "busy-MiB")
	}
}

// process is a controller that runs as a program of its own.
type process struct {
	server    *apiserver.Server
	namespace string // the controller's
	pid       int
	metrics   string
	nodes     []string
	pods      []*corev1.Pod
	audit     *syncWriter // audit lines
}

// servesMetrics is the log line, of level info, that has the address of the metrics.
var servesMetrics = regexp.MustCompile(`"starting server","name":"metrics","addr":"([^"]+)"`)

func startController(b *testing.B) *process {
	b.Helper()
	s := apiserver.Start(b)
	program := filepath.Join(b.TempDir(), "mbcas-controller")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "../../cmd/mbcas-controller")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the controller: %v\n%s", err, out)
	}
	c := &process{server: s, namespace: s.Namespace(b), audit: &syncWriter{}}
	cmd := exec.Command(program, "--kubeconfig", s.Kubeconfig(b, "controller", "system:masters"), "--mode=enforce", "--namespace", c.namespace,
		"--leader-elect=false", "--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0", "--start-grace=0s", "--decrease-cooldown=0s")
	log := &syncWriter{}
	cmd.Stdout, cmd.Stderr = c.audit, log
	must.Succeed(b, cmd.Start())
	c.pid = cmd.Process.Pid
	b.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended, which its log tells
		_ = cmd.Wait()
		if b.Failed() {
			b.Logf("the controller said:\n%s", log.String())
		}
	})
	apiserver.Eventually(b, "the controller serves its metrics", func() (bool, any) {
		m := servesMetrics.FindStringSubmatch(log.String())
		if m == nil {
			return false, log.String()
		}
		c.metrics = "http://" + m[1] + "/metrics"
		return true, nil
	})
	return c
}

// fill runs the pods, and waits until each has an allocation.
func (c *process) fill(b *testing.B) {
	b.Helper()
	for i := range benchNodes {
		c.nodes = append(c.nodes, c.server.Kubelet(b, fmt.Sprintf("bench-%d", i)).Node)
	}
	c.hear(b)
	c.pods = c.run(b, c.server.Namespace(b), "pod", benchNodes*benchPods)
}

// hear renews the Leases of all agents.
func (c *process) hear(b *testing.B) {
	b.Helper()
	for _, node := range c.nodes {
		must.Succeed(b, renew(b.Context(), c.server.Client, c.namespace, node, time.Now(), allocation.NodeMarket{}))
	}
}

// spend lets a phase pass, in which agents are heard every ten seconds, and decide once about each of the pods.
func (c *process) spend(b *testing.B, pods []*corev1.Pod) {
	b.Helper()
	start, heard, decided := time.Now(), time.Time{}, 0
	for {
		passed := time.Since(start)
		if passed >= benchPhase {
			break
		}
		if time.Since(heard) > 10*time.Second {
			c.hear(b)
			heard = time.Now()
		}
		if due := int(float64(len(pods)) * passed.Seconds() / benchPhase.Seconds()); decided < due {
			c.decide(b, pods[decided], 280, free(0)) // 40 % more
			decided++
			continue
		}
		time.Sleep(5 * time.Millisecond) // until the next is due
	}
}

// decide has the agent of a pod decide.
func (c *process) decide(b *testing.B, pod *corev1.Pod, limit cpu.Milli, d v1alpha1.Decision) {
	b.Helper()
	must.Succeed(b, decide(b.Context(), c.server.Client, pod, d, app(limit)))
}

// free is a decision that nothing bounds.
func free(demand cpu.Milli) v1alpha1.Decision {
	return v1alpha1.Decision{Demand: demand, Budget: 20, Floor: 100, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing}
}

// requests is how often the controller has asked the API server for anything; a watch is one request.
func (c *process) requests(b *testing.B) float64 { return c.sum(b, "rest_client_requests_total") }

// sum adds up the series of one of the controller's counters.
func (c *process) sum(b *testing.B, name string) (sum float64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics, nil)
	must.Succeed(b, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(b, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	must.Succeed(b, err)
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue()
	}
	return sum
}

// resident is the controller's memory in MiB.
func (c *process) resident(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	must.Succeed(b, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			must.Succeed(b, err)
			return kib / 1024
		}
	}
	b.Fatal("the kernel does not say how much memory the controller has")
	return 0
}

package monitoring_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/agent/nodemetrics"
	"github.com/mbcas/mbcas/internal/buildinfo"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/fleet"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/process"
	"github.com/mbcas/mbcas/market"
)

const (
	manyNodes   = 5000
	controllers = 2
	// evaluations of each group are watched once all targets are scraped. More takes longer, by half a minute each.
	evaluations = 4
)

// TestManyTargets: a real Prometheus scrapes 5,000 agents, each with all series that a node can have, and two
// controllers with as many namespaces as they name. Every group of rules can be evaluated within its interval (the
// fastest evaluation shows that; on a busy machine others wait for a CPU), and what they record is of all nodes. What
// it takes is logged: series, memory, CPU and the time of an evaluation.
func TestManyTargets(t *testing.T) {
	p := startPrometheus(t, serveMany(t))
	p.wait(t, 3*time.Minute, "all targets are up", func() (bool, string) {
		up := p.value(t, `count(up{job=~"mbcas-.+"} == 1)`)
		return up == manyNodes+controllers, fmt.Sprintf("%v targets are up", up)
	})
	start, cpu := time.Now(), p.value(t, `process_cpu_seconds_total{job="prometheus"}`)
	seen, fastest, slowest := map[string]int{}, map[string]float64{}, map[string]float64{}
	rules := map[string]float64{} // the fastest evaluation of each
	last, intervals := map[string]string{}, map[string]float64{}
	p.wait(t, 4*time.Minute, "the rules are evaluated", func() (bool, string) {
		done := true
		for _, g := range p.groups(t) {
			if g.LastEvaluation != last[g.Name] && last[g.Name] != "" {
				seen[g.Name]++
				slowest[g.Name] = max(slowest[g.Name], g.EvaluationTime)
				if fastest[g.Name] == 0 || g.EvaluationTime < fastest[g.Name] {
					fastest[g.Name] = g.EvaluationTime
				}
			}
			last[g.Name], intervals[g.Name] = g.LastEvaluation, g.Interval
			done = done && seen[g.Name] >= evaluations
			for _, r := range g.Rules {
				if before, ok := rules[r.Name]; r.Health == "ok" && (!ok || r.EvaluationTime < before) {
					rules[r.Name] = r.EvaluationTime
				}
				if r.Health == "err" {
					t.Errorf("%s cannot be evaluated: %s", r.Name, r.LastError)
				}
			}
		}
		return done && len(last) > 0, fmt.Sprint(seen)
	})
	for name, took := range fastest { // where other work has the machine, an evaluation waits for a CPU
		if took >= intervals[name] || intervals[name] != 30 {
			t.Errorf("each evaluation of group %s took %v s or more, its interval is %v s", name, took, intervals[name])
		}
		t.Logf("group %s: %d evaluations took %.2f to %.2f s", name, seen[name], took, slowest[name])
	}
	most := slices.SortedFunc(maps.Keys(rules), func(a, b string) int { return cmp.Compare(rules[b], rules[a]) })
	for _, name := range most[:5] {
		t.Logf("%s took %.2f s", name, rules[name])
	}
	for expr, want := range map[string]float64{
		`mbcas:limit_cores:sum{of="declared"}`: manyNodes * 0.5,
		`mbcas:limit_cores:sum{of="decided"}`:  manyNodes * 0.8,
		"count(mbcas_namespace_limit_cores)":   controllers * 201,
	} {
		if got := p.value(t, expr); got != want {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
	if got := p.value(t, "mbcas:throttled_idle:ratio5m"); got < .24 || got > .26 {
		t.Errorf("pods are throttled for %v of their time, want a quarter", got)
	}
	t.Logf("%.0f evaluations left out, %.0f series, %.0f MiB of memory, %.2f cores",
		p.value(t, "sum(prometheus_rule_group_iterations_missed_total)"), p.value(t, "prometheus_tsdb_head_series"),
		p.value(t, `process_resident_memory_bytes{job="prometheus"}`)/(1<<20),
		(p.value(t, `process_cpu_seconds_total{job="prometheus"}`)-cpu)/time.Since(start).Seconds())
}

// serveMany serves the metrics of the targets, /agent/N and /controller/N, and returns the scrape configuration.
func serveMany(t *testing.T) string {
	node := &nodemetrics.Collector{}
	nodes := prometheus.NewRegistry()
	nodes.MustRegister(node)
	ofAgent := promhttp.HandlerFor(prometheus.Gatherers{agent.Metrics(), nodes}, promhttp.HandlerOpts{})
	ofController := promhttp.HandlerFor(controllerMetrics(), promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	var rounds sync.Mutex
	mux.HandleFunc("/agent/", func(w http.ResponseWriter, r *http.Request) {
		rounds.Lock() // so that their times ascend
		node.Observe(fullRound(time.Now()))
		rounds.Unlock()
		ofAgent.ServeHTTP(w, r)
	})
	mux.Handle("/controller/", ofController)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	return scrapeConfig("agent", address, manyNodes) + scrapeConfig("controller", address, controllers)
}

// fullRound is a round of a node with idle CPU and one pod that is throttled for a quarter of its time.
func fullRound(at time.Time) nodemetrics.Round {
	r := nodemetrics.Round{At: at, Pods: []round.PodInput{{Pod: demand.Pod{
		Containers: []demand.Container{{Name: "app", Declared: 500, Limit: 800}},
	}}}}
	n := &r.Output.Node
	n.Supply, n.Demand, n.Usage, n.UsageKnown, n.SystemKnown, n.Pressure.Known = 4000, 1000, 1000, true, true, true
	r.Output.Decisions = []round.Decision{{
		Limit: 800, Usage: 600, Demand: 900, ThrottleRatio: .25, Bound: market.ByPrice,
	}}
	return r
}

// controllerMetrics are those of a controller with more namespaces than it names.
func controllerMetrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	elected := make(chan struct{})
	close(elected)
	reg.MustRegister(metrics.Leader(elected), buildinfo.Gauge("mbcas_controller_build_info", "1.", ""),
		&fleet.Collector{Leases: fake.NewFakeClient()})
	m := metrics.New(reg)
	var pods []metrics.Pod
	for i := range 500 {
		pods = append(pods, metrics.Pod{
			State: metrics.State{Phase: "Applied", Reason: "Settled"}, Namespace: fmt.Sprintf("team-%d", i),
			Cores: metrics.Cores{Declared: 500, Limit: 800, Demand: 600, Beyond: 100},
		})
	}
	m.Allocations("node", pods)
	return reg
}

// scrapeConfig is a job with as many targets, which differ in their path, as the shipped one names it.
func scrapeConfig(program, address string, targets int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - job_name: mbcas-%s\n    static_configs:\n", program)
	for i := range targets {
		fmt.Fprintf(&b, "      - {targets: [%q], labels: {__metrics_path__: /%s/%d, instance: \"%d\", node: n%d}}\n",
			address, program, i, i, i)
	}
	return b.String()
}

// prometheusServer is a running Prometheus.
type prometheusServer struct{ url string }

// startPrometheus starts one with the shipped rules and intervals, and with these scrape configurations and its own.
func startPrometheus(t *testing.T, scrapes string) *prometheusServer {
	t.Helper()
	program := filepath.Join(filepath.Dir(promtool(t)), "prometheus")
	rules, err := filepath.Abs("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	address := process.FreeAddress(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	text := "global: {scrape_interval: 30s, evaluation_interval: 30s}\nrule_files: [" + rules +
		"]\nscrape_configs:\n" + scrapes +
		"  - job_name: prometheus\n    scrape_interval: 1s\n    static_configs: [{targets: [\"" + address + "\"]}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Start(t, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	return &prometheusServer{"http://" + address}
}

// wait asks once a second until something is so.
func (*prometheusServer) wait(t *testing.T, most time.Duration, what string, so func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(most); ; {
		yes, last := so()
		if yes {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s: %s", most, what, last)
		}
		<-tick.C
	}
}

// ask decodes an answer; it says whether there was one.
func (p *prometheusServer) ask(t *testing.T, path string, into any) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // it starts
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK && json.Unmarshal(text, into) == nil
}

// value is that of an expression with one series; 0: there is none.
func (p *prometheusServer) value(t *testing.T, expr string) float64 {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if !p.ask(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer) || len(answer.Data.Result) == 0 {
		return 0
	}
	if n := len(answer.Data.Result); n > 1 {
		t.Fatalf("%s has %d series, want one", expr, n)
	}
	v, err := strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// evaluated is a group of rules as Prometheus tells of it.
type evaluated struct {
	Name                     string
	Interval, EvaluationTime float64 // seconds
	LastEvaluation           string
	Rules                    []struct {
		Name, Health, LastError string
		EvaluationTime          float64
	}
}

func (p *prometheusServer) groups(t *testing.T) []evaluated {
	t.Helper()
	var answer struct{ Data struct{ Groups []evaluated } }
	p.ask(t, "/api/v1/rules", &answer)
	return answer.Data.Groups
}

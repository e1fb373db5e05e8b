package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/process"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const observed = "e2e-observed"

// replicas are those of the controller in config/overlays/local.
const replicas = 1

// monitoring is a cluster that a real Prometheus watches, with a real Alertmanager behind it.
type monitoring struct {
	*suite
	prometheus string // its URL
	exported          // scraped from the test itself

	mu     sync.Mutex
	alerts map[string]map[string]string // annotations of the alerts that were delivered and fire, by name
}

// apps are the deployments under load, each of one pod.
var apps = []string{"web", "batch", "search", "report"}

// TestMonitoring has Prometheus scrape the agents and controllers of a cluster under load. Every recording rule
// and every panel has data; no alert is delivered while all is well, and each fault below has its own delivered.
func TestMonitoring(t *testing.T) {
	for _, tool := range []string{"MBCAS_PROMETHEUS", "MBCAS_ALERTMANAGER", adapterTool} {
		if os.Getenv(tool) == "" {
			t.Skip("optional: run this with `go run ./tools/testall -only monitoring`")
		}
	}
	m := &monitoring{suite: start(t), exported: newExported(), alerts: map[string]map[string]string{}}
	defer uninstall(t)
	m.namespace(t, observed, "enforce")
	m.watch(t)
	for _, app := range apps {
		m.deploy(t, observed, app, resources{"100m", "300m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{kube.ShareSignalKey: "true"}
		})
	}
	for _, step := range []struct {
		name string
		run  func(*monitoring, *testing.T)
	}{
		{"EveryTargetIsUp", (*monitoring).everyTargetIsUp},
		{"NothingIsToldInPeace", (*monitoring).nothingIsToldInPeace},
		{"AThrottledPodIsTold", (*monitoring).aThrottledPodIsTold},
		{"ANodeFilledFromOutsideIsTold", (*monitoring).aNodeFilledFromOutsideIsTold},
		{"AFullNodeIsTold", (*monitoring).aFullNodeIsTold},
		{"SlowResizesAreTold", (*monitoring).slowResizesAreTold}, // the next one holds decisions, which age meanwhile
		{"AHarmfulDecreaseIsTold", (*monitoring).aHarmfulDecreaseIsTold},
		{"ASlowResizeIsTold", (*monitoring).aSlowResizeIsTold},
		{"EveryRuleHasData", (*monitoring).everyRuleHasData},
		{"EveryPanelHasData", (*monitoring).everyPanelHasData},
		{"APauseIsTold", (*monitoring).aPauseIsTold},
		{"AnUnreadSignalIsTold", (*monitoring).anUnreadSignalIsTold}, // before there is an adapter
		{"ARealAdapterServes", (*monitoring).aRealAdapterServes},
		{"ARefusedDecisionIsTold", (*monitoring).aRefusedDecisionIsTold},
		{"AWrongQuotaIsTold", (*monitoring).aWrongQuotaIsTold},
		{"ASecondAgentIsTold", (*monitoring).aSecondAgentIsTold},
		{"ABlindAgentIsTold", (*monitoring).aBlindAgentIsTold},
		{"AKilledLeaderIsTold", (*monitoring).aKilledLeaderIsTold},
		{"NoLeaderIsTold", (*monitoring).noLeaderIsTold},
		{"ASilentAgentIsTold", (*monitoring).aSilentAgentIsTold},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(m, t) })
	}
}

// shortFor replaces the times of the rules: what waits for minutes waits for seconds here.
var shortFor = regexp.MustCompile(`(?m)^( +)(for|interval): \w+$`)

// shorter are the parts of the expressions that are shorter here. Longer ranges than five minutes are of five: rate()
// takes what was before the first sample for nothing, and quantiles of more would need more old decisions. A backlog
// is one of a second, not of a minute: ten resizes.
var shorter = strings.NewReplacer("[1h]", "[5m]", "[15m]", "[5m]", "> 60 * clamp_max(", "> 1 * clamp_max(")

func shortened(rules string) string {
	return shorter.Replace(shortFor.ReplaceAllString(rules, "${1}${2}: 4s"))
}

// watch starts Alertmanager and Prometheus with the shipped configuration and rules.
func (m *monitoring) watch(t *testing.T) {
	dir := t.TempDir()
	webhook := httptest.NewServer(http.HandlerFunc(m.deliver))
	t.Cleanup(webhook.Close)
	exporter := httptest.NewServer(m.handler())
	t.Cleanup(exporter.Close)
	manager, prometheus := process.FreeAddress(t), process.FreeAddress(t)
	config := strings.ReplaceAll(readFile(t, "monitoring/prometheus.yaml"), "- role: pod\n",
		"- role: pod\n        kubeconfig_file: "+os.Getenv("KUBECONFIG")+"\n")
	config = strings.ReplaceAll(config, "_interval: 30s", "_interval: 2s") +
		"\n  - {job_name: requests, static_configs: [{targets: [\"" + exporter.Listener.Addr().String() + "\"]}]}" +
		"\nalerting: {alertmanagers: [{static_configs: [{targets: [\"" + manager + "\"]}]}]}\n"
	for name, text := range map[string]string{
		"prometheus.yaml": config,
		"rules.yaml":      shortened(readFile(t, "monitoring/rules.yaml")),
		"alertmanager.yaml": "route: {receiver: test, group_by: [alertname], group_wait: 1s, group_interval: 1s}\n" +
			"receivers: [{name: test, webhook_configs: [{url: \"" + webhook.URL + "\"}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m.prometheus = "http://" + prometheus
	process.Start(t, filepath.Join(os.Getenv("MBCAS_ALERTMANAGER"), "alertmanager"), "--config.file="+filepath.Join(dir,
		"alertmanager.yaml"),
		"--storage.path="+filepath.Join(dir, "alertmanager"), "--web.listen-address="+manager,
		"--cluster.listen-address=")
	process.Start(t, filepath.Join(os.Getenv("MBCAS_PROMETHEUS"), "prometheus"), "--config.file="+filepath.Join(dir,
		"prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+prometheus)
	for _, address := range []string{manager, prometheus} {
		wait(t, time.Minute, address+" is ready", func() (bool, string) {
			_, err := traffic.Get(t.Context(), http.DefaultClient, "http://"+address+"/-/ready")
			return err == nil, orError(err, "ready")
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// deliver takes alerts in, as Alertmanager sends them.
func (m *monitoring) deliver(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range sent.Alerts {
		if name := a.Labels["alertname"]; a.Status == "firing" {
			m.alerts[name] = a.Annotations
		} else {
			delete(m.alerts, name)
		}
	}
}

// told waits until an alert was delivered, with its runbook and a text whose figures are filled in.
func (m *monitoring) told(t *testing.T, most time.Duration, name, says string) {
	t.Helper()
	defer m.showSeries(t, name)
	var annotations map[string]string
	m.waitAlert(t, most, name, true, &annotations)
	if text := annotations["description"]; !strings.Contains(text, says) || strings.Contains(text,
		"{{") || strings.Contains(text, "error") {
		t.Errorf("%s says %q, want %q in it", name, text, says)
	}
	if u := annotations["runbook_url"]; !strings.HasSuffix(u, "/docs/runbooks/"+name+".md") {
		t.Errorf("%s has the runbook %q", name, u)
	}
}

func (m *monitoring) waitAlert(t *testing.T, most time.Duration, name string, fires bool,
	annotations *map[string]string) {
	t.Helper()
	wait(t, most, fmt.Sprintf("the alert %s is delivered as firing: %v", name, fires), func() (bool, string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		found, ok := m.alerts[name]
		if annotations != nil {
			*annotations = found
		}
		var all []string
		for name := range m.alerts {
			all = append(all, name)
		}
		return ok == fires, fmt.Sprintf("alerts: %q", all)
	})
}

// seriesBehind are the names of the series that the expressions of an alert read, and of those that record these.
func seriesBehind(rules []rule, alert string) (names []string) {
	for _, r := range rules {
		if r.Record+r.Alert != alert {
			continue
		}
		for _, name := range seriesName.FindAllString(r.Expr, -1) {
			if !slices.Contains(names, name) {
				names = append(append(names, name), seriesBehind(rules, name)...)
			}
		}
	}
	return names
}

var seriesName = regexp.MustCompile(`\bmbcas[_:][a-z0-9_:]+`)

// showSeries tells, where a test has failed, what the series behind an alert were in the last three minutes, and
// whether their targets were scraped.
func (m *monitoring) showSeries(t *testing.T, alert string) {
	if !t.Failed() {
		return
	}
	names := append(seriesBehind(m.rules(t), alert), "mbcas_node_supply_cores", "mbcas_node_usage_cores",
		"mbcas_node_system_cores", "up", "scrape_duration_seconds", fmt.Sprintf("ALERTS{alertname=%q}", alert))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		found, err := m.query(t, name+"[3m:15s]")
		if err != nil || len(found) == 0 {
			t.Logf("%s: no series (%v)", name, err)
		}
		for _, s := range found {
			var values []string
			for _, v := range s.Values {
				values = append(values, fmt.Sprint(v[1]))
			}
			t.Logf("%v: %s", s.Metric, strings.Join(values, " "))
		}
	}
	t.Log(m.allocations(t, observed))
}

// sample is a series of an answer with its value, or with its values where the query was for a time.
type sample struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

// rule is a recording rule or an alert of the shipped rules.
type rule struct{ Record, Alert, Expr string }

func (m *monitoring) rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(readFile(t, "monitoring/rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// query asks Prometheus.
func (m *monitoring) query(t *testing.T, expr string) ([]sample, error) {
	t.Helper()
	text, err := traffic.Get(t.Context(), http.DefaultClient,
		m.prometheus+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, err
	}
	var found []sample
	return found, json.Unmarshal(answer.Data.Result, &found)
}

// hasData waits until an expression has a result.
func (m *monitoring) hasData(t *testing.T, what, expr string) {
	t.Helper()
	wait(t, time.Minute, what+" has data", func() (bool, string) {
		found, err := m.query(t, expr)
		return err == nil && len(found) > 0, orError(err, "no series for %s", expr)
	})
}

func (m *monitoring) everyTargetIsUp(t *testing.T) {
	for expr, want := range map[string]int{`up{job="mbcas-agent"} == 1`: 1,
		`up{job="mbcas-controller"} == 1`: replicas} {
		wait(t, time.Minute, expr, func() (bool, string) {
			found, err := m.query(t, expr)
			return err == nil && len(found) == want, orError(err, "%d, want %d", len(found), want)
		})
	}
	found, err := m.query(t, fmt.Sprintf(`mbcas_node_supply_cores{node=%q}`, m.node))
	if err != nil || len(found) != 1 {
		t.Errorf("the agent's series have not the label of the node: %v, %v", found, err)
	}
	found, err = m.query(t, `max(scrape_samples_scraped{job="mbcas-agent"}) > 80`)
	if err != nil || len(found) > 0 {
		t.Errorf("more than 80 series of the agent: %v, %v", found, err)
	}
}

// emptyWhenHealthy are expressions without a result here, with why.
var emptyWhenHealthy = map[string]string{
	"container_cpu_cfs":         "kubelet's cAdvisor is not scraped here",
	"mbcas_node_pressure_ratio": "a node with cgroup v1 has no PSI",
}

func isEmptyWhenHealthy(expr string) bool {
	for part := range emptyWhenHealthy {
		if strings.Contains(expr, part) {
			return true
		}
	}
	return false
}

func (m *monitoring) everyRuleHasData(t *testing.T) {
	recorded := 0
	for _, r := range m.rules(t) {
		if r.Record != "" {
			recorded++
			m.hasData(t, r.Record, r.Record)
		}
	}
	if recorded < 15 {
		t.Errorf("%d rules record something", recorded)
	}
	text, err := traffic.Get(t.Context(), http.DefaultClient, m.prometheus+"/api/v1/rules")
	if err != nil || strings.Contains(text, `"health":"err"`) {
		t.Errorf("a rule cannot be evaluated (%v): %s", err, text)
	}
}

func (m *monitoring) everyPanelHasData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "monitoring/dashboards/*.json"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	variables := strings.NewReplacer("$cluster", ".*", "$node", ".*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if !isEmptyWhenHealthy(q.Expr) {
					m.hasData(t, filepath.Base(file)+": "+p.Title, variables.Replace(q.Expr))
				}
			}
		}
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const observed = "e2e-observed"

// replicas are those of the controller in config/overlays/local.
const replicas = 1

// monitoring is a cluster that a real Prometheus watches, with a real Alertmanager behind it.
type monitoring struct {
	*suite
	prometheus string // its URL

	mu     sync.Mutex
	alerts map[string]map[string]string // annotations of the alerts that were delivered and fire, by name
}

// TestMonitoring has Prometheus scrape the agents and controllers of a cluster under load. Every recording rule
// and every panel has data, and alerts are delivered when a node fills, the controllers stop and an agent stops.
func TestMonitoring(t *testing.T) {
	if os.Getenv("MBCAS_PROMETHEUS") == "" || os.Getenv("MBCAS_ALERTMANAGER") == "" {
		t.Skip("optional: run this with `go run ./tools/testall -only monitoring`")
	}
	m := &monitoring{suite: start(t), alerts: map[string]map[string]string{}}
	defer uninstall(t)
	m.namespace(t, observed, "enforce")
	m.watch(t)
	for _, app := range []string{"web", "batch"} {
		m.deploy(t, observed, app, resources{"100m", "300m", "32Mi"})
	}
	for _, pod := range m.pods(t, observed) {
		m.spin(t, pod, 4)
	}
	for _, step := range []struct {
		name string
		run  func(*monitoring, *testing.T)
	}{
		{"EveryTargetIsUp", (*monitoring).everyTargetIsUp},
		{"AFullNodeIsTold", (*monitoring).aFullNodeIsTold},
		{"EveryRuleHasData", (*monitoring).everyRuleHasData},
		{"EveryPanelHasData", (*monitoring).everyPanelHasData},
		{"NoLeaderIsTold", (*monitoring).noLeaderIsTold},
		{"ASilentAgentIsTold", (*monitoring).aSilentAgentIsTold},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(m, t) })
	}
}

// shortFor replaces the times of the rules: what waits for minutes waits for seconds here.
var shortFor = regexp.MustCompile(`(?m)^( +)(for|interval): \w+$`)

// watch starts Alertmanager and Prometheus with the shipped configuration and rules.
func (m *monitoring) watch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) (path string) {
		path = filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	webhook := httptest.NewServer(http.HandlerFunc(m.deliver))
	t.Cleanup(webhook.Close)
	config := write("alertmanager.yaml",
		"route: {receiver: test, group_by: [alertname], group_wait: 1s, group_interval: 1s}\n"+
			"receivers: [{name: test, webhook_configs: [{url: \""+webhook.URL+"\"}]}]\n")
	manager := m.serve(t, filepath.Join(os.Getenv("MBCAS_ALERTMANAGER"), "alertmanager"), "--config.file="+config,
		"--storage.path="+filepath.Join(dir, "alertmanager"), "--cluster.listen-address=")

	write("rules.yaml", shortFor.ReplaceAllString(readFile(t, "monitoring/rules.yaml"), "${1}${2}: 4s"))
	text := strings.ReplaceAll(readFile(t, "monitoring/prometheus.yaml"), "- role: pod\n",
		"- role: pod\n        kubeconfig_file: "+os.Getenv("KUBECONFIG")+"\n")
	config = write("prometheus.yaml", strings.ReplaceAll(text, "_interval: 30s", "_interval: 2s")+
		"\nalerting: {alertmanagers: [{static_configs: [{targets: [\""+manager+"\"]}]}]}\n")
	m.prometheus = "http://" + m.serve(t, filepath.Join(os.Getenv("MBCAS_PROMETHEUS"), "prometheus"),
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "prometheus"))
}

// listensOn matches the line in which Prometheus and Alertmanager log the port that they got.
var listensOn = regexp.MustCompile(`msg="Listening on".* address=(\S+)`)

// serve runs one of them on a port of its choice until the test ends, and returns its address when
// it is ready.
func (m *monitoring) serve(t *testing.T, program string, args ...string) (address string) {
	t.Helper()
	log := background(t, program, append(args, "--web.listen-address=127.0.0.1:0")...)
	m.wait(t, time.Minute, filepath.Base(program)+" is ready", func() (bool, string) {
		text, err := os.ReadFile(log)
		found := listensOn.FindSubmatch(text)
		if found == nil {
			return false, orError(err, "it does not listen")
		}
		address = string(found[1])
		_, err = traffic.Get(t.Context(), http.DefaultClient, "http://"+address+"/-/ready")
		return err == nil, orError(err, "ready")
	})
	return address
}

// background runs a program until the test ends, and returns the file of its log, which is shown
// when the test fails.
func background(t *testing.T, program string, args ...string) (path string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Succeed(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s:\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
	})
	return log.Name()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	must.Succeed(t, err)
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
	m.wait(t, most, fmt.Sprintf("the alert %s is delivered as firing: %v", name, fires), func() (bool, string) {
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

// sample is a series of an answer with its value.
type sample struct {
	Metric map[string]string
	Value  [2]any
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
	m.wait(t, time.Minute, what+" has data", func() (bool, string) {
		found, err := m.query(t, expr)
		return err == nil && len(found) > 0, orError(err, "no series for %s", expr)
	})
}

func (m *monitoring) everyTargetIsUp(t *testing.T) {
	for expr, want := range map[string]int{`up{job="mbcas-agent"} == 1`: 1,
		`up{job="mbcas-controller"} == 1`: replicas} {
		m.wait(t, time.Minute, expr, func() (bool, string) {
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

// aFullNodeIsTold: two pods demand the whole node each.
func (m *monitoring) aFullNodeIsTold(t *testing.T) {
	m.told(t, 3*time.Minute, "MbcasNodesFull", "On 100% of the nodes")
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
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert string }
		}
	}
	must.Succeed(t, yaml.Unmarshal([]byte(readFile(t, "monitoring/rules.yaml")), &file))
	recorded := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded++
				m.hasData(t, r.Record, r.Record)
			}
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
		must.Succeed(t, err)
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		must.Succeed(t, json.Unmarshal(text, &d))
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if !isEmptyWhenHealthy(q.Expr) {
					m.hasData(t, filepath.Base(file)+": "+p.Title, variables.Replace(q.Expr))
				}
			}
		}
	}
}

// noLeaderIsTold: no controller runs for a while.
func (m *monitoring) noLeaderIsTold(t *testing.T) {
	kubectl(t, "-n", system, "scale", "deployment/mbcas-controller", "--replicas=0")
	defer func() {
		kubectl(t, "-n", system, "scale", "deployment/mbcas-controller", fmt.Sprint("--replicas=", replicas))
		m.rolledOut(t, "deployment/mbcas-controller")
		m.waitAlert(t, 2*time.Minute, "MbcasNoLeader", false, nil)
	}()
	// The last samples of pods that are gone count for five minutes, unless their targets go with them.
	m.told(t, 7*time.Minute, "MbcasNoLeader", "No replica of mbcas-controller holds its Lease")
}

// aSilentAgentIsTold: the agent's pod goes, and with it its series.
func (m *monitoring) aSilentAgentIsTold(t *testing.T) {
	patch := `{"spec":{"template":{"spec":{"nodeSelector":{"mbcas.io/nowhere":%s}}}}}`
	kubectl(t, "-n", system, "patch", "daemonset/mbcas-agent", "-p", fmt.Sprintf(patch, `"true"`))
	defer func() {
		kubectl(t, "-n", system, "patch", "daemonset/mbcas-agent", "-p", fmt.Sprintf(patch, "null"))
		m.rolledOut(t, "daemonset/mbcas-agent")
		m.waitAlert(t, 2*time.Minute, "MbcasAgentsSilent", false, nil)
	}()
	// Where no other node has the controller count, it counts when it looks at this one again: after five minutes.
	m.told(t, 8*time.Minute, "MbcasAgentsSilent", "1 agents of Ready nodes have not renewed")
	found, err := m.query(t, `mbcas_cluster_nodes{state="silent"} == 1`)
	if err != nil || !slices.ContainsFunc(found, func(s sample) bool { return s.Metric["state"] == "silent" }) {
		t.Errorf("no node counts as silent: %v, %v", found, err)
	}
}

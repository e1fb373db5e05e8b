package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// wrong are values that the chart refuses, each with what the user sees.
var wrong = map[string][]struct{ args, says string }{
	"names": {
		{"--set modes=enforce", "additional properties 'modes' not allowed"},
		{"--set image.name=x", "at '/image': additional properties 'name' not allowed"},
		{"--set agent.flag.reserve=1", "at '/agent': additional properties 'flag' not allowed"},
		{"--set agent.tolerations[0].key=a", "at '/agent': additional properties 'tolerations' not allowed"},
		{"--set agent.resources.limit.memory=1Gi", "at '/agent/resources': additional properties 'limit' not allowed"},
		{"--set controller.replica=3", "at '/controller': additional properties 'replica' not allowed"},
		{"--set monitoring.enabled=true", "at '/monitoring': additional properties 'enabled' not allowed"},
		{"--set networkPolicy.from=a", "at '/networkPolicy': additional properties 'from' not allowed"},
		{"--set users.create=true", "at '/users': additional properties 'create' not allowed"},
		{"--set crds.keep=false", "at '/crds': additional properties 'keep' not allowed"},
		{"--set uninstall.force=true", "at '/uninstall': additional properties 'force' not allowed"},
		{"--set image.pullSecrets[0].key=a", "at '/image/pullSecrets/0'"},
	},
	"CPU limits": {
		{"--set agent.resources.limits.cpu=1", "at '/agent/resources/limits': additional properties 'cpu' not allowed"},
		{"--set controller.resources.limits.cpu=1", "'/controller/resources/limits': additional properties 'cpu' not"},
	},
	"words": {
		{"--set mode=off", "at '/mode': value must be one of 'recommend', 'enforce', 'restore'"},
		{"--set mode=Enforce", "at '/mode': value must be one of"},
		{"--set image.pullPolicy=always", "at '/image/pullPolicy': value must be one of"},
		{"--set monitoring.podMonitor=yes", "at '/monitoring/podMonitor': value must be one of 'auto', 'on', 'off'"},
		{"--set monitoring.rules=yes", "at '/monitoring/rules': value must be one of 'auto', 'on', 'off'"},
		{"--set agent.flags.log-level=loud", "at '/agent/flags/log-level': value must be one of 'debug', 'info'"},
		{"--set users.role=true,users.subjects[0].kind=Team,users.subjects[0].name=a", "at '/users/subjects/0/kind'"},
	},
	"types": {
		{"--set controller.replicas=many", "at '/controller/replicas': got string, want integer"},
		{"--set controller.replicas=0", "at '/controller/replicas': minimum: got 0, want 1"},
		{"--set-json controller.replicas=1.5", "at '/controller/replicas': got number, want integer"},
		{"--set image.tag=110", "at '/image/tag': got number, want string"},
		{"--set image.tag=sha256:00", "at '/image/tag': 'sha256:00' does not match pattern"},
		{"--set image.registry=https://example.com", "at '/image/registry': 'https://example.com' does not match"},
		{"--set image.registry=example.com/", "at '/image/registry': 'example.com/' does not match"},
		{"--set image.registry=", "at '/image/registry': '' does not match pattern"},
		{"--set image.pullSecrets=a", "at '/image/pullSecrets': got string, want array"},
		{"--set agent.resources.requests.cpu=half", "at '/agent/resources/requests/cpu': 'half' does not match"},
		{"--set agent.resources.requests.cpu=0", "at '/agent/resources/requests/cpu': exclusiveMinimum: got 0, want 0"},
		{"--set agent.resources.limits.memory=64MB", "at '/agent/resources/limits/memory': '64MB' does not match"},
		{"--set-json agent.resources.requests.cpu=-0.5", "at '/agent/resources/requests/cpu': exclusiveMinimum"},
		{"--set networkPolicy.enabled=on", "at '/networkPolicy/enabled': got string, want boolean"},
		{"--set monitoring.dashboards=on", "at '/monitoring/dashboards': got string, want boolean"},
		{"--set users.role=1", "at '/users/role': got number, want boolean"},
		{"--set crds.install=never", "at '/crds/install': got string, want boolean"},
		{"--set criticalPodsQuota=100", "at '/criticalPodsQuota': got number, want boolean"},
		{"--set uninstall.timeout=240", "at '/uninstall/timeout': got number, want string"},
		{"--set uninstall.timeout=240s", "at '/uninstall/timeout': '240s' does not match pattern"},
		{"--set uninstall.restore=no", "at '/uninstall/restore': got string, want boolean"},
		{"--set networkPolicy.metricsFrom.team=a/b", "'a/b' does not match pattern"},
		{"--set-json agent.nodeSelector.pool=1", "at '/agent/nodeSelector/pool': got number, want string"},
		{"--set-json monitoring.labels.a=true", "at '/monitoring/labels/a': got boolean, want string"},
		{"--set users.subjects[0].kind=ServiceAccount,users.subjects[0].name=a", "missing property 'namespace'"},
		{"--set users.subjects[0].kind=User,users.subjects[0].name=a,users.subjects[0].namespace=b", "subjects/0"},
	},
	"what is missing": {
		{"--set mode=null", "missing property 'mode'"},
		{"--set agent.resources.limits.memory=null", "at '/agent/resources/limits': missing property 'memory'"},
		{"--set controller.resources=null", "at '/controller': missing property 'resources'"},
		{`--set-json image.pullSecrets=[{"name":""}]`, "minLength: got 0, want 1"},
	},
	"flags": {
		{"--set agent.flags.intervall=1s", "at '/agent/flags': additional properties 'intervall' not allowed"},
		{"--set agent.flags.interval=1", "at '/agent/flags/interval': got number, want string"},
		{"--set agent.flags.interval=fast", "at '/agent/flags/interval': 'fast' does not match pattern"},
		{"--set agent.flags.reserve=a", "at '/agent/flags/reserve': 'a' does not match pattern"},
		{"--set agent.flags.memory-io-pressure=yes", "at '/agent/flags/memory-io-pressure': got string, want boolean"},
		{"--set agent.flags.listen=:80", "at '/agent/flags': additional properties 'listen' not allowed"},
		{"--set agent.flags.namespace=other", "at '/agent/flags': additional properties 'namespace' not allowed"},
		{"--set controller.flags.mode=enforce", "at '/controller/flags': additional properties 'mode' not allowed"},
		{"--set controller.flags.resizes-burst=1.5", "at '/controller/flags/resizes-burst': got string, want integer"},
		{"--set controller.flags.freeze-after=60", "at '/controller/flags/freeze-after': got number, want string"},
	},
}

// TestWrongValues: each of them is refused before anything is rendered, in words that name the value.
func TestWrongValues(t *testing.T) {
	count := 0
	for group, all := range wrong {
		for _, w := range all {
			count++
			t.Run(group+" "+w.args, func(t *testing.T) {
				t.Parallel()
				stdout, stderr, err := template(t, strings.Fields(w.args)...)
				if err == nil {
					t.Fatalf("accepted:\n%.300s", stdout)
				}
				if !strings.Contains(stderr, "values don't meet the specifications of the schema") ||
					!strings.Contains(stderr, w.says) {
					t.Errorf("refused with %q, want %q in it", stderr, w.says)
				}
			})
		}
	}
	if count < 40 {
		t.Errorf("%d wrong values, want at least 40", count)
	}
}

// TestTemplatesRefuse: what no schema can say is refused by the templates, with what to do.
func TestTemplatesRefuse(t *testing.T) {
	for args, says := range map[string]string{
		"--namespace other": `the release is in namespace "other", and MBCAS runs in mbcas-system only, which its ` +
			`policies and roles name: add --namespace mbcas-system`,
		"--set users.subjects[0].kind=User,users.subjects[0].name=a": "set users.role=true",
		"--kube-version 1.32.9": "chart requires kubeVersion: >=1.33.0-0 which is incompatible with Kubernetes v1.32.9",
	} {
		if _, stderr, err := template(t, strings.Fields(args)...); err == nil || !strings.Contains(stderr, says) {
			t.Errorf("%s: %v, %q, want %q in it", args, err, stderr, says)
		}
	}
	if _, stderr, err := template(t, "--kube-version", "1.33.0-gke.1"); err != nil {
		t.Errorf("on a version of a provider: %v\n%s", err, stderr)
	}
}

// TestLint: helm lint has nothing to say, as strict as it can be.
func TestLint(t *testing.T) {
	for _, set := range []string{"mode=recommend", "mode=enforce,users.role=true,networkPolicy.enabled=true"} {
		args := []string{"lint", "--strict", "--quiet", chart, "--namespace", "mbcas-system", "--set", set}
		stdout, stderr, err := run(t, args...)
		if err != nil || strings.Contains(stdout+stderr, "[WARNING]") || strings.Contains(stdout+stderr, "[ERROR]") {
			t.Errorf("helm lint --set %s: %v\n%s%s", set, err, stdout, stderr)
		}
	}
}

// TestChartInAChart: a chart that depends on this one can be rendered, although Helm adds values to it.
func TestChartInAChart(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(dir, "charts", "mbcas"), os.DirFS(chart)))
	text := "apiVersion: v2\nname: platform\nversion: 0.1.0\ndependencies: [{name: mbcas, version: 0.0.0-dev}]\n"
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(text), 0o600))
	const set = "mbcas.mode=enforce,global.a=b"
	stdout, stderr, err := run(t, "template", "mbcas", dir, "--namespace", "mbcas-system", "--set", set)
	if err != nil || len(objects(t, stdout)) < 40 {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// schemaFlags are the flags of a program that the schema accepts, each with what it accepts.
func schemaFlags(t *testing.T, program string) map[string]map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	must.Succeed(t, err)
	var s map[string]any
	must.Succeed(t, json.Unmarshal(text, &s))
	found := map[string]map[string]any{}
	for name, p := range at(s, "properties", program, "properties", "flags", "properties").(map[string]any) {
		found[name] = p.(map[string]any)
	}
	if len(found) < 6 {
		t.Fatalf("%d flags of the %s in the schema", len(found), program)
	}
	return found
}

// TestFlagsReachTheProgram: every flag that the schema takes is rendered as one that the program takes, the words of
// the schema are its words, and it takes no others.
func TestFlagsReachTheProgram(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "./cmd/mbcas-agent", "./cmd/mbcas-controller")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, program := range []string{"agent", "controller"} {
		t.Run(program, func(t *testing.T) {
			// usage says whether the program refuses its command line. It finds no cluster to run in.
			usage := func(args ...string) (bool, string) {
				cmd := exec.Command(filepath.Join(dir, "mbcas-"+program), append(args, "--kubeconfig=/none")...)
				cmd.Env = []string{"NODE_NAME=n"}
				out, err := cmd.CombinedOutput()
				if err == nil {
					t.Fatalf("%s %v runs without a cluster", program, args)
				}
				return cmd.ProcessState.ExitCode() == 2, string(out)
			}
			samples := map[string]string{"boolean": "true", "integer": "1000000", "string": "90s"}
			var set []string
			for name, s := range schemaFlags(t, program) {
				sample, ok := samples[fmt.Sprint(s["type"])]
				if !ok {
					sample = "0.5"
				}
				words, _ := s["enum"].([]any)
				for _, word := range words {
					sample = fmt.Sprint(word)
					if refused, out := usage("--" + name + "=" + sample); refused {
						t.Errorf("--%s=%s is a word of the schema, and refused: %s", name, sample, out)
					}
				}
				if len(words) > 0 {
					if refused, out := usage("--" + name + "=other"); !refused {
						t.Errorf("--%s=other is no word of the schema, and taken: %s", name, out)
					}
				}
				set = append(set, fmt.Sprintf("%s.flags.%s=%s", program, name, sample))
			}
			args := arguments(t, program, strings.Join(set, ","))
			if n := len(args) - 1; n != len(set) { // the first is not from a value
				t.Errorf("%d flags are rendered as %d arguments: %v", len(set), n, args)
			}
			for _, arg := range args[1:] {
				// Bounds are the program's own. What it must not say is that it knows no such flag, or no such type.
				_, out := usage(arg)
				if strings.Contains(out, "not defined") || strings.Contains(out, "invalid value") {
					t.Errorf("%s is refused: %s", arg, out)
				}
			}
		})
	}
}

// arguments are those of the program's container.
func arguments(t *testing.T, program, set string) (args []string) {
	t.Helper()
	for _, o := range rendered(t, "--set", set, "--show-only", "templates/"+program+".yaml") {
		containers, ok := at(o, "spec", "template", "spec", "containers").([]any)
		if !ok {
			continue
		}
		for _, a := range containers[0].(map[string]any)["args"].([]any) {
			args = append(args, a.(string))
		}
	}
	if len(args) < 2 {
		t.Fatalf("the %s has the arguments %v with %s", program, args, set)
	}
	return args
}

package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// Objects that several values change.
const (
	programs   = "DaemonSet/mbcas-agent Deployment/mbcas-controller CronJob/mbcas-restore hook Job/mbcas-restore"
	agent      = "DaemonSet/mbcas-agent"
	controller = "Deployment/mbcas-controller"
	hook       = "hook Job/mbcas-restore"
	monitors   = "PodMonitor/mbcas-agent PodMonitor/mbcas-controller"
	rules      = "PrometheusRule/mbcas"
	dashboards = "ConfigMap/mbcas-dashboard-changes ConfigMap/mbcas-dashboard-health ConfigMap/mbcas-dashboard-node " +
		"ConfigMap/mbcas-dashboard-promise ConfigMap/mbcas-dashboard-shares"
	policies = "NetworkPolicy/mbcas-agent NetworkPolicy/mbcas-controller"
	crds     = "CustomResourceDefinition/demandsignals.allocation.mbcas.io " +
		"CustomResourceDefinition/nodeallocations.allocation.mbcas.io " +
		"CustomResourceDefinition/podallocations.allocation.mbcas.io"
)

// allOn makes every object of the Prometheus Operator.
const allOn = "monitoring.podMonitor=on,monitoring.rules=on"

// effects are, of each value, another setting and the objects that it changes, makes or takes away; with are values
// that it needs to mean something.
var effects = map[string]struct{ set, with, objects string }{
	"mode":                                 {"enforce", "", controller + " ValidatingAdmissionPolicy/mbcas-controller"},
	"image.registry":                       {"example.com/mbcas", "", programs},
	"image.tag":                            {"v1", "", programs},
	"image.pullPolicy":                     {"Always", "", programs},
	"image.pullSecrets":                    {"[0].name=pull", "", programs},
	"agent.flags":                          {".reserve=0.05", "", agent},
	"agent.nodeSelector":                   {".pool=apps", "", agent},
	"agent.resources.requests.cpu":         {"30m", "", agent},
	"agent.resources.requests.memory":      {"40Mi", "", agent},
	"agent.resources.limits.memory":        {"99Mi", "", agent},
	"controller.replicas":                  {"3", "", controller},
	"controller.flags":                     {".dead-band=0.2", "", controller},
	"controller.resources.requests.cpu":    {"30m", "", controller},
	"controller.resources.requests.memory": {"99Mi", "", controller},
	"controller.resources.limits.memory":   {"1Gi", "", controller},
	"monitoring.podMonitor":                {"on", "", monitors},
	"monitoring.rules":                     {"on", "", rules},
	"monitoring.labels":                    {".release=prometheus", allOn, monitors + " " + rules},
	"monitoring.dashboards":                {"true", "", dashboards},
	"networkPolicy.enabled":                {"true", "", policies + " NetworkPolicy/mbcas-restore"},
	"networkPolicy.metricsFrom":            {".team=monitoring", "networkPolicy.enabled=true", policies},
	"users.role": {
		"true", "", "ClusterRole/mbcas-plugin ClusterRole/mbcas-plugin-resize Role/mbcas-plugin",
	},
	"users.subjects": {
		"[0].kind=Group,users.subjects[0].name=devs", "users.role=true",
		"ClusterRoleBinding/mbcas-plugin RoleBinding/mbcas-plugin",
	},
	"crds.install":      {"false", "", crds},
	"criticalPodsQuota": {"false", "", "ResourceQuota/mbcas-critical-pods"},
	"uninstall.restore": {"false", "", hook},
	"uninstall.timeout": {"9m", "", hook},
}

// TestEveryValueCounts: each value of values.yaml changes the objects that it is about, and no others.
func TestEveryValueCounts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	must.Succeed(t, err)
	var defaults map[string]any
	must.Succeed(t, yaml.Unmarshal(text, &defaults))
	have, want := slices.Sorted(maps.Keys(effects)), slices.Sorted(slices.Values(paths("", defaults)))
	if !slices.Equal(have, want) {
		t.Fatalf("the table has the values %v, values.yaml %v", have, want)
	}
	without := map[string]map[string]object{} // by what another value needs
	for path, e := range effects {
		if without[e.with] == nil {
			without[e.with] = byKey(rendered(t, "--set", e.with))
		}
		before := without[e.with]
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			set := path + "=" + e.set
			if strings.HasPrefix(e.set, ".") || strings.HasPrefix(e.set, "[") {
				set = path + e.set
			}
			after := byKey(rendered(t, "--set", e.with, "--set", set))
			var changed []string
			for k, o := range before {
				if !reflect.DeepEqual(o, after[k]) {
					changed = append(changed, o.name())
				}
			}
			for k, o := range after {
				if before[k] == nil {
					changed = append(changed, o.name())
				}
			}
			slices.Sort(changed)
			want := strings.Fields(strings.ReplaceAll(e.objects, "hook ", "hook_"))
			slices.Sort(want)
			if got := strings.ReplaceAll(strings.Join(changed, " "), "hook ", "hook_"); got != strings.Join(want, " ") {
				t.Errorf("%s changes %s, want %s", set, got, want)
			}
		})
	}
}

// paths are those of the leaves; a list and an empty map is one.
func paths(prefix string, values map[string]any) (all []string) {
	for name, v := range values {
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			all = append(all, paths(prefix+name+".", m)...)
		} else {
			all = append(all, prefix+name)
		}
	}
	return all
}

func byKey(all []object) map[string]object {
	found := map[string]object{}
	for _, o := range all {
		found[key(o)] = o
	}
	return found
}

// everything are values with which the chart renders all that it can.
const everything = "mode=enforce,image.registry=example.com/mbcas,image.tag=v1,image.pullPolicy=Always," +
	"image.pullSecrets[0].name=pull,agent.flags.reserve=0.05,agent.flags.interval=2s,agent.nodeSelector.pool=apps," +
	"agent.resources.requests.cpu=1,controller.flags.resizes-burst=2000000," + allOn + ",monitoring.dashboards=true," +
	"monitoring.labels.release=prometheus,networkPolicy.enabled=true,networkPolicy.metricsFrom.team=monitoring," +
	"users.role=true,users.subjects[0].kind=Group,users.subjects[0].name=devs,users.subjects[1].kind=ServiceAccount," +
	"users.subjects[1].name=ci,users.subjects[1].namespace=build,uninstall.timeout=9m"

// contents are what stands at a place of an object with everything on.
var contents = []struct{ object, path, want string }{
	{agent, "spec.template.spec.containers.0.image", `"example.com/mbcas/agent:v1"`},
	{agent, "spec.template.spec.containers.0.imagePullPolicy", `"Always"`},
	{agent, "spec.template.spec.containers.0.args", `["--cgroup-root=/host/cgroup","--interval=2s","--reserve=0.05"]`},
	{agent, "spec.template.spec.nodeSelector", `{"kubernetes.io/os":"linux","pool":"apps"}`},
	{agent, "spec.template.spec.imagePullSecrets", `[{"name":"pull"}]`},
	{agent, "spec.template.spec.containers.0.resources.requests", `{"cpu":1,"memory":"32Mi"}`},
	{controller, "spec.template.spec.containers.0.image", `"example.com/mbcas/controller:v1"`},
	{controller, "spec.template.spec.containers.0.args", `["--mode=$(MBCAS_MODE)","--resizes-burst=2000000"]`},
	{controller, "spec.template.spec.containers.0.env.0", `{"name":"MBCAS_MODE","value":"enforce"}`},
	{"ValidatingAdmissionPolicy/mbcas-controller", "spec.variables.0", `{"expression":"'enforce'","name":"byDefault"}`},
	{"CronJob/mbcas-restore", "spec.suspend", "true"},
	{
		"CronJob/mbcas-restore", "spec.jobTemplate.spec.template.spec.containers.0.image",
		`"example.com/mbcas/controller:v1"`,
	},
	{hook, "metadata.annotations", `{"helm.sh/hook":"pre-delete",` +
		`"helm.sh/hook-delete-policy":"before-hook-creation,hook-succeeded",` +
		`"helm.sh/hook-output-log-policy":"hook-succeeded,hook-failed"}`},
	{hook, "spec.backoffLimit", "0"},
	{hook, "spec.activeDeadlineSeconds", "600"},
	{hook, "spec.template.spec.serviceAccountName", `"mbcas-controller"`},
	{hook, "spec.template.spec.containers.0.env.0", `{"name":"MBCAS_RESTORE_TIMEOUT","value":"9m"}`},
	{"PodMonitor/mbcas-agent", "metadata.labels.release", `"prometheus"`},
	{rules, "metadata.labels.release", `"prometheus"`},
	{"ConfigMap/mbcas-dashboard-node", "metadata.labels.grafana_dashboard", `"1"`},
	{"PodMonitor/mbcas-agent", "spec.podMetricsEndpoints",
		`[{"path":"/metrics","port":"http","relabelings":` + nodeLabel + `}]`},
	{"PodMonitor/mbcas-controller", "spec.podMetricsEndpoints",
		`[{"path":"/metrics","port":"metrics","relabelings":` + nodeLabel + `}]`},
	{"NetworkPolicy/mbcas-agent", "spec.ingress",
		`[{"from":[{"namespaceSelector":{"matchLabels":{"team":"monitoring"}}}],` +
			`"ports":[{"port":"http","protocol":"TCP"}]}]`},
	{"NetworkPolicy/mbcas-agent", "spec.egress", `[{"ports":[{"protocol":"TCP"}]}]`},
	{"NetworkPolicy/mbcas-controller", "spec.ingress.0", `{"ports":[{"port":"health","protocol":"TCP"}]}`},
	{"NetworkPolicy/mbcas-restore", "spec.ingress", "null"},
	{"RoleBinding/mbcas-plugin", "roleRef.kind", `"Role"`},
	{"ClusterRoleBinding/mbcas-plugin", "subjects",
		`[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"devs"},` +
			`{"kind":"ServiceAccount","name":"ci","namespace":"build"}]`},
}

// nodeLabel gives each series the label by which rules and dashboards tell nodes apart.
const nodeLabel = `[{"sourceLabels":["__meta_kubernetes_pod_node_name"],"targetLabel":"node"}]`

// TestContents: values arrive where they belong, in the form that Kubernetes reads.
func TestContents(t *testing.T) {
	all := map[string]object{}
	for _, o := range rendered(t, "--set", everything) {
		all[o.name()] = o
	}
	for _, c := range contents {
		got, err := json.Marshal(within(map[string]any(all[c.object]), strings.Split(c.path, ".")))
		if err != nil || all[c.object] == nil {
			t.Fatalf("%s: %v, rendered: %v", c.object, err, all[c.object] != nil)
		}
		if string(got) != c.want {
			t.Errorf("%s: %s is %s, want %s", c.object, c.path, got, c.want)
		}
	}
	// The Job that runs before the removal is the one of the CronJob, but for its time.
	job := clone(all[hook])
	const timeout = "spec.template.spec.containers.0.env.0"
	within(map[string]any(job), strings.Split(timeout, ".")).(map[string]any)["value"] = "30m"
	want := at(all["CronJob/mbcas-restore"], "spec", "jobTemplate", "spec", "template")
	if faults := unequal("template", want, at(job, "spec", "template")); len(faults) > 0 {
		t.Errorf("the pod of the hook differs from that of the CronJob: %v", faults)
	}
}

// within is what stands at a path, in which a number is a place in a list.
func within(v any, path []string) any {
	for _, step := range path {
		switch m := v.(type) {
		case map[string]any:
			v = m[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(m) {
				return nil
			}
			v = m[i]
		}
	}
	return v
}

// TestStrict: with everything on, the API's own types know every field that is rendered.
func TestStrict(t *testing.T) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		must.Succeed(t, add(types))
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	all := rendered(t, "--set", everything)
	for _, o := range all {
		text, err := json.Marshal(o)
		must.Succeed(t, err)
		if _, _, err := decoder.Decode(text, nil, nil); err != nil {
			t.Errorf("%s: %v", o.name(), err)
		}
		if ns := at(o, "metadata", "namespace"); ns != nil && ns != "mbcas-system" {
			t.Errorf("%s is in namespace %v", o.name(), ns)
		}
		for name, want := range helmLabels {
			if got := at(o, "metadata", "labels", name); got != want {
				t.Errorf("%s has the label %s=%v, want %v", o.name(), name, got, want)
			}
		}
	}
	if len(all) < 60 {
		t.Errorf("%d objects with everything on, want at least 60", len(all))
	}
}

// TestMonitors: auto asks the cluster for the kind, on and off do not; what YAML 1.1 makes of an unquoted on or off is
// the same.
func TestMonitors(t *testing.T) {
	const group = "--api-versions=monitoring.coreos.com/v1/"
	for kind, made := range map[string]struct {
		value string
		n     int
	}{"PodMonitor": {"monitoring.podMonitor", 2}, "PrometheusRule": {"monitoring.rules", 1}} {
		for _, c := range []struct {
			args string
			want int
		}{
			{"", 0},
			{group + kind, made.n},
			{group + "Another", 0},
			{"--set " + made.value + "=off " + group + kind, 0},
			{"--set " + made.value + "=false " + group + kind, 0},
			{"--set " + made.value + "=on", made.n},
			{"--set " + made.value + "=true", made.n},
		} {
			n := 0
			for _, o := range rendered(t, strings.Fields(c.args)...) {
				if strings.HasPrefix(fmt.Sprint(o["apiVersion"]), "monitoring.coreos.com/") {
					n++
				}
			}
			if n != c.want {
				t.Errorf("%s, %q: %d objects of the Prometheus Operator, want %d", kind, c.args, n, c.want)
			}
		}
	}
}

// TestNotes: what the user reads after an installation fits what was installed.
func TestNotes(t *testing.T) {
	const (
		monitors = "No PodMonitor and no PrometheusRule is made"
		label    = "kubectl label namespace mbcas-system pod-security.kubernetes.io/enforce=privileged"
	)
	for set, c := range map[string]struct{ has, lacks []string }{
		"": {
			[]string{
				"MBCAS dev is installed in mode recommend. It changes no pod", "kubectl get podallocations -A",
				"kubectl mbcas doctor", "kubectl label namespace NAME mbcas.io/mode=enforce", monitors, label,
				"helm uninstall mbcas --namespace mbcas-system --timeout 6m", "The CRDs and their objects stay",
			},
			[]string{"create job"},
		},
		"mode=enforce,monitoring.podMonitor=off": {
			[]string{"in mode enforce. It resizes pods", "No PrometheusRule is made"}, []string{"PodMonitor"},
		},
		"monitoring.podMonitor=on,monitoring.rules=off": {nil, []string{"monitoring.coreos.com"}},
		"mode=restore,uninstall.timeout=20m": {
			[]string{"in mode restore. It returns", "--timeout 22m"}, nil,
		},
		"uninstall.restore=false,crds.install=false": {
			[]string{"create job restore-all --from=cronjob/mbcas-restore"}, []string{"--timeout"},
		},
	} {
		args := []string{"install", "mbcas", chart, "--namespace", "mbcas-system", "--dry-run=client", "--set", set}
		stdout, stderr, err := run(t, args...)
		_, notes, ok := strings.Cut(stdout, "\nNOTES:\n")
		if err != nil || !ok {
			t.Fatalf("%s: %v\n%s", set, err, stderr)
		}
		for _, text := range c.has {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: no %q in\n%s", set, text, notes)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(notes, text) {
				t.Errorf("%s: %q in\n%s", set, text, notes)
			}
		}
	}
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/program"
)

// schema is a part of a JSON schema, draft-07.
type schema map[string]any

// value is one value of the chart.
type value struct {
	path        string // with dots
	def         any
	schema      schema
	description string
}

// Parts of schemas that several values have.
var (
	boolean = schema{"type": "boolean"}
	// automatic makes objects of a kind that the cluster may not serve. on and off are booleans in YAML 1.1.
	automatic = schema{"enum": []any{"auto", "on", "off", true, false}}
	// labels are a map of labels. Keys are names of any kind, so the map is closed by a pattern.
	labels = schema{
		"type": "object", "additionalProperties": false,
		"patternProperties": schema{`^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`: schema{
			"type": "string", "pattern": `^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`,
		}},
	}
	// amount is a quantity of Kubernetes; cpu: 0.5 and memory: 67108864 are numbers in YAML.
	amount = schema{"type": []string{"string", "number"}, "pattern": quantity, "exclusiveMinimum": 0}
	word   = schema{"type": "string", "minLength": 1}
)

// values are all values, in the order of values.yaml.
func values(agent, controller []program.Flag) ([]value, error) {
	agentFlags, err := flagSchema("mbcas-agent", agent)
	if err != nil {
		return nil, err
	}
	controllerFlags, err := flagSchema("mbcas-controller", controller)
	if err != nil {
		return nil, err
	}
	return slices.Concat(images(), ofAgent(agentFlags), ofController(controllerFlags), ofWeights(), others()), nil
}

func images() []value {
	return []value{
		{
			"mode", "recommend", schema{"type": "string", "enum": []string{"recommend", "enforce", "restore"}},
			"What MBCAS does in namespaces without the label mbcas.io/mode: recommend changes no pod, enforce " +
				"resizes pods, restore returns them to their declared limits. The admission policy of the " +
				"controller gets it, too.",
		},
		{
			"image.registry", "mbcas.io", schema{"type": "string", "pattern": registry},
			"Registry, and path in it, of the images agent, controller and weights.",
		},
		{
			"image.tag", "", schema{"type": "string", "pattern": `^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`},
			"Tag of these images; empty: the version of the program that the chart is for. A tag such as 1.10 " +
				"has to be quoted (--set-string).",
		},
		{
			"image.pullPolicy", "", schema{"type": "string", "enum": []string{"", "Always", "IfNotPresent", "Never"}},
			"Pull policy of these images; empty: what Kubernetes does for the tag.",
		},
		{
			"image.pullSecrets", []any{}, schema{"type": "array", "items": schema{
				"type": "object", "additionalProperties": false, "required": []string{"name"},
				"properties": schema{"name": described(word, "Name of the Secret.")},
			}},
			"Secrets of mbcas-system with access to the registry, each as {name: NAME}.",
		},
	}
}

// ofAgent are the values of the agent.
func ofAgent(flags schema) []value {
	return []value{
		{
			"agent.flags", map[string]any{}, flags,
			"Flags of mbcas-agent without the dashes, such as {reserve: 0.05}. Names and types are those of " +
				"the program.",
		},
		{
			"agent.nodeSelector", map[string]any{}, labels,
			"Labels of the nodes that get an agent, beside kubernetes.io/os: linux. Pods of other nodes are " +
				"not resized.",
		},
		{
			"agent.resources.requests.cpu", "20m", amount,
			"CPU request of an agent. It has no CPU limit, and none is accepted: a throttled agent misreads " +
				"the node.",
		},
		{"agent.resources.requests.memory", "32Mi", amount, "Memory request of an agent."},
		{"agent.resources.limits.memory", "64Mi", amount, "Memory limit of an agent."},
	}
}

// ofController are the values of the controller.
func ofController(flags schema) []value {
	return []value{
		{
			"controller.replicas", 2, schema{"type": "integer", "minimum": 1},
			"Replicas of the controller. They share the nodes, and each holds all pods in memory.",
		},
		{
			"controller.flags", map[string]any{}, flags,
			"Flags of mbcas-controller without the dashes, such as {dead-band: 0.1}. Names and types are " +
				"those of the program.",
		},
		{
			"controller.metrics.secure", false, boolean,
			"The controller serves its metrics over HTTPS, to accounts with the ClusterRole mbcas-metrics-reader. " +
				"Its PodMonitor gets an account with that role, and a Secret with the account's token.",
		},
		{
			"controller.metrics.certificateSecret", "", schema{"type": "string", "pattern": secretName},
			"Secret of mbcas-system with the certificate of these metrics, tls.crt, and its key, tls.key, read " +
				"again when they change; empty: a self-signed certificate.",
		},
		{
			"controller.metrics.serverName", "", schema{"type": "string", "pattern": serverName},
			"Name in that certificate. Prometheus checks it, with ca.crt of the same Secret; empty: it accepts any " +
				"certificate.",
		},
		{
			"controller.resources.requests.cpu", "20m", amount,
			"CPU request of a replica. A CPU limit is not accepted: resizes would wait.",
		},
		{"controller.resources.requests.memory", "64Mi", amount, "Memory request of a replica."},
		{
			"controller.resources.limits.memory", "512Mi", amount,
			"Memory limit of a replica: 388Mi measured with 30,000 pods, and 14 KiB for each pod more.",
		},
	}
}

// ofWeights are the values of mbcas-weights.
func ofWeights() []value {
	return []value{
		{
			"weights.enabled", false, boolean,
			"mbcas-weights beside each agent: CPU class and weight, for the pods of namespaces with the label " +
				"mbcas.io/weights=allow. It runs as root; read docs/weights.md first.",
		},
		{
			"weights.kubepods", "/sys/fs/cgroup/kubepods.slice", schema{"type": "string", "pattern": kubepods},
			"The nodes' kubepods cgroup of the cpu controller, all that mbcas-weights sees of a node: " +
				"/sys/fs/cgroup/kubepods with the cgroupfs driver, /sys/fs/cgroup/cpu,cpuacct/kubepods.slice on " +
				"cgroup v1.",
		},
	}
}

// others are the values of what stands beside the programs.
func others() []value {
	return []value{
		{
			"monitoring.podMonitor", "auto", automatic,
			"PodMonitors of the Prometheus Operator: on, off, or auto, which makes them where the cluster " +
				"serves their kind. helm template knows no cluster, so there auto is off.",
		},
		{
			"monitoring.rules", "auto", automatic,
			"The recording rules and alerts as a PrometheusRule of the Prometheus Operator: on, off or auto, as " +
				"above.",
		},
		{
			"monitoring.labels", map[string]any{}, labels,
			"Labels of the PodMonitors and the PrometheusRule, by which a Prometheus selects them.",
		},
		{
			"monitoring.dashboards", false, boolean,
			"The dashboards, each as a ConfigMap with the label grafana_dashboard, by which the sidecar of " +
				"Grafana's charts finds them.",
		},
		{
			"networkPolicy.enabled", false, boolean,
			"NetworkPolicies: metrics from metricsFrom only, no other connection to the agents, TCP to " +
				"anywhere.",
		},
		{
			"networkPolicy.metricsFrom", map[string]any{}, labels,
			"Labels of the namespaces that may read metrics; empty: none.",
		},
		{
			"defaultLimits.enabled", false, boolean,
			"The policy that gives new pods without a CPU limit one, in namespaces with the label " +
				"mbcas.io/default-limit; needs Kubernetes 1.36. Pods keep it when the policy goes.",
		},
		{"users.role", false, boolean, "The roles mbcas-plugin and mbcas-plugin-resize for users of kubectl mbcas."},
		{
			"users.subjects", []any{}, schema{"type": "array", "items": subject},
			"Users, groups and accounts that get the role mbcas-plugin, each as {kind: Group, name: NAME}; " +
				"needs users.role.",
		},
		{
			"crds.install", true, boolean,
			"The CRDs. They stay when the release is uninstalled. false: you apply them yourself.",
		},
		{
			"criticalPodsQuota", true, boolean,
			"A ResourceQuota that admits critical pods to mbcas-system, which some clusters ask for.",
		},
		{
			"uninstall.restore", true, boolean,
			"Restore the declared limits of all pods before anything is deleted. If one cannot be restored, " +
				"helm uninstall fails and deletes nothing.",
		},
		{
			"uninstall.timeout", "4m", schema{"type": "string", "pattern": `^[1-9][0-9]{0,3}m$`},
			"Time for that restore, in minutes. The --timeout of helm uninstall, 5m by default, has to be " +
				"longer by more than one minute for the Job to say what is left.",
		},
	}
}

// subject is a user, a group or an account that gets a role.
var subject = schema{
	"type": "object", "additionalProperties": false, "required": []string{"kind", "name"},
	"properties": schema{
		"kind": schema{
			"type": "string", "enum": []string{"User", "Group", "ServiceAccount"}, "description": "Kind.",
		},
		"name":      described(word, "Name."),
		"namespace": described(word, "Namespace of a ServiceAccount."),
	},
	"if":   schema{"properties": schema{"kind": schema{"const": "ServiceAccount"}}},
	"then": schema{"required": []string{"namespace"}},
	"else": schema{"not": schema{"required": []string{"namespace"}}},
}

// valuesFile is values.yaml.
func valuesFile(rows []value) (string, error) {
	out := "# Values of the chart, written by tools/chart. values.schema.json refuses all others.\n"
	var open []string
	for _, v := range rows {
		parents := strings.Split(v.path, ".")
		name := parents[len(parents)-1]
		parents = parents[:len(parents)-1]
		if len(parents) == 0 || len(open) == 0 || open[0] != parents[0] {
			out += "\n"
			open = nil
		}
		for i, p := range parents {
			if i >= len(open) || open[i] != p {
				out += strings.Repeat("  ", i) + p + ":\n"
				open = append(open[:i:i], p)
			}
		}
		open = parents
		indent := strings.Repeat("  ", len(parents))
		text, err := yaml.Marshal(map[string]any{name: v.def})
		if err != nil {
			return "", fmt.Errorf("%s: %w", v.path, err)
		}
		out += wrapped(indent+"# ", v.description) + indent + string(text)
	}
	return out, nil
}

// wrapped is a text in lines of 100 characters at most, each behind a prefix.
func wrapped(prefix, text string) (out string) {
	line := prefix
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 100 {
			out += strings.TrimRight(line, " ") + "\n"
			line = prefix
		}
		line += word + " "
	}
	return out + strings.TrimRight(line, " ") + "\n"
}

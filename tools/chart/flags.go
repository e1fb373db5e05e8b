package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/internal/program"
)

// fixed are the flags that are no values, with what sets them. The programs must have each of them.
var fixed = map[string]map[string]string{
	"mbcas-agent": {
		"cgroup-root":  "the volume of the DaemonSet",
		"debug-listen": "kubectl mbcas reads this port",
		"kubeconfig":   "the service account",
		"listen":       "the port of the probes",
		"namespace":    "the policies name mbcas-system",
		"node-name":    "the pod's node",
		"pod-uid":      "the pod",
	},
	"mbcas-controller": {
		"health-address":  "the port of the probes",
		"kubeconfig":      "the service account",
		"leader-elect":    "replicas share the nodes",
		"metrics-address": "the port of the metrics",
		"mode":            "the value mode, which the policy mbcas-controller has to know, too",
		"namespace":       "the policies name mbcas-system",
	},
}

// choices are the words that a flag takes whose type is string.
var choices = map[string][]string{
	"log-level": {"debug", "info", "warn", "error"},
}

// Patterns of the schema.
const (
	duration = `^-?(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$`
	registry = `^[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`
	decimal  = `^-?[0-9]+(\.[0-9]+)?$`
	quantity = `^[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?$`
)

func readFlags(text string) (flags []program.Flag, err error) {
	if err := json.Unmarshal([]byte(text), &flags); err != nil {
		return nil, fmt.Errorf("read the flags: %w in %.200q", err, text)
	}
	return flags, nil
}

// flagSchema accepts the flags of a program, by their type.
func flagSchema(name string, flags []program.Flag) (schema, error) {
	properties := schema{}
	left := len(fixed[name])
	for _, f := range flags {
		if _, ok := fixed[name][f.Name]; ok {
			left--
			continue
		}
		s, err := ofType(f)
		if err != nil {
			return nil, fmt.Errorf("%s --%s: %w", name, f.Name, err)
		}
		s["description"] = usage(f)
		properties[f.Name] = s
	}
	if left != 0 {
		const fault = "%s lacks %d of the flags that tools/chart has as fixed; take them out there"
		return nil, fmt.Errorf(fault, name, left)
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties}, nil
}

func ofType(f program.Flag) (schema, error) {
	switch f.Type {
	case "boolean", "integer":
		return schema{"type": f.Type}, nil
	case "number": // helm --set makes a string of 0.05
		return schema{"type": []string{"number", "string"}, "pattern": decimal}, nil
	case "duration":
		return schema{"type": "string", "pattern": duration}, nil
	}
	words := choices[f.Name]
	if words == nil {
		return nil, fmt.Errorf("takes a string; name its words in the list choices of tools/chart")
	}
	return schema{"type": "string", "enum": words}, nil
}

// usage is what a flag does, with its default.
func usage(f program.Flag) string {
	text := strings.TrimSuffix(f.Usage, ".")
	zero := slices.Contains([]string{"", "0", "0s", "false"}, f.Default)
	if !zero && !strings.Contains(text, "(default") {
		text += fmt.Sprintf(" (default %s)", strings.ToLower(f.Default))
	}
	return text
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// source is a file of config that becomes a template.
type source struct {
	from, to string
	// only is the value that switches the objects on, or "".
	only string
	// edit changes the text of one object.
	edit func(string) (string, error)
}

// marked is what the policy mbcas-controller takes the mode to be; the component enforce replaces the same text.
const marked = `expression: "'recommend'"`

// sources are the files of config that are copied, but for the folders that are copied as a whole.
func sources(root string) ([]source, error) {
	all := []source{
		{from: "base/flowcontrol.yaml", to: "flowcontrol.yaml"},
		{from: "base/namespace.yaml", to: "critical-pods.yaml", only: "criticalPodsQuota", edit: withoutNamespace},
		{from: "components/plugin-users/roles.yaml", to: "plugin-users.yaml", only: "users.role"},
		{from: "components/default-limits/policy.yaml", to: "default-limits.yaml", only: "defaultLimits.enabled"},
		{
			from: "components/secure-metrics/roles/roles.yaml", to: "secure-metrics.yaml",
			only: "controller.metrics.secure",
		},
	}
	folders := []source{
		{from: "crd", to: "crds", only: "crds.install", edit: kept},
		{from: "rbac", to: "rbac"},
		{from: "policy", to: "policy"},
	}
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(root, "config", folder.from, "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(found) < 2 {
			return nil, fmt.Errorf("config/%s: no manifests; give the repository with -root", folder.from)
		}
		for _, path := range found {
			s, name := folder, filepath.Base(path)
			if name == "kustomization.yaml" {
				continue
			}
			s.from, s.to = folder.from+"/"+name, folder.to+"/"+name
			if s.from == "policy/controller.yaml" {
				s.edit = withMode
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// copies are the templates that are copied from config, by their path below root.
func copies(root string) (map[string]string, error) {
	all, err := sources(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, s := range all {
		text, err := os.ReadFile(filepath.Join(root, "config", s.from))
		if err != nil {
			return nil, err
		}
		template, err := s.template(string(text))
		if err != nil {
			return nil, fmt.Errorf("config/%s: %w", s.from, err)
		}
		files[filepath.Join(dir, "templates", s.to)] = template
	}
	return files, nil
}

// template is the file as a template of Helm.
func (s source) template(text string) (string, error) {
	if strings.Contains(text, "{{") {
		return "", errors.New(`has "{{", which Helm would run; write it in another way`)
	}
	var objects []string
	for _, object := range strings.Split("\n"+strings.TrimPrefix(text, "---\n"), "\n---\n") {
		labelled, err := labelled(strings.TrimSpace(object))
		if err != nil {
			return "", err
		}
		if s.edit != nil {
			if labelled, err = s.edit(labelled); err != nil {
				return "", err
			}
		}
		if labelled != "" {
			objects = append(objects, labelled)
		}
	}
	head := fmt.Sprintf("{{- /* Written by tools/chart from config/%s; do not edit. */ -}}\n", s.from)
	body := strings.Join(objects, "\n---\n") + "\n"
	if s.only != "" {
		body = fmt.Sprintf("{{- if .Values.%s }}\n%s{{- end }}\n", s.only, body)
	}
	return head + body, nil
}

// observed are files that templates read as they are, without Helm running what is in them: the rules and the
// dashboards.
var observed = []string{"rules.yaml", "dashboards/*.json"}

// files are copies of what is in monitoring, by their path below root.
func files(root string) (map[string]string, error) {
	from, all := filepath.Join(root, "monitoring"), map[string]string{}
	for _, pattern := range observed {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("monitoring/%s: no file; give the repository with -root", pattern)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(from, path)
			if err != nil {
				return nil, err
			}
			all[filepath.Join(dir, "files", name)] = string(text)
		}
	}
	return all, nil
}

// labelled is an object with Helm's labels.
func labelled(object string) (string, error) {
	const include = "    {{- include \"mbcas.labels\" . | nindent 4 }}\n"
	before, after, ok := strings.Cut(object, "\nmetadata:\n")
	if !ok {
		return "", fmt.Errorf("an object has no metadata: %.60q", object)
	}
	metadata, rest := after, ""
	if i := strings.Index(after, "\nspec:"); i >= 0 {
		metadata, rest = after[:i], after[i:]
	}
	if head, tail, ok := strings.Cut("\n"+metadata, "\n  labels:\n"); ok {
		metadata = strings.TrimPrefix(head+"\n  labels:\n"+include+tail, "\n")
	} else {
		metadata = "  labels:\n" + include + metadata
	}
	return before + "\nmetadata:\n" + metadata + rest, nil
}

// kept is a CRD that stays when the release goes: the declared limits of pods are in objects of its kind.
func kept(object string) (string, error) {
	return replaced(object, "\n  annotations:\n", "\n  annotations:\n    helm.sh/resource-policy: keep\n")
}

// withMode has the policy mbcas-controller know the mode of the installation.
func withMode(object string) (string, error) {
	if !strings.Contains(object, "name: byDefault") {
		return object, nil
	}
	return replaced(object, marked, `expression: "'{{ .Values.mode }}'"`)
}

// withoutNamespace is the object, unless it is the Namespace: Helm keeps its release there.
func withoutNamespace(object string) (string, error) {
	if strings.Contains(object, "\nkind: Namespace\n") {
		return "", nil
	}
	return object, nil
}

// replaced has another text in place of one that has to be there once.
func replaced(text, old, with string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("has %d times the text %q, want it once", n, strings.TrimSpace(old))
	}
	return strings.Replace(text, old, with, 1), nil
}

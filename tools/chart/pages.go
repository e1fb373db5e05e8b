package main

import (
	_ "embed" // the text of the README
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed readme.md
var readmeText string

// readme is the chart's page.
func readme(rows []value) string {
	return strings.NewReplacer(
		"AGENT FLAGS\n", flagTable(rows, "agent.flags"),
		"CONTROLLER FLAGS\n", flagTable(rows, "controller.flags"),
		"VALUES\n", table(rows),
	).Replace(readmeText)
}

// withTable is a page with the table of values between its marks.
func withTable(path string, rows []value) (string, error) {
	const begin, end = "<!-- values -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s has no place for the table of values, between %q and %q", path, begin, end)
	}
	return before + begin + "\n" + table(rows) + "\n" + end + after, nil
}

// chartFile is Chart.yaml. A release gets its version from tools/dist.
func chartFile(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "allocation.*.yaml"))
	if err != nil {
		return "", err
	}
	out := `# Written by tools/chart. A release has other versions.
apiVersion: v2
name: mbcas
type: application
version: 0.0.0-dev
appVersion: dev
kubeVersion: ">=1.33.0-0"
description: Market-based CPU allocation. Changes the CPU limits of running pods in place, by what the kernel reports.
home: https://github.com/mbcas/mbcas
sources:
  - https://github.com/mbcas/mbcas
keywords: [cpu, limits, resize, autoscaling, throttling]
annotations:
  artifacthub.io/license: Apache-2.0
  artifacthub.io/operator: "true"
  artifacthub.io/prerelease: "true"
  artifacthub.io/links: |
    - name: Documentation
      url: https://github.com/mbcas/mbcas/tree/main/docs
    - name: Security
      url: https://github.com/mbcas/mbcas/blob/main/docs/security.md
  artifacthub.io/crds: |
`
	for _, path := range files {
		entry, err := crdEntry(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		out += entry
	}
	sample, err := os.ReadFile(filepath.Join(root, "config", "samples", "demand-signal.yaml"))
	if err != nil {
		return "", err
	}
	out += "  artifacthub.io/crdsExamples: |\n"
	for example := range strings.SplitSeq(uncommented(string(sample)), "\n---\n") {
		out += "    - " + strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n      ") + "\n"
	}
	return out, nil
}

var comment = regexp.MustCompile(`(?m)^\s*#.*\n`)

func uncommented(text string) string { return comment.ReplaceAllString(text, "") }

// crdEntry is what Artifact Hub shows of a CRD.
func crdEntry(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return "", err
	}
	v := crd.Spec.Versions[0]
	about, _, _ := strings.Cut(strings.Join(strings.Fields(v.Schema.OpenAPIV3Schema.Description), " "), ". ")
	const entry = "    - kind: %s\n      version: %s\n      name: %s\n" +
		"      displayName: %[1]s\n      description: %[4]q\n"
	return fmt.Sprintf(entry, crd.Spec.Names.Kind, v.Name, crd.Name, strings.TrimSuffix(about, ".")+"."), nil
}

// Package config has the manifests of MBCAS inside a program: for kubectl mbcas install, and for a release.
//
// Promise: they are what kustomize makes of this folder: TestObjects.
package config

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed base crd rbac policy components/plugin-users components/default-limits components/secure-metrics/roles
var files embed.FS

// Objects are the objects of a kustomization below this folder, such as "base", in its order. Each is the text of a
// file or a part of one, with its comments. The kustomization lists files and other kustomizations, and changes
// nothing.
func Objects(dir string) (all []string, err error) {
	text, err := files.ReadFile(path.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("manifests of config: %w", err)
	}
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		const fault = "config/%s/kustomization.yaml: %w; only one that lists resources can be read"
		return nil, fmt.Errorf(fault, dir, err)
	}
	for _, resource := range k.Resources {
		name := path.Join(dir, resource)
		if path.Ext(name) != ".yaml" {
			more, err := Objects(name)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
			continue
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("manifests of config: %w", err)
		}
		for _, object := range strings.Split("\n"+strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
			all = append(all, strings.TrimSpace(object)+"\n")
		}
	}
	return all, nil
}

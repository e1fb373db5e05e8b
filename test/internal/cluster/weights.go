//go:build linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mbcas/mbcas/test/internal/cgroup"
)

const weightsComponent = "config/components/weights"

// weightsOverlay is an overlay with the component weights. The component has the path of systemd on cgroup v2.
const weightsOverlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - %s
components:
  - %s
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: DaemonSet
      metadata:
        name: mbcas-agent
        namespace: mbcas-system
      spec:
        template:
          spec:
            volumes:
              - name: kubepods
                hostPath:
                  path: %s
                  type: Directory
`

// WithWeights writes a configuration to a folder below out: the one at base with the component weights, for this
// machine, on which the kubelet runs. It returns the folder.
func WithWeights(base, out string) (folder string, err error) {
	kernel, err := cgroup.Detect("/sys/fs/cgroup")
	if err != nil {
		return "", err
	}
	kubepods, err := kernel.Kubepods()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(out, "config")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	var paths []string
	for _, path := range []string{base, weightsComponent} {
		from, err := filepath.Abs(folder)
		if err != nil {
			return "", err
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", err
		}
		if path, err = filepath.Rel(from, path); err != nil {
			return "", err
		}
		paths = append(paths, path)
	}
	text := fmt.Sprintf(weightsOverlay, paths[0], paths[1], kubepods)
	return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644)
}

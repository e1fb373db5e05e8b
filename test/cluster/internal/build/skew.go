package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Skew is the recipe of another version of Kubernetes: what tests that need no node ask
// of it. etcd is the one that its own modules name.
var Skew = Recipe{
	Prefix:  "skew-",
	Modules: []string{KubernetesModule, EtcdModule},
	Programs: []Program{
		{Name: "etcd", Package: EtcdModule},
		{Name: "kube-apiserver", Package: KubernetesModule + "/cmd/kube-apiserver"},
		{Name: "kube-controller-manager", Package: KubernetesModule + "/cmd/kube-controller-manager"},
	},
	Stamps: stampKubernetes,
	Lasts:  "5 to 7 minutes",
}

// SkewVersions are the versions besides the cluster's own, such as "1.35", in order.
// programs is the folder test/cluster/programs; their pins are beside it.
func SkewVersions(programs string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(skewFolder(programs), "v*", "go.mod"))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, path := range found {
		versions = append(versions, strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v"))
	}
	return versions, nil
}

// OpenVersion is the set of programs of a version of Kubernetes, such as "1.35": one of
// SkewVersions, or the cluster's own, which is also that of "". It builds nothing.
func OpenVersion(ctx context.Context, programs, version string) (Cache, error) {
	own, err := Open(ctx, programs, Kubernetes)
	if err != nil {
		return Cache{}, err
	}
	version = strings.TrimPrefix(version, "v")
	pinned := minor(own.Versions[KubernetesModule])
	if version == "" || version == pinned {
		return own, nil
	}
	source := filepath.Join(skewFolder(programs), "v"+version)
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		others, err := SkewVersions(programs)
		if err != nil {
			return Cache{}, err
		}
		return Cache{}, fmt.Errorf("no pins of Kubernetes %q; there are %s and, in %s, %s",
			version, pinned, skewFolder(programs), strings.Join(others, " and "))
	}
	return Open(ctx, source, Skew)
}

func skewFolder(programs string) string { return filepath.Join(filepath.Dir(programs), "skew") }

// minor is 1.36 of v1.36.3.
func minor(version string) string {
	p := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return strings.Join(p[:min(2, len(p))], ".")
}

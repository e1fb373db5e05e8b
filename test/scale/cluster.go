package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// flags are those of the control plane beyond the defaults of Kubernetes: the report names them.
// Requests in flight, watch caches, priority and fairness and the compaction of etcd are as
// Kubernetes has them by default.
var flags = []struct{ program, name, value string }{
	{"etcd", "quota-backend-bytes", "8589934592"},
	{"etcd", "snapshot-count", "10000"},
}

// disclosed are the flags in words, with those that the test server always has.
func disclosed() []string {
	list := []string{
		"kube-apiserver --authorization-mode=Node,RBAC --disable-admission-plugins=ServiceAccount",
		"etcd --unsafe-no-fsync=true (writes do not wait for the disk)",
		"GOGC=150 for both (less of the CPU that all share goes into the collection of garbage)",
	}
	for _, f := range flags {
		list = append(list, fmt.Sprintf("%s --%s=%s", f.program, f.name, f.value))
	}
	return list
}

// openCluster starts an API server and etcd, and installs what MBCAS installs, but no agents and no
// controller.
func openCluster(ctx context.Context, assets string) (*apiserver.Server, error) {
	api, err := apiserver.Open(assets, func(env *envtest.Environment) {
		for _, f := range flags {
			args := env.ControlPlane.Etcd.Configure()
			if f.program == "kube-apiserver" {
				args = env.ControlPlane.GetAPIServer().Configure()
			}
			args.Set(f.name, f.value)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	if err := install(ctx, api.Client, "config/base"); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	return api, nil
}

// leftOut are kinds that need a controller of Kubernetes, or that are there already.
var leftOut = []string{"DaemonSet", "Deployment", "PodDisruptionBudget", "CustomResourceDefinition", "Kustomization"}

// install creates the objects of a kustomization.
func install(ctx context.Context, c client.Client, folder string) error {
	var kustomization struct{ Resources []string }
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &kustomization)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	for _, name := range kustomization.Resources {
		path := filepath.Join(folder, name)
		if strings.HasSuffix(name, ".yaml") {
			err = create(ctx, c, path)
		} else {
			err = install(ctx, c, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create creates the objects of a manifest.
func create(ctx context.Context, c client.Client, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(o.Object) > 0 && !slices.Contains(leftOut, o.GetKind()) {
			err = c.Create(ctx, &o)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: %s %s: %w", file, o.GetKind(), o.GetName(), err)
		}
	}
}

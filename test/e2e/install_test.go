package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/watch"
)

// Versions that are installed: the programs are the same, with images of two tags.
const (
	before = "v0.1.0"
	after  = "v0.2.0"
)

// way is one way to install MBCAS. Each function does as the documentation says.
type way struct {
	install, upgrade, rollback, uninstall func(*testing.T)
	// remove removes everything, also of an installation that has failed.
	remove func()
	// leaves are the names of objects that the documentation says stay, each as a prefix.
	leaves []string
	// gone removes those, and all is gone then.
	gone func(*testing.T)
}

// Objects that outlive an uninstallation, as docs/helm.md and docs/operations.md name them.
var (
	crdsStay = []string{
		"CustomResourceDefinition podallocations.", "CustomResourceDefinition nodeallocations.",
		"CustomResourceDefinition demandsignals.", "PodAllocation ", "NodeAllocation ", "DemandSignal ",
		// Kubernetes makes this of CRDs.
		"APIService v1alpha1.allocation.mbcas.io",
	}
	namespaceStays = []string{
		"Namespace mbcas-system", "Lease mbcas-system/", "ConfigMap mbcas-system/mbcas",
		// Kubernetes makes these in every namespace.
		"ConfigMap mbcas-system/kube-root-ca.crt", "ServiceAccount mbcas-system/default",
	}
)

// TestInstall: MBCAS is installed in recommend mode, enforces, is upgraded, rolled back and uninstalled, by Helm, by
// the plugin and as plain YAML. Neither an upgrade nor a rollback resizes a pod. In the end every pod is at its
// declared limit, and nothing is left but what the documentation names.
func TestInstall(t *testing.T) {
	s := connect(t)
	loadVersions(t)
	for name, w := range map[string]way{"Helm": byHelm(t), "Plugin": byPlugin(t), "YAML": asYAML(t)} {
		t.Run(name, func(t *testing.T) { s.lives(t, "e2e-"+strings.ToLower(name), w) })
	}
}

// loadVersions loads the images with the tags of both versions.
func loadVersions(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	load := []string{"load"}
	for _, tag := range []string{before, after} {
		for _, part := range []string{"agent", "controller"} {
			archive := filepath.Join(dir, part+tag+".tar")
			name := "mbcas.io/" + part + ":" + tag
			output(t, cluster(t.Context(), "image", "--name", name, "-o", archive, "bin/mbcas-"+part))
			load = append(load, archive)
		}
	}
	output(t, cluster(t.Context(), load...))
}

// byHelm: docs/helm.md.
func byHelm(t *testing.T) way {
	program := exec.CommandContext(t.Context(), "go", "tool", "-n", "helm")
	program.Dir = root + "/test/chart"
	helm := strings.TrimSpace(output(t, program))
	run := func(t *testing.T, args ...string) {
		t.Helper()
		output(t, exec.CommandContext(t.Context(), helm, append(args, "--namespace", system)...))
	}
	chart := root + "/charts/mbcas"
	return way{
		install: func(t *testing.T) {
			run(t, "install", "mbcas", chart, "--create-namespace", "--set-string", "image.tag="+before)
		},
		upgrade: func(t *testing.T) {
			run(t, "upgrade", "mbcas", chart, "--reset-then-reuse-values", "--set-string", "image.tag="+after,
				"--set", "agent.flags.reserve=0.08")
		},
		rollback:  func(t *testing.T) { run(t, "rollback", "mbcas") },
		uninstall: func(t *testing.T) { run(t, "uninstall", "mbcas", "--timeout", "6m") },
		leaves:    slices.Concat(crdsStay, namespaceStays),
		gone: func(t *testing.T) {
			for _, kind := range []string{"podallocations", "nodeallocations", "demandsignals"} {
				kubectl(t, "delete", "crd", kind+".allocation.mbcas.io")
			}
			kubectl(t, "delete", "namespace", system)
		},
		remove: func() {
			args := []string{"uninstall", "mbcas", "--namespace", system, "--no-hooks", "--ignore-not-found"}
			_ = exec.Command(helm, args...).Run()
			removeByPlugin()
		},
	}
}

// byPlugin: docs/cli.md. The plugin of each version installs its own.
func byPlugin(t *testing.T) way {
	dir := t.TempDir()
	plugin := func(version string) func(t *testing.T, args ...string) string {
		program := filepath.Join(dir, "kubectl-mbcas-"+version)
		build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version="+version, "-o", program,
			"./cmd/kubectl-mbcas")
		build.Dir = root
		output(t, build)
		return func(t *testing.T, args ...string) string {
			t.Helper()
			return output(t, exec.CommandContext(t.Context(), program, args...))
		}
	}
	older, newer := plugin(before), plugin(after)
	return way{
		install: func(t *testing.T) { older(t, "install") },
		upgrade: func(t *testing.T) {
			if said := newer(t, "upgrade"); !strings.Contains(said, "MBCAS "+before+" -> "+after) {
				t.Errorf("the upgrade does not say what changes:\n%s", said)
			}
		},
		rollback:  func(t *testing.T) { older(t, "upgrade") },
		uninstall: func(t *testing.T) { older(t, "uninstall") },
		leaves:    crdsStay,
		gone:      func(t *testing.T) { older(t, "uninstall", "--keep-crds=false") },
		remove:    removeByPlugin,
	}
}

// removeByPlugin removes what a failed test has left.
func removeByPlugin() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range []string{"--force --timeout=1m", "--keep-crds=false --timeout=1m"} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/kubectl-mbcas", "uninstall"},
			strings.Fields(args)...)...)
		cmd.Dir = root
		_ = cmd.Run() // it fails where nothing is left
	}
}

// asYAML: docs/operations.md, with the files of a release.
func asYAML(t *testing.T) way {
	dir := t.TempDir()
	for _, version := range []string{before, after} {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./tools/dist", "-manifests", "-version="+version,
			"-registry=mbcas.io", "-out="+dir)
		cmd.Dir = root
		output(t, cmd)
	}
	apply := func(version string) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			kubectl(t, "apply", "--server-side", "-f", filepath.Join(dir, version, "install.yaml"))
		}
	}
	return way{
		install: apply(before), upgrade: apply(after), rollback: apply(before),
		uninstall: func(t *testing.T) { output(t, exec.CommandContext(t.Context(), root+"/config/uninstall.sh")) },
		remove:    removeByPlugin,
	}
}

// lives follows one installation from the first command to the last, with load in a namespace of that name.
func (s *suite) lives(t *testing.T, store string, w way) {
	s.isEmpty(t)
	t.Cleanup(w.remove)
	s.namespace(t, store, "recommend")
	for _, app := range managed {
		s.deploy(t, store, app, resources{"100m", "300m", "32Mi"})
	}
	pods := s.pods(t, store)
	w.install(t)
	s.runs(t, before)
	spin(t, pods["web"], 1)
	s.rounds(t, warmUp+5)
	s.resizedNothing(t, store, 0, "in recommend mode")
	s.setMode(t, store, "enforce")
	for _, app := range managed {
		s.raise(t, 3*time.Minute, pods[app])
	}
	resized := s.settled(t, store, 5)

	w.upgrade(t)
	s.runs(t, after)
	s.rounds(t, warmUp+5) // the new agent decides again
	s.resizedNothing(t, store, resized, "by the upgrade")
	w.rollback(t)
	s.runs(t, before)
	s.rounds(t, warmUp+5)
	s.resizedNothing(t, store, resized, "by the rollback")

	job := s.watchRestore(t)
	w.uninstall(t)
	job(t)
	for name, pod := range pods {
		now := s.pod(t, pod)
		if got := limit(now); got != declared || now.UID != pod.UID || s.quota(t, pod) != declared {
			t.Errorf("%s has a limit of %v and a quota of %v, want %v", name, got, s.quota(t, pod), declared)
		}
	}
	for name, all := range s.resizes(t, store) {
		for _, r := range all {
			if r.user != guard.Controller {
				t.Errorf("%s was resized by %s", name, r.user)
			}
		}
	}
	s.leaves(t, w.leaves)
	if w.gone != nil {
		w.gone(t)
		s.leaves(t, nil)
	}
}

// isEmpty removes an installation that another test has left.
func (s *suite) isEmpty(t *testing.T) {
	t.Helper()
	if len(s.traces(t)) > 0 {
		removeByPlugin()
	}
	s.leaves(t, nil)
}

// runs waits until each program is ready in that version alone.
func (s *suite) runs(t *testing.T, version string) {
	t.Helper()
	rolledOut(t, "deployment/mbcas-controller")
	rolledOut(t, "daemonset/mbcas-agent")
	wait(t, 2*time.Minute, "only "+version+" runs", func() (bool, string) {
		for _, p := range s.list(t, system, client.MatchingLabels{"app.kubernetes.io/name": "mbcas"}) {
			if image := p.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+version) {
				return false, p.Name + " has " + image
			}
		}
		return true, ""
	})
}

// resizedNothing says that the pods of a namespace were resized as often as before.
func (s *suite) resizedNothing(t *testing.T, namespace string, before int, when string) {
	t.Helper()
	if now := s.count(t, namespace); now != before {
		t.Errorf("%d resizes %s, want none%s", now-before, when, s.allocations(t, namespace))
	}
}

// watchRestore watches the Job that restores. What it returns says that its pod has run to its end on the node, with
// the rights of the controller.
func (s *suite) watchRestore(t *testing.T) func(*testing.T) {
	t.Helper()
	var mu sync.Mutex
	var ran []string
	record := func(o client.Object) {
		p := o.(*corev1.Pod)
		if p.Namespace != system || p.Labels["job-name"] == "" || p.Status.Phase != corev1.PodSucceeded {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		command := p.Spec.Containers[0].Args[0]
		ran = append(ran, fmt.Sprint(p.Spec.NodeName, " ", p.Spec.ServiceAccountName, " ", command))
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	kinds := map[client.Object]labels.Selector{&corev1.Pod{}: nil}
	if err := watch.Objects(ctx, s.access, kinds, record, record); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		t.Helper()
		want := s.node + " mbcas-controller restore"
		wait(t, 10*time.Second, "the restore is seen to have run", func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(ran, want), fmt.Sprintf("%q, want %q among them", ran, want)
		})
		cancel()
	}
}

// leaves waits until the traces of MBCAS are those that begin so.
func (s *suite) leaves(t *testing.T, allowed []string) {
	t.Helper()
	wait(t, time.Minute, "only what the documentation names is left", func() (bool, string) {
		more := slices.DeleteFunc(s.traces(t), func(name string) bool {
			return slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(name, a) })
		})
		return len(more) == 0, strings.Join(more, ", ")
	})
}

// traces are all objects of the cluster that MBCAS or its installation has made, but for Events and for what belongs to
// the local cluster itself.
func (s *suite) traces(t *testing.T) (found []string) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.access)
	if err != nil {
		t.Fatal(err)
	}
	c, err := metadata.NewForConfig(s.access)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResourcesWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" {
				continue
			}
			all, err := c.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			if err == nil {
				found = append(found, s.ours(r.Kind, gv.Group, all.Items)...)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (s *suite) ours(kind, group string, all []metav1.PartialObjectMetadata) (found []string) {
	for _, o := range all {
		name := kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		named := strings.Contains(o.Name, "mbcas") && !strings.Contains(o.Name, s.node)
		if named || o.Namespace == system || group == "allocation.mbcas.io" {
			found = append(found, name)
		}
	}
	return found
}

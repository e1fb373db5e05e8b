package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// site is a real API server without anything of MBCAS, and an administrator's connection to it.
type site struct {
	*apiserver.Server
	t      *testing.T
	access *cluster.Access
}

func newSite(t *testing.T, controllers ...string) *site {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		apiserver.Start(t) // skips, or fails in CI
	}
	s, err := apiserver.Open(assets, func(env *envtest.Environment) {
		env.CRDDirectoryPaths, env.ErrorIfCRDPathMissing = nil, false
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if len(controllers) > 0 {
		s.Controllers(t, controllers...)
	}
	return &site{Server: s, t: t, access: accessOf(t, s.Config)}
}

// accessOf is a connection of the plugin. No kubelet serves logs there.
func accessOf(t *testing.T, config *rest.Config) *cluster.Access {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster.Access{
		Client: c, Discovery: k.Discovery(), System: kube.SystemNamespace, Now: time.Now,
		Follow: func(context.Context, *corev1.Pod) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("{\"audit\":true}\n2 pods restored\n")), nil
		},
	}
}

func (s *site) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// namespace makes one.
func (s *site) namespace(name string) {
	s.t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = name
	s.ok(s.Client.Create(s.t.Context(), ns))
}

// install installs a version, and returns what it prints.
func (s *site) install(o Options) string {
	s.t.Helper()
	var out strings.Builder
	if err := Install(s.t.Context(), s.access, &out, o); err != nil {
		s.t.Fatalf("install: %v\n%s", err, out.String())
	}
	return out.String()
}

func (s *site) upgrade(o Options) string {
	s.t.Helper()
	var out strings.Builder
	if err := Upgrade(s.t.Context(), s.access, &out, o); err != nil {
		s.t.Fatalf("upgrade: %v\n%s", err, out.String())
	}
	return out.String()
}

// refuses says that a command failed with that error.
func refuses(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	for _, part := range says {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: error %v, want %q in it", what, err, part)
		}
	}
}

// objects are what the server has of the manifests, by name, without what it writes itself.
func (s *site) objects() map[string]string {
	s.t.Helper()
	now, err := (&run{Access: s.access}).read(s.t.Context())
	s.ok(err)
	found := map[string]string{}
	for name, o := range now.live {
		text, err := json.Marshal(o.Object)
		s.ok(err)
		found[name] = string(text)
	}
	return found
}

func (s *site) deployment() *appsv1.Deployment {
	s.t.Helper()
	d := &appsv1.Deployment{}
	s.ok(s.Client.Get(s.t.Context(), client.ObjectKey{Namespace: kube.SystemNamespace, Name: cluster.ControllerName}, d))
	return d
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		apiserver.Start(t) // skips, or fails in CI
	}
	out, err := exec.Command(filepath.Join(assets, "kubectl"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestInstallsWhatConfigHas: the manifests are those that kustomize makes of config/base with these images, and with
// the component enforce in that mode.
func TestInstallsWhatConfigHas(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for mode, components := range map[string]string{"": "[]", "recommend": "[]", "enforce": "[COMPONENTS/enforce]"} {
		dir := t.TempDir()
		up, err := filepath.Rel(dir, filepath.Join(root, "config"))
		if err != nil {
			t.Fatal(err)
		}
		components = strings.ReplaceAll(components, "COMPONENTS", up+"/components")
		text := "resources: [" + up + "/base]\ncomponents: " + components +
			"\nimages:\n- {name: mbcas.io/agent, newName: r/agent, newTag: v1.2.3}\n" +
			"- {name: mbcas.io/controller, newName: r/controller, newTag: v1.2.3}\n"
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := Print(&out, Options{Mode: mode, Registry: "r", Tag: "v1.2.3"}); err != nil {
			t.Fatal(err)
		}
		want, got := parse(t, kubectl(t, "kustomize", dir)), parse(t, out.String())
		if len(got) != len(want) {
			t.Errorf("mode %q: %d objects, kustomize makes %d", mode, len(got), len(want))
		}
		for name, o := range want {
			if !equality.Semantic.DeepEqual(got[name], o) {
				t.Errorf("mode %q: %s: %v", mode, name, differences("", o, got[name]))
			}
		}
	}
}

// parse are the objects of a text by name.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		all[nameOf(u)] = u.Object
	}
	return all
}

// TestOrder: the namespace and the CRDs come first, policies before the rights that they fence, and the programs last.
func TestOrder(t *testing.T) {
	objects, err := manifests(settingsFor(Options{Tag: "dev"}))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	kinds = slices.Compact(kinds)
	if !slices.Equal(kinds[:2], []string{"Namespace", crdKind}) ||
		!slices.Equal(kinds[len(kinds)-3:], []string{"CronJob", "DaemonSet", "Deployment"}) {
		t.Errorf("order %v", kinds)
	}
	if slices.Index(kinds, "ValidatingAdmissionPolicyBinding") > slices.Index(kinds, "ClusterRole") {
		t.Errorf("rights come before the policies that fence them: %v", kinds)
	}
	if have := slices.Sorted(slices.Values(kinds)); !slices.Equal(have, slices.Compact(slices.Clone(have))) {
		t.Errorf("a kind comes twice: %v", kinds)
	}
}

// TestRefusesSkips: one minor version up or down is allowed, and what is no version is not compared.
func TestRefusesSkips(t *testing.T) {
	for _, c := range []struct{ from, to, says string }{
		{"v0.1.0", "v0.1.0", ""},
		{"v0.1.5", "v0.1.0", ""},
		{"v0.1.0", "v0.2.3", ""},
		{"v0.2.0", "v0.1.9", ""},
		{"v0.2.0-rc.1", "v0.2.0", ""},
		{"v1.9.0", "v1.10.0", ""},
		{"dev", "v0.9.0", ""},
		{"v0.9.0", "dev", ""},
		{"v0.1.0", "v0.3.0", "an upgrade from v0.1.0 to v0.3.0 skips a minor version"},
		{"v0.1.0", "v0.4.0", "first go to v0.2,"},
		{"v0.3.0", "v0.1.9", "a downgrade from v0.3.0 to v0.1.9 skips a minor version"},
		{"v0.4.0", "v0.1.9", "first go to v0.3,"},
		{"v0.9.0", "v1.0.0", "go version by version"},
		{"v1.0.0", "v0.0.0", "a downgrade"},
	} {
		err := checkSkew(c.from, c.to)
		if c.says == "" && err != nil {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		} else if c.says != "" {
			refuses(t, c.from+" to "+c.to, err, c.says)
		}
	}
	for version, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v0.1.0-rc.1": "v0.1.0-rc.1", "v0.1.0-5-gabc1234": "dev", "v0.1.0-dirty": "dev", "dev": "dev",
		"7a9e1ec": "dev",
	} {
		if got := tagOf(version); got != want {
			t.Errorf("images of plugin %s have the tag %s, want %s", version, got, want)
		}
	}
	for image, want := range map[string][2]string{
		"mbcas.io/controller:dev":       {"mbcas.io/controller", "dev"},
		"localhost:5000/a/controller":   {"localhost:5000/a/controller", ""},
		"localhost:5000/controller:v1":  {"localhost:5000/controller", "v1"},
		"r/controller@sha256:0123abcde": {"r/controller", "sha256:0123abcde"},
	} {
		if name, tag := splitImage(image); name != want[0] || tag != want[1] {
			t.Errorf("%s: %s and %s, want %v", image, name, tag, want)
		}
	}
}

// TestSaysWhatChanges: on a real API server an installation creates every object, an upgrade names each field that it
// changes, keeps mode and registry, and a second one changes nothing. What cannot be done is refused with what to do.
func TestSaysWhatChanges(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	s.namespace("shop")
	upgrade := func(o Options) error { return Upgrade(ctx, s.access, io.Discard, o) }
	install := func(o Options) error { return Install(ctx, s.access, io.Discard, o) }
	refuses(t, "an upgrade of nothing", upgrade(Options{Tag: "v0.1.0"}), "not installed", "kubectl mbcas install")
	err := install(Options{Tag: "v0.1.0", Namespaces: []string{"nowhere"}})
	refuses(t, "a namespace that is not there", err, "namespace nowhere does not exist")
	err = install(Options{Tag: "v0.1.0", Namespaces: []string{"kube-system"}})
	refuses(t, "a system namespace", err, "never manages")
	if left := s.objects(); len(left) > 0 {
		t.Fatalf("refused installations left %v", left)
	}
	out := s.install(Options{Tag: "v0.1.0", Registry: "registry.example.com/mbcas", Namespaces: []string{"shop"}})
	objects, err := manifests(settingsFor(Options{Tag: "v0.1.0"}))
	s.ok(err)
	for _, want := range []string{
		"Installing MBCAS v0.1.0 in mode recommend.",
		fmt.Sprintf("%d objects: %[1]d created, 0 changed, 0 as they were.", len(objects)),
		"namespace shop: mode enforce.", "changes no pod", "kubectl mbcas report -A",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("install printed %q, want %q in it", out, want)
		}
	}
	shop := &corev1.Namespace{}
	s.ok(s.Client.Get(ctx, client.ObjectKey{Name: "shop"}, shop))
	if shop.Labels[kube.ModeLabel] != "enforce" {
		t.Errorf("labels of namespace shop: %v", shop.Labels)
	}
	err = install(Options{Tag: "v0.1.0"})
	refuses(t, "a second installation", err, "MBCAS v0.1.0 is installed already", "kubectl mbcas upgrade")
	refuses(t, "a skipped version", upgrade(Options{Tag: "v0.3.0"}), "first go to v0.2")

	out = s.upgrade(Options{Tag: "v0.2.0", Mode: "enforce"})
	for _, want := range []string{
		"MBCAS v0.1.0 -> v0.2.0, mode recommend -> enforce.",
		"Deployment mbcas-controller: spec.template.spec.containers[0].env[0].value: recommend -> enforce\n",
		"Deployment mbcas-controller: spec.template.spec.containers[0].image: registry.example.com/mbcas/controller:v0.1.0 " +
			"-> registry.example.com/mbcas/controller:v0.2.0\n",
		"ValidatingAdmissionPolicy mbcas-controller: spec.variables[0].expression: 'recommend' -> 'enforce'\n",
		fmt.Sprintf("%d objects: 0 created, 4 changed, %d as they were.", len(objects), len(objects)-4),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("upgrade printed %q, want %q in it", out, want)
		}
	}
	out = s.upgrade(Options{Tag: "v0.2.0"})
	if !strings.Contains(out, "mode enforce -> enforce") || !strings.Contains(out, "0 created, 0 changed") {
		t.Errorf("a second upgrade printed %q", out)
	}
	out = s.upgrade(Options{Tag: "v0.1.0", Mode: "recommend"}) // back
	if c := s.deployment().Spec.Template.Spec.Containers[0]; !strings.Contains(out, "v0.2.0 -> v0.1.0") ||
		c.Image != "registry.example.com/mbcas/controller:v0.1.0" || c.Env[0].Value != "recommend" {
		t.Errorf("after the way back the controller has %s and %v; printed %q", c.Image, c.Env, out)
	}
	s.conflict()
	s.forbidden()
	s.beingDeleted()
}

// conflict: a field that another client has set is not overwritten unless it is forced.
func (s *site) conflict() {
	s.t.Helper()
	d := s.deployment()
	before := client.StrategicMergeFrom(d.DeepCopy())
	d.Spec.Template.Spec.Containers[0].Env[0].Value = "restore"
	s.ok(s.Client.Patch(s.t.Context(), d, before, client.FieldOwner("kubectl-set")))
	o := Options{Tag: "v0.1.0", Mode: "enforce"}
	err := Upgrade(s.t.Context(), s.access, io.Discard, o)
	refuses(s.t, "a conflict", err, "Deployment mbcas-controller", `conflict with "kubectl-set"`, "--force-conflicts")
	o.Force = true
	s.upgrade(o)
	if mode := s.deployment().Spec.Template.Spec.Containers[0].Env[0].Value; mode != "enforce" {
		s.t.Errorf("mode %s after an upgrade by force", mode)
	}
}

// forbidden: without the rights of an administrator nothing is read or written, and the error says what is missing.
func (s *site) forbidden() {
	s.t.Helper()
	config := s.User(s.t, "developer").Config()
	access := accessOf(s.t, config)
	err := Upgrade(s.t.Context(), access, io.Discard, Options{Tag: "v0.1.0"})
	refuses(s.t, "a user without rights", err, "rights of a cluster administrator")
	access.System = "elsewhere"
	err = Upgrade(s.t.Context(), access, io.Discard, Options{Tag: "v0.1.0"})
	refuses(s.t, "another namespace", err, "mbcas-system only")
}

// beingDeleted: while its namespace or a CRD is being deleted, MBCAS cannot be installed.
func (s *site) beingDeleted() {
	s.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind(crdKind)
	crd.SetName(cluster.CRDName)
	finalizers := func(list string) {
		s.t.Helper()
		patch := []byte(`{"metadata":{"finalizers":` + list + `}}`)
		s.ok(s.Client.Patch(s.t.Context(), crd, client.RawPatch(mergePatch, patch)))
	}
	finalizers(`["example.com/keeps"]`)
	s.ok(s.Client.Delete(s.t.Context(), crd))
	refuses(s.t, "a CRD that is being deleted", Upgrade(s.t.Context(), s.access, io.Discard, Options{Tag: "v0.1.0"}),
		crdKind+" "+cluster.CRDName+" is being deleted", "kubectl wait")
	finalizers(`[]`)
	ns := &corev1.Namespace{}
	ns.Name = kube.SystemNamespace
	s.ok(s.Client.Delete(s.t.Context(), ns)) // no controller empties it here
	err := Upgrade(s.t.Context(), s.access, io.Discard, Options{Tag: "v0.1.0"})
	refuses(s.t, "a namespace that is being deleted", err, "is being deleted", "kubectl wait")
}

// TestOldCluster: a cluster that cannot resize pods is refused before anything is asked of it.
func TestOldCluster(t *testing.T) {
	a := &cluster.Access{System: kube.SystemNamespace, Discovery: oldCluster{}, Now: time.Now}
	err := Install(t.Context(), a, io.Discard, Options{Tag: "v0.1.0"})
	refuses(t, "an old cluster", err, "cannot resize pods", "Kubernetes 1.33 or later")
}

type oldCluster struct{ cluster.Discovery }

func (oldCluster) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "pods"}}}, nil
}

// TestRefusesHelm: an installation that belongs to Helm is not touched. What a release leaves when it is uninstalled
// does not belong to it.
func TestRefusesHelm(t *testing.T) {
	s := newSite(t)
	s.install(Options{Tag: "v0.1.0"})
	own := func(u client.Object) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},
			"annotations":{"meta.helm.sh/release-name":"cpu"}}}`)
		s.ok(s.Client.Patch(t.Context(), u, client.RawPatch(mergePatch, patch)))
	}
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind(crdKind)
	crd.SetName(cluster.CRDName)
	own(crd)
	s.upgrade(Options{Tag: "v0.1.0"})
	own(s.deployment())
	before := s.objects()
	for want, do := range map[string]func() error{
		"helm upgrade cpu charts/mbcas --namespace mbcas-system": func() error {
			return Upgrade(t.Context(), s.access, io.Discard, Options{Tag: "v0.2.0"})
		},
		"installed by Helm as release cpu": func() error {
			return Install(t.Context(), s.access, io.Discard, Options{Tag: "v0.2.0", Force: true})
		},
		"helm uninstall cpu --namespace mbcas-system --timeout 6m": func() error {
			return Uninstall(t.Context(), s.access, io.Discard, RemoveOptions{Force: true, Timeout: time.Minute})
		},
	} {
		refuses(t, want, do(), want)
	}
	if !equality.Semantic.DeepEqual(s.objects(), before) {
		t.Error("an object of Helm has changed")
	}
	patch := []byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":null}}}`)
	s.ok(s.Client.Patch(t.Context(), s.deployment(), client.RawPatch(mergePatch, patch)))
	err := Uninstall(t.Context(), s.access, io.Discard, RemoveOptions{Force: true, Timeout: time.Minute})
	refuses(t, "a chart without a release", err, "no release is named", "docs/helm.md")
	err = Upgrade(t.Context(), s.access, io.Discard, Options{Tag: "v0.2.0", Force: true})
	refuses(t, "a chart without a release", err, "no release is named", "docs/helm.md")
}

// TestRefusedWhole: an upgrade whose last object is refused has written none before it.
func TestRefusedWhole(t *testing.T) {
	s := newSite(t)
	s.install(Options{Tag: "v0.1.0"})
	d := s.deployment()
	before := client.StrategicMergeFrom(d.DeepCopy())
	d.Spec.Template.Spec.Containers[0].Env[0].Value = "restore"
	s.ok(s.Client.Patch(t.Context(), d, before, client.FieldOwner("kubectl-set")))
	all := s.objects()
	err := Upgrade(t.Context(), s.access, io.Discard, Options{Tag: "v0.2.0", Mode: "enforce"})
	refuses(t, "a conflict", err, "nothing was written", "Deployment mbcas-controller", "--force-conflicts")
	now := s.objects()
	for name := range all {
		if now[name] != all[name] {
			t.Errorf("%s has changed: %s, it was %s", name, now[name], all[name])
		}
	}
}

// TestOutlastsErrors: an error of the API server that passes does not end waiting, one that stays is said at the end of
// the time, and any other ends it at once.
func TestOutlastsErrors(t *testing.T) {
	objects := schema.GroupResource{Resource: "pods"}
	for _, passing := range []error{
		apierrors.NewInternalError(errors.New("etcd has no leader")), apierrors.NewTooManyRequests("busy", 1),
		apierrors.NewServerTimeout(objects, "list", 1), apierrors.NewServiceUnavailable("restarts"),
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
	} {
		r := &run{Access: &cluster.Access{Now: time.Now}, out: io.Discard}
		asked := 0
		err := r.until(t.Context(), time.Hour, func(context.Context) (string, error) {
			if asked++; asked == 1 {
				return "", fmt.Errorf("list pods: %w", passing)
			}
			return "", nil
		})
		if err != nil || asked != 2 {
			t.Errorf("%v: asked %d times, then %v", passing, asked, err)
		}
		err = r.until(t.Context(), -time.Second, func(context.Context) (string, error) { return "", passing })
		refuses(t, "one that stays", err, passing.Error())
		err = explained("read", &unstructured.Unstructured{Object: map[string]any{"kind": "Pod"}}, passing)
		refuses(t, "its advice", err, "can be repeated")
	}
	r := &run{Access: &cluster.Access{Now: time.Now}, out: io.Discard}
	forbidden := apierrors.NewForbidden(objects, "web", errors.New("no"))
	err := r.until(t.Context(), time.Hour, func(context.Context) (string, error) { return "", forbidden })
	if !apierrors.IsForbidden(err) {
		t.Errorf("without the rights: %v", err)
	}
}

// TestDryRunWritesNothing: with --dry-run neither an installation, nor an upgrade, nor an uninstallation writes
// anything, and each says what it would do.
func TestDryRunWritesNothing(t *testing.T) {
	s := newSite(t)
	s.namespace("shop")
	out := s.install(Options{Tag: "v0.1.0", DryRun: true, Namespaces: []string{"shop"}})
	if left := s.objects(); len(left) > 0 || !strings.Contains(out, "nothing was written") {
		t.Errorf("a dry run left %v, and printed %q", left, out)
	}
	s.install(Options{Tag: "v0.1.0"})
	for _, dir := range components {
		added, err := objectsOf(dir)
		s.ok(err)
		for _, o := range added {
			s.ok(s.Client.Create(t.Context(), o))
		}
	}
	before := s.objects()
	out = s.upgrade(Options{Tag: "v0.2.0", DryRun: true, Namespaces: []string{"shop"}})
	if !strings.Contains(out, "mbcas.io/agent:v0.1.0 -> mbcas.io/agent:v0.2.0") ||
		!strings.Contains(out, "nothing was written") {
		t.Errorf("the dry run of an upgrade printed %q", out)
	}
	var text strings.Builder
	s.ok(Uninstall(t.Context(), s.access, &text, RemoveOptions{DryRun: true, KeepCRDs: true, Timeout: time.Minute}))
	out = text.String()
	if !strings.Contains(out, "0 pods would be restored") || !strings.Contains(out, "  Namespace mbcas-system\n") ||
		!strings.Contains(out, "  ClusterRole mbcas-plugin-resize\n") ||
		!strings.Contains(out, "  ClusterRole mbcas-metrics-reader\n") ||
		!strings.Contains(out, "  MutatingAdmissionPolicy mbcas-default-limits\n") || strings.Contains(out, crdKind) {
		t.Errorf("the dry run of an uninstallation printed %q", out)
	}
	shop := &corev1.Namespace{}
	s.ok(s.Client.Get(t.Context(), client.ObjectKey{Name: "shop"}, shop))
	if !equality.Semantic.DeepEqual(s.objects(), before) || shop.Labels[kube.ModeLabel] != "" {
		t.Error("a dry run changed an object")
	}
}

// TestNamesLabelled: an installation, and its dry run before it, names the namespaces that a label from before has enforced
// at once, with the command that removes it; no other, and none of the system.
func TestNamesLabelled(t *testing.T) {
	s := newSite(t)
	for name, mode := range map[string]string{
		"shop": "enforce", "watched": "recommend", "odd": "enforced", "plain": "", "kube-system": "enforce",
	} {
		if name != "kube-system" {
			s.namespace(name)
		}
		if mode != "" {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"mbcas.io/mode":%q}}}`, mode)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			s.ok(s.Client.Patch(t.Context(), ns, client.RawPatch(mergePatch, patch)))
		}
	}
	const first = "Namespaces that have the label mbcas.io/mode=enforce already: shop. Their pods are resized as soon as MBCAS runs.\n" +
		"To prevent that, first: kubectl label namespace -l mbcas.io/mode=enforce mbcas.io/mode-\n"
	const then = "It resizes pods of shop, by the label mbcas.io/mode=enforce.\n"
	out := s.install(Options{Tag: "v0.1.0", DryRun: true})
	if !strings.Contains(out, first) {
		t.Errorf("the dry run printed %q", out)
	}
	out = s.install(Options{Tag: "v0.1.0"})
	if before, after, found := strings.Cut(out, " created, "); !found || !strings.Contains(before, first) || !strings.Contains(after, then) {
		t.Errorf("the installation printed %q", out)
	}
}

// TestWaits: an installation waits until its pods are ready, says what is missing, and fails at the end of the time
// with the reason that a pod gives.
func TestWaits(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	var text strings.Builder
	err := Install(ctx, s.access, &text, Options{Tag: "v0.1.0", Wait: time.Millisecond})
	refuses(t, "no pod starts", err, "0 of 0 agents and 0 of 2 replicas", "kubectl mbcas doctor")
	stuck := apiserver.Pod(kube.SystemNamespace, cluster.AgentName+"-x", apiserver.Container("agent", "20m", ""))
	s.ok(s.Client.Create(ctx, stuck))
	stuck.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"},
	}}}
	s.ok(s.Client.Status().Update(ctx, stuck))
	err = Upgrade(ctx, s.access, io.Discard, Options{Tag: "v0.1.0", Wait: time.Millisecond})
	refuses(t, "an image that cannot be pulled", err, "mbcas-agent-x is ImagePullBackOff")

	canceled, cancel := context.WithCancel(ctx)
	r := &run{Access: s.access, out: io.Discard}
	err = r.until(canceled, time.Minute, func(context.Context) (string, error) {
		cancel()
		return "it starts", nil
	})
	if refuses(t, "an interruption", err, "can be repeated"); !errors.Is(err, context.Canceled) {
		t.Errorf("an interruption is %v", err)
	}

	// The controllers of Kubernetes have started everything.
	d := s.deployment()
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2,
	}
	s.ok(s.Client.Status().Update(ctx, d))
	ds := &appsv1.DaemonSet{}
	s.ok(s.Client.Get(ctx, client.ObjectKey{Namespace: kube.SystemNamespace, Name: cluster.AgentName}, ds))
	ds.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: ds.Generation, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1,
		UpdatedNumberScheduled: 1, NumberReady: 1,
	}
	s.ok(s.Client.Status().Update(ctx, ds))
	out := s.upgrade(Options{Tag: "v0.1.0", Wait: time.Minute})
	if !strings.Contains(out, "MBCAS v0.1.0 runs in mode recommend") {
		t.Errorf("printed %q", out)
	}
	s.ok(s.Client.Delete(ctx, ds))
	_, err = r.notReady(ctx)
	refuses(t, "without the DaemonSet", err, "install again")
}

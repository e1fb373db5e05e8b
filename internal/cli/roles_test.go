package cli

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// create makes objects, and removes them when the test ends, save namespaces.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		if _, ok := o.(*corev1.Namespace); !ok {
			t.Cleanup(func() {
				if err := c.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
		}
	}
}

// serve has the API server serve custom resources of any form until the test ends; with a scale subresource where scale says so.
func serve(t *testing.T, s *apiserver.Server, kind schema.GroupVersionKind, plural string, scale bool) {
	t.Helper()
	yes, crd := true, &apiextensionsv1.CustomResourceDefinition{}
	crd.Name, crd.Annotations = plural+"."+kind.Group, map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	crd.Spec.Group, crd.Spec.Scope = kind.Group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.TrimSuffix(plural, "s"), Kind: kind.Kind}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: kind.Version, Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}},
	}
	if selector := ".status.selector"; scale {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		}}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: time.Minute}
	if _, err := envtest.InstallCRDs(s.Config, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := envtest.UninstallCRDs(s.Config, options); err != nil {
			t.Error(err)
		}
	})
}

// pluginRoles are the roles for users of the plugin as they ship.
func pluginRoles(t *testing.T) (all *rbacv1.ClusterRole, system *rbacv1.Role, resize *rbacv1.ClusterRole) {
	t.Helper()
	data, err := os.ReadFile("../../config/components/plugin-users/roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(data, []byte("\n---\n"))
	all, system, resize = &rbacv1.ClusterRole{}, &rbacv1.Role{}, &rbacv1.ClusterRole{}
	for i, into := range []client.Object{all, system, resize} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Fatal(err)
		}
	}
	return all, system, resize
}

// flat is text without its line breaks.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// questions are what a client asks of the API server, as "verb group/resource".
type questions map[string]bool

func (q questions) watching(c client.WithWatch) client.Client {
	ask := func(verb string, gvk schema.GroupVersionKind) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		q[verb+" "+plural.GroupResource().String()] = true
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gvk, _ := apiutil.GVKForObject(o, c.Scheme())
			ask("get", gvk)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			gvk, _ := apiutil.GVKForObject(list, c.Scheme())
			ask("list", gvk)
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			gvk, _ := apiutil.GVKForObject(o, c.Scheme())
			ask("create", gvk)
			return c.Create(ctx, o, opts...)
		},
	})
}

// guests is a cluster with a pod under a VerticalPodAutoscaler of a custom target, as its administrator sees it and as a
// user with the plugin's roles does, whose questions are noted.
func guests(t *testing.T, all *rbacv1.ClusterRole, system *rbacv1.Role, resize *rbacv1.ClusterRole) (admin, guest *cluster.Access, asked questions) {
	t.Helper()
	s := apiserver.Start(t)
	admin = access(t, s, s.Namespace(t))
	rollout := schema.GroupVersionKind{Group: "example.mbcas.io", Version: "v1", Kind: "Rollout"}
	serve(t, s, constraints.VPAKind, "verticalpodautoscalers", false)
	serve(t, s, rollout, "rollouts", true)

	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "guest"}}
	everywhere := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name}, Subjects: subjects}
	inSystem := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: system.Name}, Subjects: subjects}
	here := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: resize.Name}, Subjects: subjects}
	everywhere.Name, inSystem.Name, here.Name = "guest", "guest", "guest"
	inSystem.Namespace, here.Namespace = kube.SystemNamespace, admin.Namespace
	home, controller := &corev1.Namespace{}, &appsv1.Deployment{}
	home.Name = kube.SystemNamespace
	edit(t, installation(), cluster.ControllerName, func(d *appsv1.Deployment) { controller = d })
	controller.Spec.Template.Labels = map[string]string{"app": "mbcas"}
	controller.Spec.Selector = metav1.SetAsLabelSelector(controller.Spec.Template.Labels)
	vpa := vpaOf("roll", kube.Target{APIVersion: rollout.GroupVersion().String(), Kind: rollout.Kind, Name: "roll"}, "Recreate")
	target := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"replicas": int64(1)}, "status": map[string]any{"replicas": int64(1), "selector": "app=roll"},
	}}
	target.SetGroupVersionKind(rollout)
	target.SetName("roll")
	vpa.SetNamespace(admin.Namespace)
	target.SetNamespace(admin.Namespace)
	create(t, admin.Client, home, all, system, resize, controller, everywhere, inSystem, here, vpa, target)
	pod := apiserver.Pod(admin.Namespace, "roll-1", apiserver.Container("app", "100m", "300m"))
	pod.Labels = map[string]string{"app": "roll"}
	s.Kubelet(t, "cli-roles").Run(t, pod)

	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "guest", Groups: []string{"system:authenticated"}}
	c, err := client.NewWithWatch(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the roles to count", func() bool {
		return c.List(t.Context(), &v1alpha1.PodAllocationList{}) == nil && c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(kube.SystemNamespace)) == nil
	})
	visitor := *admin
	asked = questions{}
	visitor.Client = asked.watching(c)
	return admin, &visitor, asked
}

// TestPluginRoles: with the roles for its users the plugin can read all that it asks for, they allow nothing that it never
// asks for, and what they do not allow is said.
func TestPluginRoles(t *testing.T) {
	all, system, resize := pluginRoles(t)
	admin, guest, asked := guests(t, all, system, resize)
	output := map[string]string{}
	for _, args := range []string{"doctor", "list -A", "usage", "explain roll-1", "mode", "mode " + admin.Namespace, "version", "restore --all --dry-run", "resize roll-1 --cpu-limit 250m --dry-run"} {
		stdout, stderr, err := runWith(t, guest, strings.Split(args, " ")...)
		output[args] = stdout + stderr
		if err != nil && !errors.Is(err, ErrFindings) || strings.Contains(output[args], "could not be looked at") {
			t.Errorf("%s: %v\n%s", args, err, output[args])
		}
	}
	for _, args := range []string{"doctor", "explain roll-1"} {
		if !strings.Contains(flat(output[args]), `"roll" is forbidden: User "guest" cannot get resource "rollouts/scale"`) {
			t.Errorf("%s does not say that the pods of the VPA are not known:\n%s", args, output[args])
		}
	}
	delete(asked, "create selfsubjectaccessreviews.authorization.k8s.io") // everybody may
	granted := questions{}
	for _, r := range slices.Concat(all.Rules, system.Rules) {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				granted[verb+" "+schema.GroupResource{Group: r.APIGroups[0], Resource: resource}.String()] = true
			}
		}
	}
	delete(granted, "get pods/proxy") // asked for by Access.Round, which no agent answers here
	if diff := cmp.Diff(slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(granted))); diff != "" {
		t.Errorf("the roles (-asked for +granted):\n%s", diff)
	}
	stdout, _, err := runWith(t, admin, "explain", "roll-1")
	if err != nil || !strings.Contains(flat(stdout), "(ManagedByVPA: VerticalPodAutoscaler roll)") {
		t.Errorf("explain by somebody who may read the scale: %v\n%s", err, stdout)
	}
}

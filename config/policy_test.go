package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli"
)

// who somebody is to the API server.
var (
	agent1       = account("mbcas-agent", "node-1")
	agentUnbound = account("mbcas-agent", "")
	controller   = account("mbcas-controller", "node-1")
	tenant       = rest.ImpersonationConfig{UserName: "tenant", Groups: []string{"system:authenticated"}}
	pluginUser   = rest.ImpersonationConfig{UserName: "plugin-user", Groups: []string{"system:authenticated"}}
)

// account is one of our service accounts, with the claim that a kubelet's token carries.
func account(name, node string) rest.ImpersonationConfig {
	c := rest.ImpersonationConfig{
		UserName: "system:serviceaccount:mbcas-system:" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:mbcas-system", "system:authenticated"},
	}
	if node != "" {
		c.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return c
}

const decision = `{"spec":{"desiredCPULimit":"500m","containers":[{"name":"app","cpuLimit":"500m"}],"decision":{
	"demand":"300m","usage":"300m","throttled":0,"budget":100,"price":"0.000","floor":"110m","ceiling":"2000m",
	"boundBy":"Nothing","observedAt":"2026-01-01T00:00:00.000000Z"}}}`

// TestPolicies: our service accounts do what they are for, and nothing else; nobody else
// writes PodAllocations.
func TestPolicies(t *testing.T) {
	log.SetLogger(testr.New(t))
	s := start(t)
	tests := map[string]struct {
		who    rest.ImpersonationConfig
		do     func(context.Context, client.Client) error
		reason string // of the refusal; empty: accepted
	}{
		"agent decides for a pod of its node": {agent1, s.patch(s.allocation("a1"), decision), ""},
		"agent decides for another node":      {agent1, s.patch(s.allocation("a2"), decision), "of that node only"},
		"agent without a node":                {agentUnbound, s.patch(s.allocation("a1"), decision), "must name its node"},
		"agent moves an object to itself":     {agent1, s.patch(s.allocation("a2"), `{"spec":{"nodeName":"node-1"}}`), "immutable"},
		"agent labels":                        {agent1, s.patch(s.allocation("a1"), `{"metadata":{"labels":{"x":"y"}}}`), "no metadata"},
		"agent disowns":                       {agent1, s.patch(s.allocation("a1"), `{"metadata":{"ownerReferences":null}}`), "no metadata"},
		"agent writes status":                 {agent1, s.patchStatus("a1", "Pending"), "cannot patch resource"},
		"agent deletes":                       {agent1, remove(s.allocation("a1")), "cannot delete resource"},
		"agent invents":                       {agent1, create(newAllocation("a9", "node-1")), "cannot create resource"},
		"agent beats for its node":            {agent1, create(lease("mbcas-agent-node-1")), ""},
		"agent beats for another node":        {agent1, create(lease("mbcas-agent-node-2")), "Lease mbcas-agent-node-1 only"},
		"agent takes the lead":                {agent1, s.patch(lease("mbcas-controller"), `{"spec":{"holderIdentity":"me"}}`), "Lease mbcas-agent-node-1 only"},
		"agent resizes":                       {agent1, s.resize("shop", `"limits":{"cpu":"300m"}`), "cannot patch resource"},

		"controller moves a CPU limit":    {controller, s.resize("shop", `"limits":{"cpu":"300m"}`), ""},
		"controller moves a CPU request":  {controller, s.resize("shop", `"requests":{"cpu":"50m"}`), "changes no request"},
		"controller moves a memory limit": {controller, s.resize("shop", `"limits":{"memory":"200Mi"}`), "no limit but that of CPU"},
		"controller adds a limit":         {controller, s.resizeContainer("shop", "side", `"limits":{"cpu":"300m"}`), "adds and removes none"},
		"controller in kube-system":       {controller, s.resize("kube-system", `"limits":{"cpu":"300m"}`), "system namespaces"},
		"controller labels a pod":         {controller, s.patch(pod("shop"), `{"metadata":{"labels":{"x":"y"}}}`), "cannot patch resource"},
		"controller creates":              {controller, create(newAllocation("a8", "node-1")), ""},
		"controller writes status":        {controller, s.patchStatus("a1", "Pending"), ""},

		"tenant invents":       {tenant, create(newAllocation("a7", "node-1")), "written by MBCAS alone"},
		"tenant decides":       {tenant, s.patch(s.allocation("a1"), strings.ReplaceAll(decision, "500m", "600m")), "written by MBCAS alone"},
		"tenant writes status": {tenant, s.patchStatus("a1", "Held"), "written by MBCAS alone"},
		"tenant labels":        {tenant, s.patch(s.allocation("a2"), `{"metadata":{"labels":{"x":"y"}}}`), ""},
		"tenant deletes":       {tenant, remove(s.allocation("a3")), ""},

		"plugin user asks an agent":            {pluginUser, may("get", "pods", "proxy", "mbcas-system"), ""},
		"plugin user asks other pods":          {pluginUser, may("get", "pods", "proxy", "shop"), "may not"},
		"plugin user sends to an agent":        {pluginUser, may("create", "pods", "proxy", "mbcas-system"), "may not"},
		"plugin user resizes where it may":     {pluginUser, s.resize("shop", `"limits":{"cpu":"310m"}`), ""},
		"plugin user resizes where it may not": {pluginUser, s.resize("kube-system", `"limits":{"cpu":"310m"}`), "cannot patch resource"},
		"plugin user decides":                  {pluginUser, s.patch(s.allocation("a1"), decision), "cannot patch resource"},
		"plugin user pauses":                   {pluginUser, may("create", "configmaps", "", "mbcas-system"), "may not"},
		"plugin user reads secrets":            {pluginUser, may("get", "secrets", "", "mbcas-system"), "may not"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.do(t.Context(), s.as(t, tc.who))
			switch {
			case tc.reason == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.reason != "" && err == nil:
				t.Errorf("accepted, want a refusal with %q", tc.reason)
			case tc.reason != "" && !strings.Contains(err.Error(), tc.reason):
				t.Errorf("refused with %v, want %q in it", err, tc.reason)
			}
		})
	}
}

// TestPluginUser: with the component for users of the plugin, bound as docs/cli.md says, doctor has
// nothing that it may not read.
func TestPluginUser(t *testing.T) {
	log.SetLogger(testr.New(t))
	s := start(t)
	user, err := s.env.AddUser(envtest.User{Name: pluginUser.UserName}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := cli.Command(cli.Streams{Out: &out, Err: &out}, "test")
	cmd.SetArgs([]string{"--kubeconfig", path, "doctor"})
	if err := cmd.ExecuteContext(t.Context()); err != nil && !errors.Is(err, cli.ErrFindings) { // nothing runs here
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "could not be looked at") {
			t.Error(line)
		}
	}
	if !strings.Contains(out.String(), "may watch pods, patch pods/resize") {
		t.Errorf("doctor does not know what the controller may do:\n%s", out.String())
	}
}

// may asks whether somebody may do a thing; the error is that he may not.
func may(verb, resource, subresource, namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Subresource: subresource, Namespace: namespace},
		}}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("may not %s %s/%s in %s", verb, resource, subresource, namespace)
		}
		return nil
	}
}

// server is a real API server with MBCAS installed from its manifests.
type server struct {
	env    *envtest.Environment
	config *rest.Config
	scheme *runtime.Scheme
}

func start(t *testing.T) server {
	t.Helper()
	objects := render(t, withPluginUsers(t))
	env := &envtest.Environment{}
	cfg, err := env.Start()
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s := server{env: env, config: cfg, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	admin := s.as(t, rest.ImpersonationConfig{})
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("install %T %s: %v", o, o.GetName(), err)
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		pod("shop"), pod("kube-system"), lease("mbcas-controller"),
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: "shop"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   subject(tenant),
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mbcas-plugin"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mbcas-plugin"},
			Subjects:   subject(pluginUser),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mbcas-plugin", Namespace: "mbcas-system"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "mbcas-plugin"},
			Subjects:   subject(pluginUser),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mbcas-plugin-resize", Namespace: "shop"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mbcas-plugin-resize"},
			Subjects:   subject(pluginUser),
		},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	// The API server serves a new CRD, and reads new policies, a moment later.
	for name, node := range map[string]string{"a1": "node-1", "a2": "node-2", "a3": "node-1"} {
		eventually(t, "create "+name, func() error { return admin.Create(t.Context(), newAllocation(name, node)) })
	}
	eventually(t, "every policy is in force", func() error { return s.inForce(t) })
	return s
}

// inForce is nil once each policy refuses what it is there to refuse.
func (s server) inForce(t *testing.T) error {
	for who, do := range map[*rest.ImpersonationConfig]func(context.Context, client.Client) error{
		&agentUnbound: s.patch(s.allocation("a1"), `{"metadata":{"labels":{"x":"y"}}}`, client.DryRunAll),
		&tenant:       s.patch(s.allocation("a1"), decision, client.DryRunAll),
		&controller:   s.resize("shop", `"requests":{"cpu":"50m"}`, client.DryRunAll),
	} {
		err := do(t.Context(), s.as(t, *who))
		if err == nil || !apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return fmt.Errorf("as %s: %v, want a policy's refusal", who.UserName, err)
		}
	}
	return nil
}

func (s server) as(t *testing.T, who rest.ImpersonationConfig) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(s.config)
	cfg.Impersonate = who
	c, err := client.New(cfg, client.Options{Scheme: s.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func subject(who rest.ImpersonationConfig) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: who.UserName}}
}

func (s server) allocation(name string) client.Object {
	return &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
}

func (s server) patch(o client.Object, body string, opts ...client.PatchOption) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)), opts...)
	}
}

func (s server) patchStatus(name, phase string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Status().Patch(ctx, s.allocation(name), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+phase+`"}}`)))
	}
}

func (s server) resize(namespace, resources string, opts ...client.SubResourcePatchOption) func(context.Context, client.Client) error {
	return s.resizeContainer(namespace, "app", resources, opts...)
}

func (s server) resizeContainer(namespace, container, resources string, opts ...client.SubResourcePatchOption) func(context.Context, client.Client) error {
	body := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":{%s}}]}}`, container, resources)
	return func(ctx context.Context, c client.Client) error {
		return c.SubResource("resize").Patch(ctx, pod(namespace), client.RawPatch(types.StrategicMergePatchType, []byte(body)), opts...)
	}
}

func create(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.Create(ctx, o) }
}

func remove(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, o) }
}

func newAllocation(name, node string) *v1alpha1.PodAllocation {
	return &v1alpha1.PodAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: types.UID(name)}},
		},
		Spec: v1alpha1.PodAllocationSpec{NodeName: node, PodRef: v1alpha1.PodRef{Name: "p", UID: types.UID(name)}},
	}
}

func lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "mbcas-system"}}
}

func pod(namespace string) *corev1.Pod {
	both := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("100Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Image: "x", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, Limits: both,
			}},
			{Name: "side", Image: "x", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")},
			}},
		}},
	}
}

// eventually tries until there is no error, for half a minute at most.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

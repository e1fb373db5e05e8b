package config_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

const system = "mbcas-system"

// Namespaces of the stage, and the mode that their label says; plain has no label.
var namespaces = map[string]string{
	"shop": "enforce", "attic": "off", "window": "recommend", "home": "restore", "typo": "sometimes", "plain": "",
}

// The cast, as the documentation calls them.
const (
	agent1        = "agent of node-1"
	agent2        = "agent of node-2"
	looseAgent    = "agent's token that names no node"
	foreignAgent  = "agent's token for another audience"
	orphanedAgent = "agent's token after its pod is gone"
	strongAgent   = "agent of node-1, made cluster-admin by mistake"
	controller    = "controller"
	strongControl = "controller, made cluster-admin by mistake"
	kubelet       = "kubelet of node-1"
	editor        = "tenant with the role edit"
	admin         = "tenant with the role admin"
	owner         = "tenant with every right in its namespace"
	namesake      = "account mbcas-controller of a tenant's namespace"
	pluginUser    = "user of the plugin"
	masters       = "member of system:masters"
	collector     = "garbage collector"
)

// stage is a real API server with MBCAS installed from its manifests, some pods, and all who may try something.
type stage struct {
	*apiserver.Server
	cast map[string]client.Client
	pods map[string]*corev1.Pod // by namespace/name
	// minor is the API server's version after 1.
	minor int
}

var theStage struct {
	sync.Once
	*stage
}

// open is the stage, set when first asked for.
func open(t *testing.T) *stage {
	t.Helper()
	s := &stage{Server: apiserver.Start(t), cast: map[string]client.Client{}, pods: map[string]*corev1.Pod{}}
	theStage.Do(func() {
		s.minor = s.version(t)
		s.install(t)
		s.furnish(t)
		s.employ(t)
		s.await(t)
		theStage.stage = s
	})
	if theStage.stage == nil {
		t.Fatal("the stage could not be set, as said above")
	}
	return theStage.stage
}

// version is the minor version that the API server says it behaves as.
func (s *stage) version(t *testing.T) int {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(s.Config)
	s.must(t, err)
	v, err := c.ServerVersion()
	s.must(t, err)
	minor, err := strconv.Atoi(cmp.Or(v.EmulationMinor, v.Minor))
	s.must(t, err)
	return minor
}

// install is what kubectl apply does, with the component for users of the plugin.
func (s *stage) install(t *testing.T) {
	t.Helper()
	for _, o := range render(t, withPluginUsers(t)) {
		if _, ok := o.(*apiextensionsv1.CustomResourceDefinition); !ok { // the server came with it
			s.create(t, o)
		}
	}
}

// furnish makes namespaces, nodes, pods and PodAllocations.
func (s *stage) furnish(t *testing.T) {
	t.Helper()
	for _, name := range []string{"node-1", "node-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.create(t, n)
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		n.Status.DeclaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"}
		s.must(t, s.Client.Status().Update(t.Context(), n))
	}
	for name, mode := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mode != "" {
			ns.Labels = map[string]string{"mbcas.io/mode": mode}
		}
		s.create(t, ns)
	}
	for name := range namespaces {
		s.pod(t, name, "web", "node-1")
		s.resized(t, name, "moved", "app")
	}
	s.pod(t, "shop", "other", "node-2")
	s.pod(t, "shop", "whole", "node-1", func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: apiserver.Container("", "", "4").Resources.Limits}
	})
	s.pod(t, "shop", "wide", "node-1", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = nil, nil
		for i := range 64 { // as many as a PodAllocation can hold
			p.Spec.Containers = append(p.Spec.Containers, apiserver.Container(fmt.Sprintf("c%d", i), "10m", "20m"))
		}
	})
	out := map[string]string{"mbcas.io/managed": "false"}
	s.pod(t, "shop", "out-by-label", "node-1", func(p *corev1.Pod) { p.Labels = out })
	s.pod(t, "shop", "out-by-annotation", "node-1", func(p *corev1.Pod) { p.Annotations = out })
	s.resized(t, "shop", "moved-and-out", "app", func(p *corev1.Pod) { p.Labels = out })
	for _, name := range []string{"kube-system", system} {
		s.must(t, label(name, "enforce")(t.Context(), s, s.Client))
	}
	s.pod(t, "kube-system", "web", "node-1")
	s.pod(t, system, "web", "node-1")
	s.resized(t, "kube-system", "moved", "app")

	s.resized(t, "attic", "moved-sidecar", "proxy")

	// The owner of a pod that MBCAS had resized changed the limit, or wiped the note of who wrote what.
	s.resized(t, "attic", "taken", "app")
	s.must(t, s.resize(t.Context(), s.Client, "attic", "taken", `"containers":[{"name":"app","resources":{"limits":{"cpu":"500m"}}}]`, "kubectl-edit"))
	s.resized(t, "attic", "wiped", "app")
	s.must(t, s.Client.Patch(t.Context(), s.at("attic/wiped"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))))
	// So had that of a pod that nobody ever changed.
	s.pod(t, "attic", "new", "node-1")
	s.must(t, s.Client.Patch(t.Context(), s.at("attic/new"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))))
	// An Apply of the limit that is there already makes whoever applies it one of its owners.
	s.pod(t, "attic", "claimed", "node-1")
	s.must(t, s.apply(t.Context(), s.Client, "attic", "claimed", "200m"))

	s.create(t, lease(system, "mbcas-controller"))
	s.create(t, lease(system, "mbcas-agent-node-2"))
	s.create(t, demandSignal("shop", "latency"))
	for _, key := range []string{"shop/web", "shop/other"} {
		s.create(t, s.allocation(key))
	}
}

func (s *stage) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := s.Client.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s/%s: %v", o, o.GetNamespace(), o.GetName(), err)
	}
}

// createUntilEnd is create for what would disturb other tests.
func (s *stage) createUntilEnd(t *testing.T, o client.Object) {
	t.Helper()
	s.create(t, o)
	t.Cleanup(func() { s.must(t, s.Client.Delete(context.Background(), o)) })
}

// pod makes a pod with a container of each sort.
func (s *stage) pod(t *testing.T, namespace, name, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	tied := apiserver.Container("tied", "50m", "100m")
	tied.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	app := apiserver.Container("app", "100m", "200m")
	app.Resources.Limits[corev1.ResourceMemory] = *milliBytes(100)
	app.Resources.Requests[corev1.ResourceMemory] = *milliBytes(50)
	p := apiserver.Pod(namespace, name, app, apiserver.Container("side", "50m", ""), tied,
		apiserver.Container("free", "0", "100m"), apiserver.Container("open", "0", "0"))
	p.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "50m", "100m"), apiserver.Sidecar("proxy", "50m", "100m")}
	p.Spec.NodeName = node
	for _, edit := range edits {
		edit(p)
	}
	s.create(t, p)
	s.pods[namespace+"/"+name] = p
	return p
}

// resized makes a pod of which one container has a limit that the controller set.
func (s *stage) resized(t *testing.T, namespace, name, container string, edits ...func(*corev1.Pod)) {
	t.Helper()
	s.pod(t, namespace, name, "node-1", edits...)
	s.must(t, limit(namespace+"/"+name, container, "400m")(t.Context(), s, s.Client))
}

// at is a pod of the stage by namespace and name alone.
func (s *stage) at(key string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = s.pods[key].Namespace, s.pods[key].Name
	return p
}

// resize patches the spec of a pod through pods/resize.
func (s *stage) resize(ctx context.Context, c client.Client, namespace, name, spec, manager string) error {
	return c.SubResource("resize").Patch(ctx, s.at(namespace+"/"+name),
		client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{`+spec+`}}`)), client.FieldOwner(manager))
}

// apply is a server-side apply of a pod's limit through pods/resize.
func (s *stage) apply(ctx context.Context, c client.Client, namespace, name, limit string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":%q}}}]}}`, name, limit)
	return c.SubResource("resize").Patch(ctx, s.at(namespace+"/"+name),
		client.RawPatch(types.ApplyPatchType, []byte(body)), client.FieldOwner("mbcas-controller"), client.ForceOwnership)
}

// allocation is the PodAllocation of a pod as the controller makes it.
func (s *stage) allocation(key string) *v1alpha1.PodAllocation {
	p := s.pods[key]
	return &v1alpha1.PodAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Name: string(p.UID), Namespace: p.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: v1alpha1.PodAllocationSpec{NodeName: p.Spec.NodeName, PodRef: v1alpha1.PodRef{Name: p.Name, UID: p.UID}},
	}
}

// await waits until the API server, which reads policies a moment after they are written, obeys them all.
func (s *stage) await(t *testing.T) {
	t.Helper()
	for _, policy := range s.policies(t) {
		for _, a := range attempts() {
			if a.by == policy.Name && !isStrong(a.who) {
				apiserver.Eventually(t, "the policy "+policy.Name+" is in force", func() (bool, any) {
					err := a.try(t, s, true)
					return a.refused(err) == "", err
				})
				break
			}
		}
	}
}

// policies are the installed ones, as they are stored.
func (s *stage) policies(t *testing.T) []admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var list admissionv1.ValidatingAdmissionPolicyList
	if err := s.Client.List(context.Background(), &list); err != nil { // also while a test cleans up
		t.Fatal(err)
	}
	return list.Items
}

func milli(m int64) *cpu.Milli { v := cpu.Milli(m); return &v }

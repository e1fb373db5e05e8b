package config_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

const system = "mbcas-system"

// modes are the namespaces of the environment with their label mbcas.io/mode; plain has no label.
var modes = map[string]string{
	"shop": "enforce", "attic": "off", "window": "recommend", "home": "restore", "typo": "sometimes", "plain": "",
}

// environment is a real API server with MBCAS installed from its manifests, with pods and with a client of each user.
type environment struct {
	*apiserver.Server
	users map[string]client.Client
	pods  map[string]*corev1.Pod // by namespace/name
}

var shared struct {
	sync.Once
	*environment
}

// open is the one environment of this package's tests, made when first asked for.
func open(t *testing.T) *environment {
	t.Helper()
	e := &environment{Server: apiserver.Start(t), users: map[string]client.Client{}, pods: map[string]*corev1.Pod{}}
	shared.Do(func() {
		// The server came with the CRDs.
		for _, o := range render(t, "testdata/plugin-users") {
			if _, ok := o.(*apiextensionsv1.CustomResourceDefinition); !ok {
				e.create(t, o)
			}
		}
		e.createNodes(t)
		e.createPods(t)
		e.createRecords(t)
		e.addUsers(t)
		e.awaitPolicies(t)
		shared.environment = e
	})
	if shared.environment == nil {
		t.Fatal("the environment could not be made, as said above")
	}
	return shared.environment
}

func (e *environment) createNodes(t *testing.T) {
	t.Helper()
	for _, name := range []string{"node-1", "node-2", longNode} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		e.create(t, n)
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}
		n.Status.DeclaredFeatures = []string{
			"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
		}
		must.Succeed(t, e.Client.Status().Update(t.Context(), n))
	}
	for name, mode := range modes {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mode != "" {
			ns.Labels = map[string]string{"mbcas.io/mode": mode}
		}
		e.create(t, ns)
	}
	for _, name := range []string{"kube-system", system} {
		e.asAdmin(t, label(name, "enforce"))
	}
}

func (e *environment) createPods(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{"shop", "attic", "window", "home", "typo", "plain", "kube-system", system} {
		e.pod(t, namespace+"/web")
		e.resized(t, namespace+"/resized", "app")
	}
	e.pod(t, "shop/other", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
	e.pod(t, "shop/whole", func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: apiserver.Container("", "", "4").Resources.Limits}
	})
	e.pod(t, "shop/wide", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = nil, nil
		for i := range 64 { // as many as a PodAllocation can hold
			p.Spec.Containers = append(p.Spec.Containers, apiserver.Container(fmt.Sprintf("c%d", i), "10m", "20m"))
		}
	})
	out := map[string]string{"mbcas.io/managed": "false"}
	e.pod(t, "shop/out-by-label", func(p *corev1.Pod) { p.Labels = out })
	e.pod(t, "shop/out-by-annotation", func(p *corev1.Pod) { p.Annotations = out })
	e.resized(t, "shop/resized-and-out", "app", func(p *corev1.Pod) { p.Labels = out })
	e.resized(t, "attic/resized-sidecar", "proxy")

	// The owner of a pod that MBCAS had resized changed the limit, or removed the managedFields.
	e.resized(t, "attic/changed", "app")
	e.asAdmin(t, resizeAs("kubectl-edit", "attic/changed", containers("app", `"limits":{"cpu":"500m"}`)))
	e.resized(t, "attic/wiped", "app")
	e.asAdmin(t, patch(pod("attic/wiped"), `{"metadata":{"managedFields":[{}]}}`))
	// The same for a pod that was never changed.
	e.pod(t, "attic/new")
	e.asAdmin(t, patch(pod("attic/new"), `{"metadata":{"managedFields":[{}]}}`))
	// An apply of the limit that is there already makes the manager one of its owners.
	e.pod(t, "attic/claimed")
	e.asAdmin(t, apply("attic/claimed", "200m"))
}

// createRecords makes what MBCAS and users of it have written before.
func (e *environment) createRecords(t *testing.T) {
	t.Helper()
	for _, o := range []object{
		lease(system, "mbcas-controller"), lease(system, "mbcas-agent-node-2"),
		lease(system, "mbcas-controller-7f9c-q"), lease("shop", "mbcas-controller-7f9c-q"), demandSignal("latency"),
		newAllocation("shop/web", nil), newAllocation("shop/other", nil), nodeAllocation("node-1", nil),
	} {
		e.asAdmin(t, create(o))
	}
}

func (e *environment) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := e.Client.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s/%s: %v", o, o.GetNamespace(), o.GetName(), err)
	}
}

// asAdmin makes a request of the table as an administrator.
func (e *environment) asAdmin(t *testing.T, send send) {
	t.Helper()
	must.Succeed(t, send(call{t.Context(), e, e.Client}))
}

// pod creates a pod with a container of each kind on node-1.
func (e *environment) pod(t *testing.T, key string, edits ...func(*corev1.Pod)) {
	t.Helper()
	restarts := apiserver.Container("restarts", "50m", "100m")
	restarts.ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer},
	}
	app := apiserver.Container("app", "100m", "200m")
	app.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("100Mi")
	app.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("50Mi")
	name := split(key)
	p := apiserver.Pod(name.Namespace, name.Name, app, apiserver.Container("side", "50m", ""), restarts,
		apiserver.Container("free", "0", "100m"), apiserver.Container("open", "0", "0"))
	p.Spec.InitContainers = []corev1.Container{
		apiserver.Container("setup", "50m", "100m"), apiserver.Sidecar("proxy", "50m", "100m"),
	}
	p.Spec.NodeName = "node-1"
	for _, edit := range edits {
		edit(p)
	}
	e.create(t, p)
	e.pods[key] = p
}

// resized creates a pod of which one container has a limit that the controller set.
func (e *environment) resized(t *testing.T, key, container string, edits ...func(*corev1.Pod)) {
	t.Helper()
	e.pod(t, key, edits...)
	e.asAdmin(t, limit(key, container, "400m"))
}

// awaitPolicies waits until the API server, which reads policies a moment after they are written, enforces them all.
func (e *environment) awaitPolicies(t *testing.T) {
	t.Helper()
	for _, policy := range e.policies(t) {
		for _, r := range accessTable() {
			if r.by == policy.Name && !r.elevated() {
				apiserver.Eventually(t, "the policy "+policy.Name+" is in force", func() (bool, any) {
					err := r.try(context.Background(), t, e, true) // also while a test cleans up
					return r.fault(err) == "", err
				})
				break
			}
		}
	}
}

// policies are the installed ones, as they are stored.
func (e *environment) policies(t *testing.T) []admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var list admissionv1.ValidatingAdmissionPolicyList
	must.Succeed(t, e.Client.List(context.Background(), &list)) // also while a test cleans up
	return list.Items
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// The shop is a small cluster with an installation of MBCAS, at a fixed time: one node, a namespace
// with pods of every kind, and one that is switched off.

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.MicroTime { t := metav1.NewMicroTime(noon.Add(-d)); return &t }

func withPriority(p *corev1.Pod, v int32) *corev1.Pod { p.Spec.Priority = &v; return p }

// allocated is the pod's, with the declared limits as the pod has them; change makes it as the case
// needs it.
func allocated(p *corev1.Pod, change func(*v1alpha1.PodAllocation)) *v1alpha1.PodAllocation {
	pa := allocation.New(p)
	pa.Status.DeclaredLimits = kube.Limits(p)
	pa.Status.AppliedLimits = kube.Limits(p)
	change(pa)
	return pa
}

func percentOf(p int32) *int32 { return &p }

func decided(limit cpu.Milli, container string, d v1alpha1.Decision) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) {
		pa.Spec.DesiredCPULimit = &limit
		pa.Spec.Containers = []v1alpha1.ContainerLimit{{Name: container, CPULimit: limit}}
		pa.Spec.Decision = &d
	}
}

func both(changes ...func(*v1alpha1.PodAllocation)) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) {
		for _, c := range changes {
			c(pa)
		}
	}
}

func status(phase v1alpha1.Phase, reason, message string) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) {
		pa.Status.Phase, pa.Status.Reason, pa.Status.Message = phase, reason, message
	}
}

// declared sets the declared limit of the pod's one container, and the age of the last change.
func declared(container string, limit cpu.Milli, changed time.Duration) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) {
		pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{{Name: container, CPULimit: limit}}
		pa.Status.LastAppliedTime = *ago(changed)
		total := kube.Total(pa.Status.AppliedLimits)
		pa.Status.AppliedCPULimit = &total
	}
}

// shop is every object of the cluster.
func shop() []client.Object {
	cart := withPriority(apiserver.RunningPod("shop", "cart-7d9f", apiserver.Container("app", "200m", "900m")), 100000)
	batch := apiserver.RunningPod("shop", "batch-x2", apiserver.Container("work", "500m", "530m"))
	quiet := apiserver.RunningPod("shop", "quiet-0", apiserver.Container("app", "100m", "300m"), apiserver.Container("proxy", "50m", ""))
	fresh := apiserver.RunningPod("shop", "fresh-1", apiserver.Container("app", "100m", "300m"))
	stuck := apiserver.RunningPod("shop", "stuck-1", apiserver.Container("app", "100m", "300m"))
	out := apiserver.RunningPod("shop", "pinned-1", apiserver.Container("app", "100m", "300m"))
	out.Labels = map[string]string{kube.ManagedKey: "false"}
	rich := apiserver.RunningPod("shop", "rich-1", apiserver.Container("app", "500m", "500m"))
	rich.Status.QOSClass = corev1.PodQOSGuaranteed
	poor := apiserver.RunningPod("shop", "poor-1", apiserver.Container("app", "", ""))
	poor.Status.QOSClass = corev1.PodQOSBestEffort
	dns := apiserver.RunningPod("kube-system", "dns-1", apiserver.Container("dns", "100m", "200m"))
	asleep := apiserver.RunningPod("lab", "asleep-1", apiserver.Container("app", "100m", "200m"))
	objects := []client.Object{
		cart, batch, quiet, fresh, stuck, out, rich, poor, dns, asleep,
		allocated(cart, both(decided(900, "app", v1alpha1.Decision{
			Demand: 640, Usage: 610, ThrottledPercent: 2, CPUPressurePercent: percentOf(9), Budget: 864, PriorityPercent: 432, Price: 0.961, Floor: 210, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByNothing, ObservedAt: *ago(4 * time.Second),
		}), status(v1alpha1.PhaseApplied, "Settled", "the CPU limits are what they should be"), declared("app", 500, 90*time.Second))),
		allocated(batch, both(decided(520, "work", v1alpha1.Decision{
			Demand: 2100, Usage: 528, ThrottledPercent: 97, CPUPressurePercent: percentOf(61), Budget: 500, PriorityPercent: 100, Price: 0.961, Floor: 510, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByPrice, ObservedAt: *ago(4 * time.Second),
		}), status(v1alpha1.PhaseNotApplied, "CoolingDown", "the limits were changed a moment ago; the next change waits for the cooldown"), declared("work", 2000, 6*time.Second))),
		allocated(quiet, both(decided(300, "app", v1alpha1.Decision{
			Demand: 5, Usage: 3, ThrottledPercent: 0, Budget: 100, PriorityPercent: 100, Price: 0.961, Floor: 110, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByNothing, ObservedAt: *ago(3 * time.Hour),
		}), status(v1alpha1.PhaseApplied, "WithinDeadBand", "the wanted change is smaller than the dead band"))),
		allocated(fresh, both(status(v1alpha1.PhasePending, "NoDecisionYet", "the agent of this pod's node has not decided yet"))),
		allocated(stuck, both(decided(800, "app", v1alpha1.Decision{
			Demand: 700, Usage: 299, ThrottledPercent: 88, CPUPressurePercent: percentOf(70), Budget: 100, PriorityPercent: 100, Price: 0.000, Floor: 110, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByNothing, ObservedAt: *ago(20 * time.Second),
		}), status(v1alpha1.PhaseFailed, "QuotaExceeded", "exceeded quota: shop, requested: limits.cpu=500m, used: limits.cpu=4, limited: limits.cpu=4"), func(pa *v1alpha1.PodAllocation) {
			retry := metav1.NewMicroTime(noon.Add(100 * time.Second))
			pa.Status.Retry.Time, pa.Status.Retry.Failures = retry, 2
		})),
	}
	for name, mode := range map[string]string{"shop": "enforce", "lab": "off", "default": "", "kube-system": ""} {
		ns := &corev1.Namespace{}
		ns.Name = name
		if mode != "" {
			ns.Labels = map[string]string{kube.ModeLabel: mode}
		}
		objects = append(objects, ns)
	}
	return append(objects, installation()...)
}

// shopSettings are those of the shop's controller. None is the default.
var shopSettings = map[string]string{
	kube.ModeFlag: "recommend", kube.ExternalChangeHoldOffFlag: "25m0s", kube.RollbackHoldOffFlag: "6h0m0s",
	kube.RestoreAfterFlag: "8m0s", kube.QuotaHeadroomFlag: "0.2",
}

// settings is the ConfigMap that the controller publishes.
func settings(flags map[string]string) *corev1.ConfigMap {
	data, err := kube.NewSettings("dev", flags).Data()
	if err != nil {
		panic(err)
	}
	cm := &corev1.ConfigMap{Data: data}
	cm.Namespace, cm.Name = kube.SystemNamespace, kube.SettingsName
	return cm
}

// installation is MBCAS itself, in good health.
func installation() []client.Object {
	ns := &corev1.Namespace{}
	ns.Name = kube.SystemNamespace
	one := int32(1)
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = kube.SystemNamespace, cluster.ControllerName
	d.Spec.Replicas, d.Status.ReadyReplicas = &one, 1
	d.Spec.Template.Spec.ServiceAccountName = "mbcas-controller"
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "controller", Image: "mbcas.io/controller:dev", Args: []string{"--mode=enforce"}, // overridden: the settings say recommend
	}}
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name = kube.SystemNamespace, cluster.AgentName
	ds.Status.DesiredNumberScheduled, ds.Status.NumberReady = 1, 1
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "mbcas.io/agent:dev"}}
	agent := apiserver.RunningPod(kube.SystemNamespace, cluster.AgentName+"-abcde", apiserver.Container("agent", "20m", ""))
	node := &corev1.Node{}
	node.Name = "node-1"
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		OperatingSystem: "linux", KubeletVersion: "v1.36.3", KernelVersion: "6.12.0", ContainerRuntimeVersion: "containerd://2.1.0",
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = kube.SystemNamespace, kube.AgentLease("node-1")
	lease.Spec.RenewTime = ago(4 * time.Second)
	lease.Annotations = map[string]string{kube.MarketKey: allocation.NodeMarket{
		Round: 5400, Price: 0.961, Supply: 3400, Usage: 2890, Demand: 3455, Managed: 4, Capped: 1,
	}.Text()}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = cluster.CRDName
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true}}
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	nodes, signals := crd.DeepCopy(), crd.DeepCopy()
	nodes.Name, signals.Name = cluster.NodeCRDName, cluster.SignalCRDName
	return []client.Object{ns, d, ds, agent, node, lease, crd, nodes, signals, settings(shopSettings)}
}

// discovered is what an API server says about itself.
type discovered struct {
	version string
	verbs   []string // of pods/resize; nil: not served
	err     error
}

func (d discovered) ServerVersionWithContext(context.Context) (*version.Info, error) {
	return &version.Info{GitVersion: d.version}, d.err
}

func (d discovered) ServerResourcesForGroupVersionWithContext(_ context.Context, gv string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: gv, APIResources: []metav1.APIResource{{Name: "pods", Verbs: metav1.Verbs{"list"}}}}
	if d.verbs != nil {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: "pods/resize", Verbs: d.verbs})
	}
	return list, d.err
}

// user runs commands of the plugin with an Access.
type user struct{ cluster.Access }

// fakeCluster is an Access to objects, which counts writes, and answers every question about rights
// by may and about the selector of a scale target by scale; no such target exists where that is
// nil.
type fakeCluster struct {
	user
	writes []string
	may    func(user, verb, resource string) bool
	scale  func(target client.Object) (selector string, err error)
}

// scheme is made once for all clusters: to make one takes longer than most commands.
var scheme = cluster.Scheme()

func newCluster(t *testing.T, objects ...client.Object) *fakeCluster {
	t.Helper()
	c := &fakeCluster{may: func(string, string, string) bool { return true }}
	wrote := func(verb string, o client.Object) {
		c.writes = append(c.writes, fmt.Sprintf("%s %T %s", verb, o, o.GetName()))
	}
	ask := func(user string, a *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
		r := a.Resource
		if a.Subresource != "" {
			r += "/" + a.Subresource
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: c.may(user, a.Verb, r)}
	}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithObjects(objects...).WithObjects(told(objects)...).
		WithIndex(&v1alpha1.PodAllocation{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1alpha1.PodAllocation).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Name} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				switch r := o.(type) {
				case *authorizationv1.SelfSubjectAccessReview:
					r.Status = ask("", r.Spec.ResourceAttributes)
					return nil
				case *authorizationv1.SubjectAccessReview:
					r.Status = ask(r.Spec.User, r.Spec.ResourceAttributes)
					return nil
				}
				wrote("create", o)
				return w.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if !slices.Contains(opts, client.PatchOption(client.DryRunAll)) {
					wrote("patch", o)
				}
				return w.Patch(ctx, o, p, opts...)
			},
			SubResourceGet: func(_ context.Context, _ client.Client, _ string, o, scale client.Object, _ ...client.SubResourceGetOption) error {
				if c.scale == nil {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "scales"}, o.GetName())
				}
				selector, err := c.scale(o)
				scale.(*unstructured.Unstructured).Object["status"] = map[string]any{"selector": selector}
				return err
			},
			SubResourcePatch: func(_ context.Context, _ client.Client, sub string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
				wrote("patch "+sub, o)
				return errors.New("the fake client knows no resize")
			},
		}).Build()
	c.Discovery = discovered{version: "v1.36.3", verbs: []string{"get", "patch", "update"}}
	c.System, c.Namespace = kube.SystemNamespace, "shop"
	c.Now = func() time.Time { return noon }
	return c
}

// run runs the plugin on the cluster.
func (u *user) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runWith(t, &u.Access, args...)
}

// prints checks that a command line succeeds and prints all of these texts, and returns its standard output.
func (u *user) prints(t *testing.T, line string, texts ...string) string {
	t.Helper()
	stdout, stderr, err := u.run(t, strings.Split(line, " ")...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, stderr)
	}
	for _, want := range texts {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: want %q in\n%s%s", line, want, stdout, stderr)
		}
	}
	return stdout
}

// fails checks that a command line fails with an error that says this, and returns that.
func (u *user) fails(t *testing.T, line, says string) error {
	t.Helper()
	stdout, _, err := u.run(t, strings.Split(line, " ")...)
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q; it printed %s", line, err, says, stdout)
	}
	return err
}

// in runs commands in a namespace.
func (c *fakeCluster) in(namespace string) *fakeCluster {
	c.Namespace = namespace
	return c
}

// refuse fails reads of objects, or of lists, of the type of this one; nil: all reads.
func (c *fakeCluster) refuse(like any, err error) {
	is := func(o any) bool { return like == nil || reflect.TypeOf(o) == reflect.TypeOf(like) }
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if is(o) {
				return err
			}
			return w.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if is(l) {
				return err
			}
			return w.List(ctx, l, opts...)
		},
	})
}

func runWith(t testing.TB, a *cluster.Access, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	f := newFlags()
	f.connected = a
	cmd := command(Streams{Out: &out, Err: &errs}, "test", f)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

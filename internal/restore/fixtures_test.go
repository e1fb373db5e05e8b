package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

const system = "mbcas-system"

func limits(m cpu.Milli) []v1alpha1.ContainerLimit {
	return []v1alpha1.ContainerLimit{{Name: "app", CPULimit: m}}
}

// oursKey marks the pods of a test whose limit MBCAS wrote last; the fake client keeps no managedFields.
const oursKey = "test/ours"

// pod runs with a limit in force that MBCAS wrote last, or another writer.
func pod(name string, limit cpu.Milli, ours bool) *corev1.Pod {
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(100)}, Limits: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(limit)},
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{oursKey: fmt.Sprint(ours)}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: resources}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Resources: &resources, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
	sign(p)
	return p
}

// sign writes the managedFields of a pod of a test.
func sign(p *corev1.Pod) {
	const limit = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{}}}`),
	}}
	if p.Labels[oursKey] == "true" {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: kube.FieldManager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(limit),
		})
	}
}

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme),
		coordinationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	for _, o := range objects {
		o.SetManagedFields(nil)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if p, ok := o.(*corev1.Pod); ok {
				sign(p)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, o, opts...)
			if list, ok := o.(*corev1.PodList); ok {
				for i := range list.Items {
					sign(&list.Items[i])
				}
			}
			return err
		},
	})
}

// kubelet resizes pods as an API server and a kubelet do together, or answers the dry run with an outcome of the test.
type kubelet struct {
	client.Client
	dryRun    podresize.Outcome
	ignore    bool      // the resize is stored, and never takes effect
	most      cpu.Milli // above it a quota refuses; 0: none does
	afterEach func()    // is called after each resize
	moves     []actuator.Move
	asked     []string // the pods of dry runs
	audit     bytes.Buffer
	// hangs is the namespace whose webhook does not answer; mutates is the pod of which admission
	// changes more than was asked for, though not in a dry run.
	hangs, mutates string
	// wouldMutate is the pod of which a dry run shows that, and during is called in its first dry run.
	wouldMutate string
	during      func()
}

func (k *kubelet) DryRun(_ context.Context, pod *corev1.Pod, _ actuator.Move) podresize.Result {
	k.asked = append(k.asked, pod.Name)
	if during := k.during; during != nil && pod.Name == "a-0" {
		k.during = nil
		during()
	}
	if pod.Name == k.wouldMutate {
		return podresize.Result{Outcome: podresize.WouldMutate, Message: "app limits memory=64Mi is added"}
	}
	if pod.Namespace == k.hangs {
		return podresize.Result{Outcome: podresize.Unavailable, WebhookFailed: true, Message: "failed calling webhook"}
	}
	return podresize.Result{Outcome: k.dryRun, Message: "because"}
}

func (k *kubelet) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if k.most > 0 && move.Changes[0].To > k.most {
		return podresize.Result{Outcome: podresize.QuotaExceeded}
	}
	k.moves = append(k.moves, move)
	if k.afterEach != nil {
		defer k.afterEach()
	}
	resources := &pod.Spec.Containers[0].Resources
	resources.Limits = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(move.Changes[0].To)}
	pod.ManagedFields = nil
	if err := k.Update(ctx, pod); err != nil { // which leaves the status as it was
		return podresize.Result{Outcome: podresize.Unavailable, Message: err.Error()}
	}
	if !k.ignore {
		pod.Status.ContainerStatuses[0].Resources = pod.Spec.Containers[0].Resources.DeepCopy()
	}
	if err := k.Status().Update(ctx, pod); err != nil {
		return podresize.Result{Outcome: podresize.Unavailable, Message: err.Error()}
	}
	if pod.Name == k.mutates {
		return podresize.Result{Outcome: podresize.WouldMutate, Pod: pod, Message: "app limits memory=64Mi is added"}
	}
	return podresize.Result{Outcome: podresize.Accepted, Pod: pod}
}

// cluster restores the pods of a client, under a clock that goes a second ahead whenever it is read.
func cluster(c client.Client) (r *Cluster, k *kubelet, out *bytes.Buffer) {
	var now atomic.Int64 // seconds
	k, out = &kubelet{Client: c, dryRun: podresize.Accepted}, &bytes.Buffer{}
	return &Cluster{
		Client: c, Resize: k, Namespace: system, Out: out, Audit: slog.New(slog.NewJSONHandler(&k.audit, nil)),
		Workers: 1, Rate: 1e6, Interval: time.Millisecond,
		Now: func() time.Time {
			return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Add(time.Duration(now.Add(1)) * time.Second)
		},
	}, k, out
}

// recorded is a client with pods of which 500m are recorded as declared.
func recorded(t *testing.T, pods ...*corev1.Pod) client.WithWatch {
	t.Helper()
	var objects []client.Object
	entries, exists := map[types.UID]Entry{}, map[types.UID]bool{}
	for i, p := range pods {
		if i%2 == 0 {
			pa := allocation.New(p)
			pa.Status.DeclaredLimits = limits(500)
			objects = append(objects, pa)
		} else {
			entries[p.UID], exists[p.UID] = Entry{p.Namespace, p.Name, limits(500)}, true
		}
		objects = append(objects, p)
	}
	c := newClient(t, objects...)
	_, err := NodeLedger{Namespace: system, Node: "n1"}.Write(t.Context(), c, entries, exists)
	must.Succeed(t, err)
	return c
}

// owned are pods of one ReplicaSet that MBCAS raised to 2000m.
func owned(names ...string) (pods []*corev1.Pod) {
	yes := true
	for _, name := range names {
		p := pod(name, 2000, true)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "a", UID: "a", Controller: &yes}}
		pods = append(pods, p)
	}
	return pods
}

// onPods is a client that calls a function before each list of pods, which fails with what that returns.
func onPods(c client.WithWatch, before func() error) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			if _, ok := o.(*corev1.PodList); ok {
				if err := before(); err != nil {
					return err
				}
			}
			return c.List(ctx, o, opts...)
		},
	})
}

// leader acknowledges pauses for a replica that leads, alone, and of which no resize is in flight.
func leader(c client.Client) Acknowledger {
	none := func() (string, string) { return "", "" }
	return Acknowledger{
		Client: c, Namespace: system, InFlight: func() int64 { return 0 }, Blocked: none, Warning: none, Changed: func(bool) {},
		Acknowledge: func(string) bool { return true }, Leads: func() bool { return true },
	}
}

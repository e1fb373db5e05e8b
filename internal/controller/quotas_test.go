package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
)

// office is a namespace with a quota of ten cores and four managed pods that want the same, as two caches show them, which a test
// may have at different moments.
type office struct {
	*testing.T
	r   *Reconciler
	now time.Time
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{T: t, now: noon}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme),
		policyv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(8000)}
	objects := []client.Object{node}
	for i := range 4 {
		pod := running(fmt.Sprintf("web-%d", i), 2000, true)
		pod.ManagedFields = nil // the fake client wants them whole
		pa := allocation.New(pod)
		pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{app(500)}
		pa.Spec.Decision = &v1alpha1.Decision{Demand: 1000}
		objects = append(objects, pod, pa)
	}
	o.r = (&Reconciler{
		Config: DefaultConfig(), Now: func() time.Time { return o.now },
		API:  API{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()},
		Gate: NewGate(nil, nil),
	}).Ready()
	return o
}

// cores is the quota of the office.
func cores(hard, used cpu.Milli) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cores", UID: "q1"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(hard)}
	q.Status.Hard = q.Spec.Hard
	q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(used)}
	return q
}

// divided is what each of the four pods may have by the quota as it shows that much, and how soon that may change by itself.
func (o *office) divided(hard, used cpu.Milli) (shares []cpu.Milli, again time.Duration) {
	o.Helper()
	n := &namespaceState{NamespaceObjects: constraints.NamespaceObjects{Quotas: []corev1.ResourceQuota{*cores(hard, used)}}}
	if err := o.r.divide(o.Context(), n, "shop"); err != nil {
		o.Fatal(err)
	}
	for i := range 4 {
		shares = append(shares, n.shares[types.UID(fmt.Sprintf("web-%d", i))].most)
	}
	if !n.recheckAt.IsZero() {
		again = n.recheckAt.Sub(o.now)
	}
	return shares, again
}

// is fails the test where the shares are not all as wanted.
func (o *office) is(what string, hard, used, want cpu.Milli, wantAgain time.Duration) {
	o.Helper()
	shares, again := o.divided(hard, used)
	if slices.Min(shares) != want || slices.Max(shares) != want || again != wantAgain {
		o.Errorf("%s: shares %v and another look in %v, want %v and %v", what, shares, again, want, wantAgain)
	}
}

// shows has the cache show a pod with that limit, in its spec and in force.
func (o *office) shows(name string, spec, inForce cpu.Milli) {
	o.Helper()
	pod := &corev1.Pod{}
	if err := o.r.Client.Get(o.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		o.Fatal(err)
	}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(spec)}
	if err := o.r.Client.Update(o.Context(), pod); err != nil {
		o.Fatal(err)
	}
	pod.Status.ContainerStatuses[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(inForce)}
	if err := o.r.Client.Status().Update(o.Context(), pod); err != nil {
		o.Fatal(err)
	}
}

// TestAResizeIsNobodyElse: while the quota shows a resize and the pod not yet, or the other way round, all shares stay, as nobody else
// uses anything.
func TestAResizeIsNobodyElse(t *testing.T) {
	o := newOffice(t)
	o.is("steady", 10000, 8000, 2250, 0)
	o.now = o.now.Add(50 * time.Second) // nobody has looked for long
	o.is("raised, in the quota", 10000, 9000, 2250, quota.Lag)
	o.now = o.now.Add(20 * time.Millisecond)
	o.shows("web-0", 3000, 2000)
	o.is("raised, in both", 10000, 9000, 2250, 0)
	o.shows("web-0", 2000, 3000)
	o.is("lowered, not in force", 10000, 9000, 2250, 0)
	o.now = o.now.Add(20 * time.Second)
	o.shows("web-0", 2000, 2000)
	o.is("lowered, in the pod", 10000, 9000, 2250, quota.Lag)
	o.now = o.now.Add(quota.Lag / 2)
	o.is("and one more", 10000, 9100, 2250, quota.Lag/2)
	o.now = o.now.Add(quota.Lag / 4)
	o.is("lowered, in both", 10000, 8000, 2250, 0)
}

// TestOthersCount: what others take lowers every share: at once where the cache shows their pods, and else once it has lasted.
func TestOthersCount(t *testing.T) {
	o := newOffice(t)
	o.is("steady", 10000, 8000, 2250, 0)
	o.is("a smaller quota", 8000, 8000, 1800, 0)
	o.is("as before", 10000, 8000, 2250, 0)
	for i := range 3 {
		o.is("in the quota only", 10000, 8800, 2250, quota.Lag-time.Duration(i)*time.Second)
		o.now = o.now.Add(time.Second)
	}
	o.is("in the quota for long", 10000, 8800, 2050, 0)
	o.is("not any more", 10000, 8000, 2250, 0)

	other := running("other", 600, false)
	other.ManagedFields = nil
	if err := o.r.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	o.is("a new pod", 10000, 8600, 2100, 0)
	grace := int64(30)
	for _, c := range []struct {
		what  string
		since time.Duration // it should have been gone
		ended corev1.PodPhase
		holds bool
	}{
		{"on its way out", -time.Minute, corev1.PodRunning, true},
		{"late", 29 * time.Second, corev1.PodRunning, true},
		{"stuck", 31 * time.Second, corev1.PodRunning, false},
		{"ended", -time.Minute, corev1.PodSucceeded, false},
	} {
		pod := other.DeepCopy()
		at := metav1.NewTime(o.now.Add(-c.since))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds, pod.Status.Phase = &at, &grace, c.ended
		if got := constraints.CountsAgainstQuota(pod, o.now); got != c.holds {
			t.Errorf("a pod that is %s: a quota counts it: %v, want %v", c.what, got, c.holds)
		}
	}
}

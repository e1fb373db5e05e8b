package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
)

const system = "mbcas-system"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
	must(t, errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
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
	dryRun podresize.Outcome
	ignore bool      // the resize is stored, and never takes effect
	most   cpu.Milli // above it a quota refuses; 0: none does
	after  func()    // is called after the first resize
	moves  []actuator.Move
}

func (k *kubelet) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	return podresize.Result{Outcome: k.dryRun, Message: "because"}
}

func (k *kubelet) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if k.most > 0 && move.Changes[0].To > k.most {
		return podresize.Result{Outcome: podresize.QuotaExceeded}
	}
	if k.moves = append(k.moves, move); len(k.moves) == 1 && k.after != nil {
		k.after()
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
	return podresize.Result{Outcome: podresize.Accepted, Pod: pod}
}

// cluster restores the pods of a client, under a clock that goes a second ahead whenever it is read.
func cluster(c client.Client) (r *Cluster, k *kubelet, out *bytes.Buffer) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	k, out = &kubelet{Client: c, dryRun: podresize.Accepted}, &bytes.Buffer{}
	return &Cluster{
		Client: c, Resize: k, Namespace: system, Out: out, Parallel: 1, Interval: time.Millisecond,
		Now: func() time.Time { now = now.Add(time.Second); return now },
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
	must(t, err)
	return c
}

// TestLeavesExternalChanges: only limits that MBCAS wrote last go back to what was declared.
func TestLeavesExternalChanges(t *testing.T) {
	for name, c := range map[string]struct {
		limit    cpu.Milli
		ours     bool
		changes  int
		external int
	}{
		"raised by MBCAS": {2000, true, 1, 0}, "raised by another writer": {700, false, 0, 1}, "never changed": {500, false, 0, 0},
		"restored": {500, true, 0, 0},
	} {
		move, external := ToDeclared(pod("web", c.limit, c.ours), limits(500))
		if len(move.Changes) != c.changes || len(external) != c.external || c.changes > 0 && move.Changes[0].To != 500 {
			t.Errorf("%s: %+v, external %v", name, move, external)
		}
	}
}

// TestReadsEachPodOnce: pods that the list shows at their declared limits are not read again, and pods that are gone are not looked for.
func TestReadsEachPodOnce(t *testing.T) {
	gone := pod("gone", 2000, true)
	base := recorded(t, pod("at-declared", 500, true), gone, pod("external", 700, false), pod("raised", 2000, true), pod("never", 500, false))
	must(t, base.Delete(t.Context(), gone))
	read := map[string]int{}
	c := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Pod); ok {
				read[key.Name]++
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r, k, out := cluster(c)
	if err := r.Restore(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(read) != 1 || read["raised"] == 0 || len(k.moves) != 1 || k.moves[0].Changes[0].To != 500 {
		t.Errorf("read %v, resized %+v; want only the raised pod\n%s", read, k.moves, out)
	}
	for _, line := range []string{
		"at-declared: at its declared limits, app=500m", "raised: at its declared limits, app=500m", "never: at its declared limits",
		"external: left as it is: another writer changed its limits to app=700m", "gone: gone", "5 pods looked at",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// TestNamesWhatIsNotRestored: a pod without a record, a refusal, and a kubelet that does not follow are in the error, each with its cause.
func TestNamesWhatIsNotRestored(t *testing.T) {
	for name, c := range map[string]struct {
		lost   bool
		dryRun podresize.Outcome
		ignore bool
		cause  string
		moves  int
	}{
		"no record":                    {lost: true, cause: "shop/web: no record of its declared limits; recreate it (DeclaredLimitUnknown)"},
		"admission would change it":    {dryRun: podresize.WouldMutate, cause: "shop/web: " + podresize.WouldMutate.String() + ": because"},
		"a kubelet that does not obey": {dryRun: podresize.Accepted, ignore: true, cause: "shop/web: ", moves: 1},
	} {
		base := newClient(t, pod("web", 2000, true))
		if !c.lost {
			base = recorded(t, pod("web", 2000, true))
		}
		r, k, out := cluster(base)
		k.dryRun, k.ignore = c.dryRun, c.ignore
		ctx, cancel := context.WithCancel(t.Context())
		passes := 0
		clock := r.Now
		r.Now = func() time.Time { // two passes, each of which reads the clock, and the pause before
			if passes++; passes == 20 {
				cancel()
			}
			return clock()
		}
		err := r.Restore(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "1 of 1 pods") || !strings.Contains(err.Error(), c.cause) || len(k.moves) != c.moves {
			t.Errorf("%s: error %v after %d resizes, want %q\n%s", name, err, len(k.moves), c.cause, out)
		}
	}
}

// TestFillsTheQuota: where a ResourceQuota has no room for all of it, a pod gets the part that fits, and the rest when there is room.
func TestFillsTheQuota(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cores"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(1000)}
	c := recorded(t, pod("web", 200, true))
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(800)}
	must(t, c.Create(t.Context(), q))
	r, k, _ := cluster(c)
	k.most = 400
	k.after = func() { // other pods have gone
		q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(400)}
		must(t, c.Update(t.Context(), q))
		k.most = 1000
	}
	must(t, r.Restore(t.Context()))
	if len(k.moves) != 2 || k.moves[0].Changes[0].To != 400 || k.moves[1].Changes[0].To != 500 {
		t.Errorf("resized %+v, want up to 400m and then to 500m", k.moves)
	}
}

// TestWaitsForTheLeader: a living leader has to acknowledge this pause before anything is restored; a dead one, or none, does not.
func TestWaitsForTheLeader(t *testing.T) {
	for name, c := range map[string]struct {
		leads, renews, answers bool
		limit                  cpu.Milli
		says                   string
	}{
		"lives":     {leads: true, renews: true, limit: 2000, says: "rollout restart deployment/mbcas-controller"},
		"answers":   {leads: true, renews: true, answers: true, limit: 500, says: "1 pods looked at"},
		"died":      {leads: true, limit: 500, says: "controller-1 does not renew its Lease"},
		"no leader": {limit: 500, says: "1 pods looked at"},
	} {
		base := recorded(t, pod("web", 2000, true))
		// An acknowledgement of an earlier pause is no answer to this one.
		must(t, writeSwitch(t.Context(), base, system, kube.FieldManager, map[string]string{kube.AcknowledgedKey: "restore-20261120T120000.000"}))
		var r *Cluster
		renewed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		leading := interceptor.NewClient(base, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				lease, ok := o.(*coordinationv1.Lease)
				if !ok || !c.leads {
					return w.Get(ctx, key, o, opts...)
				}
				if c.renews {
					renewed = renewed.Add(time.Second)
				}
				holder, at := "controller-1", metav1.NewMicroTime(renewed)
				lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &at
				if c.answers {
					a := Acknowledger{Client: base, Namespace: system, InFlight: func() int64 { return 0 }, Changed: func(bool) {},
						Blocked: func() (string, string) { return "", "" }}
					_, err := a.Reconcile(ctx, ctrl.Request{})
					return err
				}
				return nil
			},
		})
		r, _, out := cluster(leading)
		err := r.Restore(t.Context())
		said := out.String()
		if err != nil {
			said += err.Error()
		}
		if (err != nil) != (c.limit == 2000) || !strings.Contains(said, c.says) {
			t.Errorf("a leader that %s: error %v, want %q in\n%s", name, err, c.says, said)
		}
		got := &corev1.Pod{}
		must(t, base.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, got))
		if limit := kube.Total(kube.Limits(got)); limit != c.limit {
			t.Errorf("a leader that %s: limit %v, want %v", name, limit, c.limit)
		}
	}
}

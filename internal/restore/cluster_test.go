package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

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
		back := ToDeclared(pod("web", c.limit, c.ours), limits(500))
		move, external := back.Move, back.External
		if len(move.Changes) != c.changes || len(external) != c.external || c.changes > 0 && move.Changes[0].To != 500 {
			t.Errorf("%s: %+v, external %v", name, move, external)
		}
	}
}

// TestWaitsForNoContainer: pods whose container waits for its next start, or has ended for good. Only what was lowered
// below the declared limit is left as it is, and only where the container may start again it is named. So is a pod whose
// container ended right after its limit was raised.
func TestWaitsForNoContainer(t *testing.T) {
	down := func(name string, limit cpu.Milli, state corev1.ContainerState, policy corev1.RestartPolicy) *corev1.Pod {
		p := pod(name, limit, true)
		p.Status.ContainerStatuses[0].State, p.Spec.RestartPolicy = state, policy
		return p
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	stuck := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError"}}
	base := recorded(t, pod("dies", 200, true),
		down("lowered", 200, waits, corev1.RestartPolicyAlways), down("raised", 2000, waits, corev1.RestartPolicyAlways),
		down("done", 200, ended, corev1.RestartPolicyOnFailure), down("again", 200, failed, corev1.RestartPolicyOnFailure),
		down("failed", 200, failed, corev1.RestartPolicyNever), down("stuck", 500, stuck, corev1.RestartPolicyAlways),
	)
	r, k, out := cluster(base)
	k.afterEach = func() {
		p := &corev1.Pod{}
		must.Succeed(t, base.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "dies"}, p))
		if p.Spec.Containers[0].Resources.Limits.Cpu().MilliValue() == 500 {
			p.Status.ContainerStatuses[0].RestartCount++
			must.Succeed(t, base.Status().Update(t.Context(), p))
		}
	}
	must.Succeed(t, r.Restore(t.Context()))
	moved := map[string]cpu.Milli{}
	for _, m := range k.moves {
		moved[m.UID] = m.Changes[0].To
	}
	if want := map[string]cpu.Milli{"raised": 500, "dies": 500}; !maps.Equal(moved, want) || len(k.moves) != len(want) {
		t.Errorf("resized %+v, want %v", k.moves, want)
	}
	if want := "\n4 pods may not run with their declared limits, as a container does not run, or ended meanwhile. Where an owner makes " +
		"another one, delete such a pod:\n  shop/again (app)\n  shop/dies (app)\n  shop/lowered (app)\n  shop/stuck (app)\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("report:\n%s", out)
	}
}

// TestReadsPages: records and pods are listed in pages, no pod is read by itself, and only a pod that is
// not at its declared limits is resized, with an audit line.
func TestReadsPages(t *testing.T) {
	gone := pod("gone", 2000, true)
	base := recorded(t, pod("at-declared", 500, true), gone, pod("external", 700, false), pod("raised", 2000, true), pod("never", 500, false))
	must.Succeed(t, base.Delete(t.Context(), gone))
	c := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Pod); ok {
				t.Errorf("pod %s was read by itself", key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			var of client.ListOptions
			if of.ApplyOptions(opts); of.Limit != pageSize {
				t.Errorf("%T is listed with limit %d, want %d", o, of.Limit, pageSize)
			}
			return c.List(ctx, o, opts...)
		},
	})
	r, k, out := cluster(c)
	if err := r.Restore(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(k.moves) != 1 || k.moves[0].Changes[0].To != 500 {
		t.Errorf("resized %+v; want only the raised pod\n%s", k.moves, out)
	}
	if !regexp.MustCompile("1 pods restored in .*, 2 at their declared limits before, 1 left as another client set them, 0 not restored; 1 records").Match(out.Bytes()) {
		t.Errorf("report:\n%s", out)
	}
	var line map[string]any
	must.Succeed(t, json.Unmarshal(k.audit.Bytes(), &line))
	for key, want := range map[string]any{"namespace": "shop", "pod": "raised", "purpose": "restore", "outcome": "Accepted", "actor": kube.FieldManager} {
		if line[key] != want {
			t.Errorf("audit line %v: %s is %v, want %v", line, key, line[key], want)
		}
	}
}

// TestContinuesWhereItEnded: a run whose time is up says what is left, and the next run resizes only
// those pods.
func TestContinuesWhereItEnded(t *testing.T) {
	const all, first = 20, 7
	var pods []*corev1.Pod
	for i := range all {
		pods = append(pods, pod(fmt.Sprintf("web-%02d", i), 2000, true))
	}
	c := recorded(t, pods...)
	r, k, out := cluster(c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k.afterEach = func() {
		if len(k.moves) == first {
			cancel()
		}
	}
	err := r.Restore(ctx)
	if err == nil || len(k.moves) != first || !strings.Contains(err.Error(), "13 pods are not back") || !strings.Contains(err.Error(), "shop/web-19: ") {
		t.Fatalf("%d pods resized; error %v\n%s", len(k.moves), err, out)
	}
	r, k, out = cluster(c)
	must.Succeed(t, r.Restore(t.Context()))
	if len(k.moves) != all-first || !strings.Contains(out.String(), "13 pods restored in") || !strings.Contains(out.String(), "7 at their declared limits before") {
		t.Errorf("the next run resized %d pods, want %d\n%s", len(k.moves), all-first, out)
	}
}

// TestEndsWithoutProgress: pods that cannot be restored are tried a few times, and then named with the
// reason; the rest of the time is not waited out. While something changes, or the API server does not list
// all pods, the run goes on. Without a record, no second pass is of any use.
func TestEndsWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(k *kubelet)
		cause   string
		resizes int
	}{
		"refused":             {func(k *kubelet) { k.dryRun = podresize.LimitRangeRefused }, "because (" + podresize.LimitRangeRefused.String() + ")", 0},
		"would be mutated":    {func(k *kubelet) { k.dryRun = podresize.WouldMutate }, "because (" + podresize.WouldMutate.String() + ")", 0},
		"never in force":      {func(k *kubelet) { k.ignore = true }, "(not yet in force)", 1},
		"behind dead webhook": {func(k *kubelet) { k.hangs = "shop" }, "failed calling webhook", 0},
		"no record":           {nil, "no record of its declared limits; recreate it (DeclaredLimitUnknown)", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			passes, base := 0, newClient(t, pod("web", 2000, true))
			if c.change != nil {
				base = recorded(t, pod("web", 2000, true))
			}
			r, k, _ := cluster(onPods(base, func() error { passes++; return nil }))
			r.Interval = time.Second
			if c.change != nil {
				c.change(k)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			err := r.Restore(ctx)
			if took := time.Since(began); took > 2*time.Minute || c.change != nil && took < 15*time.Second || c.change == nil && passes != 1 {
				t.Errorf("%s: ended after %v and %d passes, want some passes, or one", name, took, passes)
			}
			if err == nil || !strings.Contains(err.Error(), "1 pods are not back") || !strings.Contains(err.Error(), "shop/web: ") ||
				!strings.Contains(err.Error(), c.cause) || c.change != nil && !strings.Contains(err.Error(), "no progress") {
				t.Errorf("%s: error %v", name, err)
			}
			if len(k.moves) != c.resizes {
				t.Errorf("%s: %d resizes, want %d", name, len(k.moves), c.resizes)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r, _, out := cluster(onPods(recorded(t, pod("web", 2000, true)), func() error {
			if time.Since(began) < 10*time.Minute {
				return errors.New("the server is away")
			}
			return nil
		}))
		r.Interval = time.Second
		if err := r.Restore(t.Context()); err != nil {
			t.Errorf("after the API server is back: %v\n%s", err, out)
		}
	})
}

// TestOneNamespaceCostsItself: of a namespace whose webhook does not answer three pods are tried in a
// pass; the others are restored.
func TestOneNamespaceCostsItself(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 20 {
		sick, well := pod(fmt.Sprint("sick-", i), 2000, true), pod(fmt.Sprint("well-", i), 2000, true)
		sick.Namespace, well.Namespace = "abc", "xyz"
		pods = append(pods, sick, well)
	}
	r, k, out := cluster(recorded(t, pods...))
	k.hangs = "abc"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k.afterEach = func() {
		if len(k.moves) == 20 {
			cancel()
		}
	}
	err := r.Restore(ctx)
	tried := 0
	for _, name := range k.asked {
		if strings.HasPrefix(name, "sick") {
			tried++
		}
	}
	if err == nil || len(k.moves) != 20 || tried != webhooksFail || !strings.Contains(err.Error(), "20 pods are not back") ||
		!strings.Contains(err.Error(), "abc/sick-0: failed calling webhook") {
		t.Errorf("%d pods restored, %d tried where the webhook does not answer; error %v\n%s", len(k.moves), tried, err, out)
	}
}

// TestDryRunsOncePerTemplate: one dry run serves all pods of an owner. Once admission has changed a pod
// all the same, each pod of its namespace has one.
func TestDryRunsOncePerTemplate(t *testing.T) {
	for mutates, want := range map[string]int{"": 2, "a-2": 2 + 7} {
		pods := owned("a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7", "a-8", "a-9")
		r, k, _ := cluster(recorded(t, append(pods, pod("bare", 2000, true))...))
		k.mutates = mutates
		must.Succeed(t, r.Restore(t.Context()))
		if len(k.asked) != want || len(k.moves) != 11 {
			t.Errorf("admission changes %q: dry runs of %v, want %d", mutates, k.asked, want)
		}
	}
}

// TestADryRunVoidsOthers: once a dry run shows that admission would change a pod of a namespace, pods whose
// template was found harmless before have another dry run, and so has one whose dry run is under way. A pod that
// would be changed at each attempt voids them once.
func TestADryRunVoidsOthers(t *testing.T) {
	pods := owned("a-0", "a-1", "z-0", "z-1")
	for name, c := range map[string]struct {
		meanwhile bool
		want      []string
	}{"before": {false, []string{"a-0", "z-0"}}, "meanwhile": {true, []string{"a-0", "a-0"}}} {
		r, k, _ := cluster(recorded(t, append(pods, pod("m", 2000, true))...))
		k.wouldMutate = "m"
		if c.meanwhile {
			k.during = func() { r.resize(t.Context(), pod("m", 2000, true), actuator.Move{UID: "m"}) }
		}
		if err := r.Restore(t.Context()); err == nil || len(k.moves) != len(pods) {
			t.Errorf("%s: %d pods restored, error %v", name, len(k.moves), err)
		}
		asked := slices.DeleteFunc(k.asked, func(pod string) bool { return pod == "m" })
		if !slices.Equal(asked, c.want) {
			t.Errorf("%s: dry runs of %v, want %v", name, asked, c.want)
		}
	}
}

// TestWithoutDryRuns: where a webhook does not support dry runs, a pod is restored all the same unless a
// LimitRange could add a default to it, as the controller resizes it.
func TestWithoutDryRuns(t *testing.T) {
	for _, limitRange := range []bool{false, true} {
		c := recorded(t, pod("bare", 2000, true))
		if limitRange {
			defaults := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "defaults"}}
			must.Succeed(t, c.Create(t.Context(), defaults))
		}
		r, k, out := cluster(c)
		k.dryRun = podresize.NoDryRun
		err := r.Restore(t.Context()) // ends by itself when passes are in vain
		if restored := len(k.moves) == 1; restored == limitRange || (err == nil) != restored {
			t.Errorf("with a LimitRange %v: %d resizes, error %v\n%s", limitRange, len(k.moves), err, out)
		}
	}
}

// TestACutCheckIsNoSuccess: whether kubelets carried out what was accepted is open when the pass that
// looks is cut.
func TestACutCheckIsNoSuccess(t *testing.T) {
	total, first := newTally(io.Discard, time.Now), newTally(io.Discard, time.Now)
	first.looked, first.done = 1, 1
	total.add(first)
	check := newTally(io.Discard, time.Now)
	check.cut = context.DeadlineExceeded
	if total.add(check); total.left(1) == nil {
		t.Error("all pods count as restored although nothing looked at them again")
	}
	complete := newTally(io.Discard, time.Now)
	complete.looked = 1
	if total.add(complete); total.left(1) != nil {
		t.Errorf("after a complete pass: %v", total.left(1))
	}
}

// TestFillsTheQuota: where a ResourceQuota has no room for all of it, a pod gets the part that fits, and the rest when there is room.
func TestFillsTheQuota(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cores"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(1000)}
	c := recorded(t, pod("web", 200, true))
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(800)}
	must.Succeed(t, c.Create(t.Context(), q))
	r, k, _ := cluster(c)
	k.most = 400
	k.afterEach = func() { // other pods have gone
		k.afterEach = nil
		q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(400)}
		must.Succeed(t, c.Update(t.Context(), q))
		k.most = 1000
	}
	must.Succeed(t, r.Restore(t.Context()))
	if len(k.moves) != 2 || k.moves[0].Changes[0].To != 400 || k.moves[1].Changes[0].To != 500 {
		t.Errorf("resized %+v, want up to 400m and then to 500m", k.moves)
	}
}

// TestWaitsForAllReplicas: a living leader, or another living replica, has to acknowledge this pause before anything is restored; a dead one, or none, does not.
func TestWaitsForAllReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		leads, renews, answers bool
		replica                string // "renews" its Lease, or "died"
		limit                  cpu.Milli
		report                 string
	}{
		"lives":     {leads: true, renews: true, limit: 2000, report: "rollout restart deployment/mbcas-controller"},
		"answers":   {leads: true, renews: true, answers: true, limit: 500, report: "1 pods restored"},
		"died":      {leads: true, limit: 500, report: "any more (last: controller-1)"},
		"no leader": {limit: 500, report: "1 pods restored"},
		// Whether a replica leads makes no difference to its resizes.
		"left others":       {replica: "renews", limit: 2000, report: "the controller controller-2 renews its Lease"},
		"died before":       {leads: true, replica: "renews", limit: 2000, report: "rollout restart deployment/mbcas-controller"},
		"died with others":  {leads: true, replica: "died", limit: 500, report: "any more (last: controller-1, controller-2)"},
		"answers with them": {leads: true, renews: true, answers: true, replica: "renews", limit: 500, report: "1 pods restored"},
	} {
		base := recorded(t, pod("web", 2000, true))
		// An acknowledgement of an earlier pause is no answer to this one.
		acknowledged := map[string]string{kube.AcknowledgedKey: "restore-20261120T120000.000"}
		must.Succeed(t, writeSwitch(t.Context(), base, system, kube.FieldManager, acknowledged))
		renewed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		held := func(lease *coordinationv1.Lease, holder string, renews bool) {
			if renews {
				renewed = renewed.Add(time.Second)
			}
			at := metav1.NewMicroTime(renewed)
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &at
		}
		leading := interceptor.NewClient(base, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				lease, ok := o.(*coordinationv1.Lease)
				if !ok || !c.leads {
					return w.Get(ctx, key, o, opts...)
				}
				held(lease, "controller-1", c.renews)
				if !c.answers {
					return nil
				}
				a := leader(base)
				_, err := a.Reconcile(ctx, ctrl.Request{})
				return err
			},
			List: func(ctx context.Context, w client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				list, ok := o.(*coordinationv1.LeaseList)
				if !ok || c.replica == "" {
					return w.List(ctx, o, opts...)
				}
				lease := coordinationv1.Lease{}
				lease.Name, lease.Labels = "controller-2", map[string]string{kube.ReplicaLabel: "true"}
				held(&lease, lease.Name, c.replica == "renews")
				list.Items = append(list.Items, lease)
				return nil
			},
		})
		r, _, out := cluster(leading)
		err := r.Restore(t.Context())
		report := fmt.Sprint(out, err)
		if (err != nil) != (c.limit == 2000) || !strings.Contains(report, c.report) {
			t.Errorf("a leader that %s: error %v, want %q in\n%s", name, err, c.report, report)
		}
		got := &corev1.Pod{}
		must.Succeed(t, base.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, got))
		if limit := kube.Total(kube.Limits(got)); limit != c.limit {
			t.Errorf("a leader that %s: limit %v, want %v", name, limit, c.limit)
		}
	}
}

package controller

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// raised is a pod that was raised from 500m to 2000m.
func (l *life) raised(name string) *corev1.Pod {
	l.Helper()
	pod := l.rig.pod(name, "100m", "500m")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	l.publish(pod, "0.000", app(2000))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return pod
}

func declaredIs(t *testing.T, pa *v1alpha1.PodAllocation, want ...v1alpha1.ContainerLimit) {
	t.Helper()
	if pa == nil || !kube.SameLimits(pa.Status.DeclaredLimits, want) {
		t.Fatalf("allocation %+v: want declared limits %v", pa, want)
	}
}

// witness looks at the records at the moment of each resize.
type witness struct {
	Resizer
	look func(*corev1.Pod)
}

func (w witness) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	w.look(pod)
	return w.Resizer.Apply(ctx, pod, move)
}

func TestRecordsBeforeResizing(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	seen := 0
	l.Resize = witness{l.Resize, func(pod *corev1.Pod) {
		seen++
		declaredIs(t, r.stored(pod), app(500))
		cm := &corev1.ConfigMap{}
		r.must(r.Client.Get(r.Context(), client.ObjectKey{Namespace: r.config.Namespace, Name: restore.LedgerName(r.kubelet.Node)}, cm))
		if e, ok := restore.ReadEntry(cm, pod.UID); !ok || !kube.SameLimits(e.Limits, []v1alpha1.ContainerLimit{app(500)}) || e.Pod != pod.Name {
			t.Errorf("ledger entry at the time of a resize: %+v", e)
		}
	}}
	l.raised("web")
	if seen == 0 {
		t.Error("no resize was seen")
	}
}

func TestNeverForgetsDeclared(t *testing.T) {
	r := newRig(t)
	for name, lost := range map[string]struct {
		allocation, ledger, memory, writers bool
		template                            string
		want                                reasons.Reason
		declared                            []v1alpha1.ContainerLimit
	}{
		"allocation":             {allocation: true, want: reasons.NoDecisionYet, declared: []v1alpha1.ContainerLimit{app(500)}},
		"allocation-and-ledger":  {allocation: true, ledger: true, want: reasons.NoDecisionYet, declared: []v1alpha1.ContainerLimit{app(500)}},
		"allocation-and-memory":  {allocation: true, memory: true, want: reasons.NoDecisionYet, declared: []v1alpha1.ContainerLimit{app(500)}},
		"ledger-and-memory":      {ledger: true, memory: true, want: reasons.Settled, declared: []v1alpha1.ContainerLimit{app(500)}},
		"all-with-template":      {allocation: true, ledger: true, memory: true, template: "600m", want: reasons.NoDecisionYet, declared: []v1alpha1.ContainerLimit{app(600)}},
		"all":                    {allocation: true, ledger: true, memory: true, want: reasons.DeclaredLimitUnknown},
		"all-and-managed-fields": {allocation: true, ledger: true, memory: true, writers: true, want: reasons.DeclaredLimitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := l.owned(name, lost.template)
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			l.publish(pod, "0.000", app(2000))
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			if lost.allocation {
				r.vanish(pod, theAllocation)
			}
			if lost.ledger {
				r.vanish(pod, theLedger)
			}
			if lost.writers {
				r.must(r.Client.Patch(r.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"managedFields":[{}]}}`))))
			}
			if lost.memory {
				l = r.live(0, false)
			}
			phase := map[reasons.Reason]v1alpha1.Phase{
				reasons.NoDecisionYet: v1alpha1.PhasePending, reasons.Settled: v1alpha1.PhaseApplied, reasons.DeclaredLimitUnknown: v1alpha1.PhaseNotApplied,
			}[lost.want]
			pa := l.settles(pod, phase, lost.want)
			declaredIs(t, pa, lost.declared...)
			if got := r.limit(pod); got != 2000 {
				t.Errorf("limit %v, want the 2000m that it had", got)
			}
			if lost.want == reasons.DeclaredLimitUnknown {
				r.publish(pod, "0.000", app(3000))
				l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DeclaredLimitUnknown)
				if got := r.limit(pod); got != 2000 {
					t.Errorf("limit %v: a pod without known declared limits was resized", got)
				}
			}
		})
	}
}

// owned runs a pod, of a ReplicaSet with that limit in its template unless it is "".
func (l *life) owned(name, template string) *corev1.Pod {
	l.Helper()
	p := apiserver.Pod(l.namespace, name, apiserver.Container("app", "100m", "500m"))
	if template != "" {
		labels := map[string]string{"app": name}
		rs := &appsv1.ReplicaSet{}
		rs.Namespace, rs.Name = l.namespace, name
		rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		rs.Spec.Template.Labels = labels
		rs.Spec.Template.Spec.Containers = []corev1.Container{apiserver.Container("app", "100m", template)}
		l.must(l.rig.Client.Create(l.Context(), rs))
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	return l.kubelet.Run(l.T, p)
}

func TestStandsBack(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ name, to string }{{"other", "900m"}, {"back-to-declared", "500m"}} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := l.raised(c.name)
			before := l.counter.resizes()
			r.resizeAs("somebody", pod, c.to)
			pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)
			want := kube.Milli(resource.MustParse(c.to))
			declaredIs(t, pa, app(want))
			// Not even a restart shortens the hold, and what is held is not moved.
			l = r.live(0, false)
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)
			if got := r.limit(pod); got != want || before == 0 {
				t.Errorf("limit %v after somebody set %v", got, want)
			}
			l.ahead = l.Config.ExternalChangeHoldOff + time.Second
			r.hearAt(time.Now().Add(l.ahead))
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			if got := r.limit(pod); got != 2000 {
				t.Errorf("limit %v after the hold, want the decided 2000m", got)
			}
			declaredIs(t, r.stored(pod), app(want))
			r.hear()
		})
	}
}

// resizeAs changes a pod's limit under another name.
func (r *rig) resizeAs(manager string, pod *corev1.Pod, limit string) {
	r.Helper()
	patch := `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"` + limit + `"}}}]}}`
	r.must(r.Client.SubResource("resize").Patch(r.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", []byte(patch)), client.FieldOwner(manager)))
}

func TestLeavesNothingBehind(t *testing.T) {
	r := newRig(t)
	t.Run("opted out", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("optout")
		r.label(pod, "false")
		r.until("the allocation is gone", func() (bool, any) { pa := l.look(pod); return pa == nil, pa })
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v, want the declared 500m", got)
		}
		r.label(pod, "true")
		declaredIs(t, l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet), app(500))
	})
	t.Run("opted out after its allocation was deleted", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("optout-late")
		r.vanish(pod, theAllocation)
		r.label(pod, "false")
		r.until("the limit is back", func() (bool, any) { l.look(pod); return r.limit(pod) == 500, r.limit(pod) })
	})
	t.Run("mode off", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("off")
		r.mode(r.namespace, kube.ModeOff)
		r.until("the allocation is gone", func() (bool, any) { pa := l.look(pod); return pa == nil, pa })
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v, want the declared 500m", got)
		}
		r.mode(r.namespace, kube.ModeEnforce)
	})
	t.Run("mode restore", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("restore")
		r.mode(r.namespace, kube.ModeRestore)
		l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v, want the declared 500m", got)
		}
		r.publish(pod, "0.000", app(3000))
		l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v: a restored pod was moved again", got)
		}
		r.mode(r.namespace, kube.ModeEnforce)
	})
}

func (r *rig) label(pod *corev1.Pod, managed string) {
	r.Helper()
	patch := `{"metadata":{"labels":{"` + kube.ManagedKey + `":"` + managed + `"}}}`
	r.must(r.Client.Patch(r.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

func TestRecommendNeverResizes(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	r.mode(r.namespace, kube.ModeRecommend)
	pod := r.pod("web", "100m", "500m")
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
	r.publish(pod, "0.000", app(2000))
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
	if got := r.limit(pod); got != 500 || l.counter.resizes() != 0 {
		t.Errorf("limit %v after %d resizes, want 500m and none", got, l.counter.resizes())
	}
}

func TestQuiet(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web")
	r.pod("best-effort", "", "")
	for _, mode := range []kube.Mode{kube.ModeEnforce, kube.ModeRecommend} {
		r.mode(r.namespace, mode)
		l.look(pod)
		before := l.writes.count()
		for range 5 {
			l.ahead += time.Minute
			r.hearAt(time.Now().Add(l.ahead))
			r.publish(pod, "0.000", app(2000)) // another decision, and the same limits
			l.look(pod)
		}
		if got := l.writes.count() - before; got != 0 {
			t.Errorf("mode %s: %d writes while no limit changed: %v", mode, got, l.writes.seen[before:])
		}
	}
}

// hearAt renews the agent's Lease at a time of the test's clock.
func (r *rig) hearAt(at time.Time) {
	r.Helper()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = r.config.Namespace, kube.AgentLease(r.kubelet.Node)
	now := metav1.NewMicroTime(at)
	lease.Spec.RenewTime = &now
	r.must(r.Client.Patch(r.Context(), lease, client.Merge))
}

func TestActsNowhereBlind(t *testing.T) {
	r := newRig(t)
	t.Run("agent silent", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("silent")
		l.ahead = 61 * time.Second
		r.publish(pod, "0.000", app(3000))
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.AgentUnresponsive)
		if got := r.limit(pod); got != 2000 {
			t.Errorf("limit %v: moved although the agent is silent", got)
		}
		l.ahead = 5*time.Minute + 2*time.Second
		l.settles(pod, v1alpha1.PhaseRestored, reasons.AgentUnresponsive)
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v after five minutes of silence, want the declared 500m", got)
		}
		r.hearAt(time.Now().Add(l.ahead))
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
		if got := r.limit(pod); got != 500 {
			t.Errorf("limit %v: moved by what the agent decided before it was silent", got)
		}
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		if got := r.limit(pod); got != 3000 {
			t.Errorf("limit %v once the agent is back, want 3000m", got)
		}
		r.hear()
	})
	for outcome, reason := range map[podresize.Outcome]reasons.Reason{
		podresize.NotServed: reasons.ResizeNotServed, podresize.NotAllowed: reasons.PermissionMissing,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			l.Resize = answer{podresize.Result{Outcome: outcome, Message: "no"}}
			pod := r.pod(strings.ToLower(outcome.String()), "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			r.publish(pod, "0.000", app(2000))
			before := l.stored(pod).Status
			if now := l.look(pod).Status; l.Gate.Ready(nil) == nil || now.Phase != v1alpha1.PhasePending || !reflect.DeepEqual(now, before) {
				t.Errorf("ready: %v; status %+v, want it as it was: %+v", l.Gate.Ready(nil), now, before)
			}
			if why, _ := l.Gate.Closed(); why != reason {
				t.Errorf("the gate is closed for %q, want %q", why, reason)
			}
			// The real API server serves it, and the test's user may: the next check opens the gate again.
			l.Resize = l.counter
			if err := l.Gate.Check(t.Context()); err != nil || l.Gate.Ready(nil) != nil {
				t.Fatalf("check: %v, ready: %v", err, l.Gate.Ready(nil))
			}
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		})
	}
	t.Run("a user without the right", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		gate := NewGate(l.Gate.Discovery, r.As(t, "nobody-"+r.namespace))
		if err := gate.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reason, why := gate.Closed(); reason != reasons.PermissionMissing || !strings.Contains(why, "pods/resize") {
			t.Errorf("gate closed for %q: %s", reason, why)
		}
	})
	t.Run("paused", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.raised("paused")
		r.must(restore.Pause(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager, "true"))
		r.publish(pod, "0.000", app(3000))
		before := l.stored(pod)
		if now := l.look(pod); r.limit(pod) != 2000 || !reflect.DeepEqual(now.Status, before.Status) || now.Status.ObservedGeneration == now.Generation {
			t.Errorf("limit %v while paused; status %+v, want it as it was: %+v", r.limit(pod), now.Status, before.Status)
		}
		r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager))
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	})
}

func TestTheBudgetHolds(t *testing.T) {
	r := newRig(t)
	r.config.Burst, r.config.Rate = 1, 0.1
	l := r.live(0, false)
	pods := []*corev1.Pod{r.pod("a", "100m", "500m"), r.pod("b", "100m", "500m")}
	for _, pod := range pods {
		l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
		r.publish(pod, "0.000", app(2000))
	}
	if _, err := l.once(); err != nil {
		t.Fatal(err)
	}
	if got := l.counter.resizes(); got != 1 {
		t.Fatalf("%d resizes at once, want the 1 that the budget allows", got)
	}
	if pa := r.stored(pods[1]); pa.Status.Reason != string(reasons.RateLimited) {
		t.Errorf("the other pod: %+v", pa.Status)
	}
	l.ahead = 11 * time.Second
	l.settles(pods[1], v1alpha1.PhaseApplied, reasons.Settled)
}

func TestForgeriesAreRemoved(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web")
	other := r.Namespace(t)
	for name, forge := range map[string]func(*v1alpha1.PodAllocation){
		"of a pod that does not exist":  func(pa *v1alpha1.PodAllocation) { pa.Name, pa.Spec.PodRef.UID = "no-such-pod", "no-such-pod" },
		"of a pod of another namespace": func(pa *v1alpha1.PodAllocation) { pa.Namespace = other },
	} {
		forged := allocation.New(pod)
		forged.OwnerReferences = nil
		forge(forged)
		r.must(r.Client.Create(r.Context(), forged))
		before := l.counter.resizes()
		l.look(pod)
		if err := r.Client.Get(r.Context(), client.ObjectKeyFromObject(forged), forged); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("an allocation %s is still there (%v)", name, err)
		}
		if pa := r.stored(pod); pa == nil || pa.Status.Phase != v1alpha1.PhaseApplied || l.counter.resizes() != before || r.limit(pod) != 2000 {
			t.Errorf("an allocation %s changed the true one: %+v", name, pa)
		}
	}
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

func TestRecordsBeforeResizing(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		seen := 0
		l.resizes.Resizer = fakeResizer{Resizer: l.resizes.Resizer, apply: func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
			seen++
			r.declaredIs(r.stored(pod), app(500))
			r.ledgerIs(pod, app(500))
			return next()
		}}
		l.raised("web")
		if seen == 0 {
			t.Error("no resize was seen")
		}
	})
}

// lose is what vanishes together with the controller.
type lose string

const (
	nothing       lose = "nothing else"
	theAllocation lose = "the allocation"
	theLedger     lose = "the ledger"
)

func (r *rig) vanish(pod *corev1.Pod, what lose) {
	r.Helper()
	switch what {
	case theAllocation:
		r.must(client.IgnoreNotFound(r.Client.Delete(r.Context(), allocation.New(pod))))
	case theLedger:
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name = r.config.Namespace, restore.LedgerName(r.kubelet.Node)
		r.must(client.IgnoreNotFound(r.Client.Delete(r.Context(), cm)))
	}
}

func TestNeverForgetsDeclared(t *testing.T) {
	type lost struct {
		what            []lose
		memory, writers bool
		template        string
		want            reasons.Reason
		declared        cpu.Milli // 0: unknown
	}
	phases := map[reasons.Reason]v1alpha1.Phase{
		reasons.NoDecisionYet: v1alpha1.PhasePending, reasons.Settled: v1alpha1.PhaseApplied,
		reasons.DeclaredLimitUnknown: v1alpha1.PhaseNotApplied,
	}
	eachInMemory(t, map[string]lost{
		"allocation":             {[]lose{theAllocation}, false, false, "", reasons.NoDecisionYet, 500},
		"allocation-and-ledger":  {[]lose{theAllocation, theLedger}, false, false, "", reasons.NoDecisionYet, 500},
		"allocation-and-memory":  {[]lose{theAllocation}, true, false, "", reasons.NoDecisionYet, 500},
		"ledger-and-memory":      {[]lose{theLedger}, true, false, "", reasons.Settled, 500},
		"all-with-template":      {[]lose{theAllocation, theLedger}, true, false, "600m", reasons.NoDecisionYet, 600},
		"all":                    {[]lose{theAllocation, theLedger}, true, false, "", reasons.DeclaredLimitUnknown, 0},
		"all-and-managed-fields": {[]lose{theAllocation, theLedger}, true, true, "", reasons.DeclaredLimitUnknown, 0},
	}, func(_ *testing.T, r *rig, lost lost) {
		l := r.live()
		pod := r.templated("web", lost.template)
		l.settlesAt(pod, 2000)
		for _, what := range lost.what {
			r.vanish(pod, what)
		}
		if lost.writers {
			r.merge(pod, `{"metadata":{"managedFields":[{}]}}`)
		}
		if lost.memory {
			l = r.live()
		}
		pa := l.settles(pod, phases[lost.want], lost.want)
		if lost.declared > 0 {
			r.declaredIs(pa, app(lost.declared))
		} else {
			r.declaredIs(pa)
			r.publish(pod, "0.000", app(3000))
			l.settles(pod, phases[lost.want], lost.want)
		}
		r.limitIs(pod, 2000, "as before")
	})
}

// templated runs a pod, of a ReplicaSet with that limit in its template unless it is "".
func (r *rig) templated(name, template string) *corev1.Pod {
	r.Helper()
	p := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", "500m"))
	if template != "" {
		labels := map[string]string{"app": name}
		rs := &appsv1.ReplicaSet{}
		rs.Namespace, rs.Name = r.namespace, name
		rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		rs.Spec.Template.Labels = labels
		rs.Spec.Template.Spec.Containers = []corev1.Container{apiserver.Container("app", "100m", template)}
		r.must(r.Client.Create(r.Context(), rs))
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	return r.kubelet.Run(r, p)
}

// TestComesBackQuietly plays one history - a pod appears, is raised, is lowered and restored - and
// kills the controller before its first write and after each. However it goes, a new controller
// brings the history to the same end with the same number of resizes, and the declared limits stay
// what they were.
func TestComesBackQuietly(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		n, generation := r.history(0, false, nothing)
		if n < 10 {
			t.Fatalf("the history takes %d writes: too few to tell anything", n)
		}
		for at := 1; at <= n; at++ {
			for i, run := range []struct {
				done bool
				lost lose
			}{{false, nothing}, {true, nothing}, {true, []lose{theAllocation, theLedger}[at%2]}} {
				if !atlength.On() && i != at%3 {
					continue // one way at each write, all three with MBCAS_LONG=1
				}
				if _, got := r.history(at, run.done, run.lost); got != generation {
					t.Errorf("killed at write %d of %d, done %v, losing %s: the pod ends at generation %d, undisturbed at %d",
						at, n, run.done, run.lost, got, generation)
				}
			}
		}
	})
}

// history returns how many writes it took and the generation at which the pod ended: every resize
// counts one up.
func (r *rig) history(dieAt int, done bool, lost lose) (writes int, generation int64) {
	r.Helper()
	pod := r.pod(fmt.Sprintf("history-%d-%v-%d", dieAt, done, len(lost)), "100m", "500m")
	r.hear()
	l := r.liveUntil(dieAt, done)
	r.mode(r.namespace, kube.ModeEnforce)
	for _, step := range []struct {
		price string
		want  cpu.Milli
		mode  kube.Mode
		phase v1alpha1.Phase
	}{
		{"0.000", 2000, kube.ModeEnforce, v1alpha1.PhaseApplied},
		{"2.000", 1400, kube.ModeEnforce, v1alpha1.PhaseApplied},
		{"2.000", 500, kube.ModeRestore, v1alpha1.PhaseRestored},
	} {
		r.mode(r.namespace, step.mode)
		r.until(fmt.Sprintf("limit %v after a death at write %d", step.want, dieAt), func() (bool, any) {
			if _, err := l.once(); errors.Is(err, errLost) || l.broken {
				writes += len(l.writes())
				r.vanish(pod, lost)
				l = r.live()
				return false, err
			} else if err != nil {
				return false, err
			}
			pa := r.stored(pod)
			if pa == nil {
				return false, "no allocation"
			}
			r.declaredIs(pa, app(500))
			desired := pa.Spec.DesiredCPULimit
			if desired == nil || *desired != step.want && step.mode == kube.ModeEnforce {
				r.publish(pod, step.price, app(step.want))
				return false, "just published"
			}
			return r.limit(pod) == step.want && pa.Status.Phase == step.phase, pa.Status
		})
	}
	generation = r.read(pod).Generation
	r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
	r.vanish(pod, theAllocation) // no garbage collector here
	return writes + len(l.writes()), generation
}

// TestHoldsOffAfterExternalChange: not even a restart shortens the hold-off after an external change.
func TestHoldsOffAfterExternalChange(t *testing.T) {
	withController(t, func(_ *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.resizeAs("another-client", pod, "900m")
		r.declaredIs(l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange), app(900))
		l = r.live()
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)
		r.limitIs(pod, 900, "as another client set it")
		l.pass(l.Config.ExternalChangeHoldOff + time.Second)
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.limitIs(pod, 2000, "after the hold-off")
		r.declaredIs(r.stored(pod), app(900))
	})
}

// TestLeavesNothingBehind: that of a pod that opts out: TestFollowsEvents.
func TestLeavesNothingBehind(t *testing.T) {
	eachInMemory(t, map[string]func(*rig, *corev1.Pod){
		"opted out after its allocation was deleted": func(r *rig, pod *corev1.Pod) {
			r.vanish(pod, theAllocation)
			r.label(pod, "false")
		},
		"mode off": func(r *rig, _ *corev1.Pod) { r.mode(r.namespace, kube.ModeOff) },
	}, func(_ *testing.T, r *rig, leave func(*rig, *corev1.Pod)) {
		l := r.live()
		pod := l.raised("web")
		leave(r, pod)
		l.gets(pod, 500)
		l.becomes(pod, "gone", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
	})
}

func TestRecommendNeverResizes(t *testing.T) {
	modes := map[string]string{"labelled": `"recommend"`, "unlabelled": "null"}
	eachInMemory(t, modes, func(t *testing.T, r *rig, mode string) {
		l := r.live()
		raised := l.raised("raised")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
		r.merge(ns, `{"metadata":{"labels":{"`+kube.ModeLabel+`":`+mode+`}}}`)
		fresh := r.pod("fresh", "100m", "500m")
		l.settles(fresh, v1alpha1.PhaseNotApplied, reasons.Recommending)
		before := l.counter.resizes()
		for pod, limit := range map[*corev1.Pod]cpu.Milli{raised: 2000, fresh: 500} {
			r.publish(pod, "0.000", app(3000))
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
			r.limitIs(pod, limit, "in mode recommend")
		}
		if n := l.counter.resizes() - before; n != 0 {
			t.Errorf("%d resizes in mode recommend", n)
		}
	})
}

func TestActsNowhereBlind(t *testing.T) {
	t.Run("agent unresponsive or paused", func(t *testing.T) {
		withController(t, func(t *testing.T, r *rig, l *life) {
			pod := l.raised("web")
			l.ahead = 61 * time.Second
			r.publish(pod, "0.000", app(3000))
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.AgentUnresponsive)
			r.limitIs(pod, 2000, "while the agent does not renew its Lease")
			r.must(restore.Pause(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager, "true"))
			l.pass(0)
			r.publish(pod, "0.000", app(3000))
			before := l.stored(pod)
			if now := l.look(pod); !reflect.DeepEqual(now.Status, before.Status) || now.Status.ObservedGeneration == now.Generation {
				t.Errorf("status %+v, want it as it was: %+v", now.Status, before.Status)
			}
			r.limitIs(pod, 2000, "while paused")
			r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager))
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			r.limitIs(pod, 3000, "once the agent is back and the pause is over")
		})
	})
	type refusal struct {
		podresize.Outcome
		reasons.Reason
	}
	eachInMemory(t, map[string]refusal{
		"resizes are not served": {podresize.NotServed, reasons.ResizeNotServed},
		"the right is missing":   {podresize.NotAllowed, reasons.PermissionMissing},
	}, func(t *testing.T, r *rig, c refusal) {
		l := r.live()
		asked := &doubt{Discovery: l.Gate.Discovery, Creator: l.Gate.API, reason: c.Reason}
		l.Gate.Discovery, l.Gate.API, l.Gate.Log = asked, asked, l.Log
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Gate.Start(ctx) }()
		defer func() { <-ended }()
		defer cancel()
		r.until("the first check", func() (bool, any) { return asked.checks.Load() == 1, asked.checks.Load() })
		l.resizes.Resizer = answer(c.Outcome)
		pod := l.newPod("web")
		r.publish(pod, "0.000", app(2000))
		asked.begun.Store(true)
		before := l.stored(pod).Status
		if now := l.look(pod).Status; now.Phase != v1alpha1.PhasePending || !reflect.DeepEqual(now, before) {
			t.Errorf("status %+v, want it as it was: %+v", now, before)
		}
		r.until("the gate closes, as the API server says so, too", func() (bool, any) {
			why, _ := l.Gate.Closed()
			return why == c.Reason && l.Gate.Ready(nil) != nil, why
		})
		// The API server serves it, and the test's user may: the next check opens the gate again.
		l.resizes.Resizer = l.counter
		asked.begun.Store(false)
		if err := l.Gate.Check(t.Context()); err != nil || l.Gate.Ready(nil) != nil {
			t.Fatalf("check: %v, ready: %v", err, l.Gate.Ready(nil))
		}
		l.pass(time.Minute) // the breaker of the namespace, too
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	})
	t.Run("a user without the right", func(t *testing.T) {
		r := newRig(t)
		gate := flowcontrol.NewGate(r.live().Gate.Discovery, r.As(t, "nobody-"+r.namespace))
		r.must(gate.Check(t.Context()))
		if reason, why := gate.Closed(); reason != reasons.PermissionMissing || !strings.Contains(why, "pods/resize") {
			t.Errorf("gate closed for %q: %s", reason, why)
		}
	})
}

// doubt answers for the API server once it has begun that resizes are not possible, for a reason.
type doubt struct {
	podresize.Discovery
	podresize.Creator
	reason reasons.Reason
	begun  atomic.Bool
	checks atomic.Int64
}

func (d *doubt) ServerResourcesForGroupVersionWithContext(ctx context.Context, gv string) (*metav1.APIResourceList, error) {
	list, err := d.Discovery.ServerResourcesForGroupVersionWithContext(ctx, gv)
	if gv == v1alpha1.GroupVersion.String() {
		d.checks.Add(1)
	} else if d.reason == reasons.ResizeNotServed && d.begun.Load() {
		return &metav1.APIResourceList{GroupVersion: gv}, err
	}
	return list, err
}

func (d *doubt) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := d.Creator.Create(ctx, o, opts...)
	if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok && d.reason == reasons.PermissionMissing && d.begun.Load() {
		review.Status.Allowed = false
	}
	return err
}

// TestForgeriesAreRemoved: an allocation of a pod that is not on the node goes, and the true one stays.
func TestForgeriesAreRemoved(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
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
			l.pass(kube.CacheLag)
			pa := l.look(pod)
			if err := r.Client.Get(r.Context(), client.ObjectKeyFromObject(forged), forged); client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("an allocation %s is still there (%v)", name, err)
			}
			if pa == nil || pa.Status.Phase != v1alpha1.PhaseApplied || l.counter.resizes() != before {
				t.Errorf("an allocation %s changed the true one: %+v", name, pa)
			}
			r.limitIs(pod, 2000, "as before")
		}
	})
}

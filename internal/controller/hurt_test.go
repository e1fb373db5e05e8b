package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// unready sets the pod to not Ready: for a reason of the kubelet, or for none, as the node controller does.
func unready(p *corev1.Pod, at time.Time, reason string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, reason, metav1.NewTime(at)
		}
	}
}

// ends has the pod's container end, and run again.
func ends(p *corev1.Pod, at time.Time) {
	c := &p.Status.ContainerStatuses[0]
	c.RestartCount++
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at), ExitCode: 137}
}

// hurt writes what befell the pod into its status.
func (r *rig) hurt(pod *corev1.Pod, how func(*corev1.Pod)) {
	r.Helper()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	how(got)
	r.must(r.Client.Status().Update(r.Context(), got))
}

// lowered is a pod that declared 2000m and was lowered at the given times after noon, by 100m each.
func lowered(cfg Config, at ...time.Duration) Pod {
	t := Task{}
	limit := cpu.Milli(2000)
	for _, after := range at {
		t.moved(cfg, noon.Add(after), Allocate, []v1alpha1.ContainerLimit{app(limit)}, []v1alpha1.ContainerLimit{app(limit - 100)})
		limit -= 100
	}
	p := Pod{Pod: running("web", limit, true), Mode: kube.ModeEnforce, Declared: []v1alpha1.ContainerLimit{app(2000)}, Ledgered: true, Progress: podresize.Done}
	p.PA = allocation.New(p.Pod)
	p.PA.Status = t.Status
	p.PA.Status.DeclaredLimits = p.Declared
	return p
}

// up is a node that became Ready at that time after noon.
func up(after time.Duration) Node {
	return nodeOf(&corev1.Node{Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(after))}},
	}})
}

// TestWhatCountsAsHurt tells harm that a decrease did from what befalls a pod for other reasons.
func TestWhatCountsAsHurt(t *testing.T) {
	s := time.Second
	long := -time.Hour // that the node has been Ready
	unreadyAt := func(after time.Duration, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { unready(p, noon.Add(after), reason) }
	}
	endsAt := func(after time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { ends(p, noon.Add(after)) }
	}
	const mine, nodes = "ContainersNotReady", "" // the kubelet's reason, and that of the node controller
	once, run := []time.Duration{0}, []time.Duration{0, 5 * s, 10 * s}
	for name, c := range map[string]struct {
		lowered []time.Duration
		up      time.Duration
		what    func(*corev1.Pod)
		hurt    bool
		reason  string
	}{
		"unready":                       {once, long, unreadyAt(45*s, mine), true, "within two minutes"},
		"unready at the two minutes":    {once, long, unreadyAt(120*s, mine), true, "within two minutes"},
		"unready after them":            {once, long, unreadyAt(121*s, mine), false, "it had two minutes to fail"},
		"unready before":                {once, long, unreadyAt(-s, mine), false, "it was so before"},
		"ended":                         {once, long, endsAt(45 * s), true, "within two minutes"},
		"ended in a run":                {run, long, endsAt(9 * s), true, "the kubelet told late, and the next decrease was made by then"},
		"unready in a run":              {run, long, unreadyAt(9*s, mine), true, "the kubelet told late, and the next decrease was made by then"},
		"ended before a run":            {run, long, endsAt(-s), false, "it was so before"},
		"unready between far decreases": {[]time.Duration{-300 * s, 0}, long, unreadyAt(-s, mine), false, "two decreases so far from each other are no run"},
		"the node is not heard of":      {once, long, unreadyAt(45*s, nodes), false, "it is the node controller that says so, and it may be seen before the node's condition"},
		"the node is back":              {once, 60 * s, unreadyAt(45*s, nodes), false, "the node's Ready may be seen before the pod's"},
		"the kubelet is back":           {once, 60 * s, unreadyAt(45*s, mine), false, "its kubelet gives its own reason for what the node controller wrote, and keeps the time"},
		"the kubelet has yet to probe":  {once, 60 * s, unreadyAt(62*s, mine), false, "up to Kubernetes 1.34 a kubelet takes pods for not Ready when it starts"},
		"the node was started anew":     {once, 60 * s, endsAt(30 * s), false, "all containers of the node ended"},
		"unready on a node that is back": {
			once, 60 * s, unreadyAt(90*s, mine), true, "its node has been back for half a minute",
		},
		"ended on a node that is back": {once, 60 * s, endsAt(63 * s), true, "its node was back"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			p := lowered(cfg, c.lowered...)
			c.what(p.Pod)
			last := c.lowered[len(c.lowered)-1]
			tasks := Decide(cfg, View{Now: noon.Add(last + 125*s), Node: up(c.up), Pods: []Pod{p}})
			if len(tasks) != 1 {
				t.Fatalf("%d tasks, want one", len(tasks))
			}
			got := tasks[0]
			if !c.hurt {
				if got.Status.Rollback.LastHarmfulDecreaseTime != nil || got.Move != nil {
					t.Errorf("counts as hurt, and %v is done; want not, because %s", got.Move, c.reason)
				}
				return
			}
			if got.Status.Rollback.LastHarmfulDecreaseTime == nil || got.Purpose != Rollback || got.Move == nil || got.Move.Changes[0].To != 2000 {
				t.Errorf("purpose %s, move %v, hurt at %v: want 2000m given back, because %s", got.Purpose, got.Move, got.Status.Rollback.LastHarmfulDecreaseTime, c.reason)
			}
			if n := got.Status.Constraints; n == nil || n.NoDecrease != string(reasons.UnhealthyAfterDecrease) {
				t.Errorf("terms %+v: want it not to be lowered from now on", n)
			}
		})
	}
}

// TestHarmIsFoundOnce: a container that ended right after a decrease says so for good, and counts for one day.
func TestHarmIsFoundOnce(t *testing.T) {
	cfg := DefaultConfig()
	p := lowered(cfg, 0)
	ends(p.Pod, noon.Add(time.Second))
	hurt := metav1.NewMicroTime(noon.Add(2 * time.Second))
	p.PA.Status.Rollback.LastHarmfulDecreaseTime = &hurt
	for _, task := range Decide(cfg, View{Now: noon.Add(cfg.RollbackHoldOff + time.Minute), Node: up(-time.Hour), Pods: []Pod{p}}) {
		if task.Move != nil || !task.Status.Rollback.LastHarmfulDecreaseTime.Equal(&hurt) {
			t.Errorf("after the day: %s %v, hurt at %v", task.Purpose, task.Move, task.Status.Rollback.LastHarmfulDecreaseTime)
		}
	}
}

// TestAfterARollback: a pod that a decrease hurt is left where it was before the decrease until it had time to recover, and is not lowered
// below its declared limit for a day.
func TestAfterARollback(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Actuator.MaxDecreaseFactor = 100
	for name, c := range map[string]struct {
		since time.Duration
		want  cpu.Milli
	}{
		"at once":             {time.Second, 4000},
		"just before the end": {cfg.RollbackWindow - time.Second, 4000},
		"recovered":           {cfg.RollbackWindow, 2000},
		"within the day":      {cfg.RollbackHoldOff - time.Second, 2000},
		"after the day":       {cfg.RollbackHoldOff, 500},
	} {
		p := lowered(cfg, 0)
		p.Pod = running("web", 4000, true)
		hurt := metav1.NewMicroTime(noon.Add(time.Second))
		s := &p.PA.Status
		s.AppliedLimits, s.Rollback.LastHarmfulDecreaseTime, s.Rollback.Limits, s.Rollback.WindowStart = []v1alpha1.ContainerLimit{app(4000)}, &hurt, nil, nil
		s.Phase, s.Reason, s.LastIncreaseTime = v1alpha1.PhaseApplied, string(reasons.Settled), &hurt
		p.PA.Spec.Containers, p.PA.Spec.Decision = []v1alpha1.ContainerLimit{app(500)}, &v1alpha1.Decision{Price: 1.000}
		tasks := Decide(cfg, View{Now: hurt.Add(c.since), Node: up(-time.Hour), Pods: []Pod{p}})
		if len(tasks) != 1 {
			t.Fatalf("%s: %d tasks, want one", name, len(tasks))
		}
		got := cpu.Milli(4000)
		if m := tasks[0].Move; m != nil {
			got = m.Changes[0].To
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v; status %+v", name, got, c.want, tasks[0].Status)
		}
	}
}

// down is a pod that declared 2000m and stands at 1000m, by the market's will.
func (l *life) down(name string) *corev1.Pod {
	l.Helper()
	l.Reconciler.Config.Actuator.DecreaseCooldown = 0
	pod := l.rig.pod(name, "100m", "2")
	l.settlesAt(pod, 2000)
	l.publish(pod, "0.500", app(1000))
	l.until("lowered", func() (bool, any) { l.look(pod); return l.limit(pod) == 1000, l.limit(pod) })
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return pod
}

// TestAnUndoIsFinished: what a quota has no room for, or a kubelet defers, is given back later, and not forgotten.
func TestAnUndoIsFinished(t *testing.T) {
	r := newRig(t)
	fails := func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") }
	done := func(l *life, pod *corev1.Pod) {
		l.Helper()
		l.until("all is given back", func() (bool, any) { pa := l.look(pod); return l.limit(pod) == 2000, pa.Status })
		l.becomes(pod, func(pa *v1alpha1.PodAllocation) bool {
			return pa.Status.Phase == v1alpha1.PhaseApplied && pa.Status.Rollback.Limits == nil && pa.Status.Rollback.LastHarmfulDecreaseTime != nil
		})
	}
	t.Run("deferred", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.down("deferred")
		r.kubelet.Answer(pod, apiserver.Defer)
		r.hurt(pod, fails)
		l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
		l.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 1000, r.limit(pod) })
		r.kubelet.Answer(pod, apiserver.Obey)
		l.ahead = r.config.Backoff + time.Second
		r.hearAt(time.Now().Add(l.ahead))
		done(l, pod)
		r.hear()
		r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0))) // else it counts below
	})
	t.Run("short of quota", func(t *testing.T) {
		r := r.in(t)
		r.Controllers(t, "resourcequota-controller")
		l := r.live(0, false)
		pod := l.down("short")
		full := apiserver.Pod(r.namespace, "full", apiserver.Container("app", "100m", "1"))
		full.Labels = map[string]string{kube.ManagedKey: "false"}
		full = r.kubelet.Run(t, full)
		// The quota comes behind both pods: it may not count one that comes at the same time. It leaves a fifth of what was taken.
		q := &corev1.ResourceQuota{}
		q.Namespace, q.Name = r.namespace, "compute"
		q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("2200m")}
		r.must(r.Client.Create(r.Context(), q))
		l.counts(q.Name, "2")
		r.hurt(pod, fails)
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.WaitingForQuota)
		if got := r.limit(pod); got != 1200 {
			t.Errorf("limit %v, want a part of what was taken", got)
		}
		said := false
		for sent := l.Events.(*events.FakeRecorder).Events; len(sent) > 0; {
			e := <-sent
			said = said || strings.Contains(e, " "+string(reasons.UnhealthyAfterDecrease)+" ") && strings.Contains(e, "as far as bounds and quotas allow")
		}
		if !said {
			t.Error("no event that leaves open how much is given back")
		}
		r.must(r.Client.Delete(r.Context(), full))
		done(l, pod)
	})
}

// TestARevertIsNoDecrease: taking a raise back that never took effect lowers nothing, even where the answer to it was lost.
func TestARevertIsNoDecrease(t *testing.T) {
	r := newRig(t)
	for name, lost := range map[string]int{"answered": 0, "answer-lost": 1} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := r.pod(name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			left := 0
			l.Resize = lostAnswer{l.counter, true, &left}
			r.kubelet.Answer(pod, apiserver.Defer)
			r.publish(pod, "0.000", app(2000))
			l.look(pod)
			left = lost
			l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
			r.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 500, r.limit(pod) })
			r.hurt(pod, func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") })
			l.look(pod)
			s := l.look(pod).Status
			if s.LastDecreaseTime != nil || s.Rollback.Limits != nil || s.Rollback.LastHarmfulDecreaseTime != nil {
				t.Errorf("a decrease is noted that never happened: %+v", s)
			}
			if s.Phase != v1alpha1.PhaseFailed || s.Reason != string(reasons.ResizeDeferred) || s.Retry.Failures != 1 || left != 0 {
				t.Errorf("%d answers left to lose, status %+v", left, s)
			}
		})
	}
}

// TestADecreaseThatHurtsIsTakenBack: a pod that is not Ready, or restarts, right after it was lowered gets its limits back.
func TestADecreaseThatHurtsIsTakenBack(t *testing.T) {
	r := newRig(t)
	for name, hurt := range map[string]func(*corev1.Pod){
		"not ready": func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") },
		"restarted": func(p *corev1.Pod) {
			c := &p.Status.ContainerStatuses[0]
			c.RestartCount++
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), ExitCode: 137}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			l.Reconciler.Config.Actuator.DecreaseCooldown = 0
			pod := r.pod(strings.ReplaceAll(name, " ", "-"), "100m", "500m")
			l.settlesAt(pod, 2000)
			r.publish(pod, "0.500", app(1000)) // in two steps
			l.until("lowered", func() (bool, any) { l.look(pod); return r.limit(pod) == 1000, r.limit(pod) })
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)

			r.hurt(pod, hurt)
			l.until("back at where it was before", func() (bool, any) { l.look(pod); return r.limit(pod) == 2000, r.limit(pod) })
			pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.UnhealthyAfterDecrease)
			if s := pa.Status; s.Rollback.LastHarmfulDecreaseTime == nil || s.Constraints == nil || s.Constraints.NoDecrease != string(reasons.UnhealthyAfterDecrease) || s.Rollback.Limits != nil || s.Rollback.WindowStart != nil {
				t.Errorf("status %+v", pa.Status)
			}
			if !strings.Contains(r.log.String(), `"purpose":"rollback"`) {
				t.Error("no audit line of the decrease that was taken back")
			}
			if n := l.told(reasons.UnhealthyAfterDecrease); n != 1 {
				t.Errorf("%d events that say so, want one", n)
			}
		})
	}
}

package controller

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// held creates a pod that declared 500m on the node, with annotations, whose containers do not start yet.
func (r *rig) held(name string, annotations map[string]string, init ...corev1.Container) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", "500m"))
	pod.Spec.NodeName, pod.Spec.InitContainers, pod.Annotations = r.kubelet.Node, init, annotations
	if annotations[apiserver.HoldKey] == "" {
		annotations[apiserver.HoldKey] = "true"
	}
	r.must(r.Client.Create(r.Context(), pod))
	if annotations[apiserver.HoldKey] == apiserver.Unseen {
		return r.read(pod)
	}
	return apiserver.WaitFor(r, r.Client, pod, "about to start", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) > 0 })
}

// starts has the containers of a held pod started, and the pod Ready.
func (r *rig) starts(pod *corev1.Pod) {
	r.Helper()
	r.merge(pod, `{"metadata":{"annotations":{"`+apiserver.HoldKey+`":null}}}`)
	apiserver.WaitFor(r, r.Client, pod, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

// TestStartupBoost: a pod with a start-up boost is raised once its container runs, and not before its declared limit is
// recorded twice. No decision lowers it until it has been Ready for the grace, and a restore returns to the declared
// limit.
func TestStartupBoost(t *testing.T) {
	eachInMemory(t, map[string]string{
		"its kubelet has not seen it": apiserver.Unseen, "its containers are created": "true",
	}, func(t *testing.T, r *rig, hold string) {
		r.config.BoostGrace = time.Minute
		l := r.live()
		pod := r.held("web", map[string]string{kube.StartupBoostKey: "3", apiserver.HoldKey: hold})
		r.declaredIs(l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ContainerNotRunning), app(500))
		r.limitIs(pod, 500, "before its containers start")
		r.ledgerIs(pod, app(500))
		r.starts(pod)
		l.settles(pod, v1alpha1.PhaseApplied, reasons.StartupBoost)
		r.limitIs(pod, 1500, "when its containers run")
		if audit := r.audit.String(); !strings.Contains(audit, `"purpose":"startup"`) || !strings.Contains(audit, `"reason":"StartupBoost"`) {
			t.Errorf("audit: %s", audit)
		}
		r.decide(pod, capped(v1alpha1.BoundByPrice), app(300))
		for range 3 {
			if pa := l.look(pod); pa.Status.Reason != string(reasons.StartupBoost) {
				t.Errorf("status %+v", pa.Status)
			}
		}
		r.limitIs(pod, 1500, "while it starts")
		l.pass(r.config.BoostGrace + time.Second)
		l.becomes(pod, "lowered", func(*v1alpha1.PodAllocation) bool { return r.limit(pod) < 1500 })
		r.mode(r.namespace, kube.ModeRestore)
		l.gets(pod, 500)
	})
}

// TestStartupBoostOfANamespace: the label of a namespace boosts its pods, with the caches of a whole controller, and
// the annotation of a pod comes first.
func TestStartupBoostOfANamespace(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		ns := &corev1.Namespace{}
		r.must(r.Client.Get(t.Context(), client.ObjectKey{Name: r.namespace}, ns))
		r.merge(ns, `{"metadata":{"labels":{"`+kube.StartupBoostKey+`":"2"}}}`)
		r.start()
		boosted := r.held("boosted", map[string]string{apiserver.HoldKey: apiserver.Unseen})
		off := r.held("off", map[string]string{kube.StartupBoostKey: "off"})
		own := r.held("own", map[string]string{kube.StartupBoostKey: "4"})
		for _, pod := range []*corev1.Pod{boosted, off, own} {
			r.starts(pod)
		}
		r.reaches(boosted, 1000)
		r.reaches(own, 2000)
		r.allocation(off, "recorded", recorded)
		r.limitIs(off, 500, "without a boost")
	})
}

// TestInvalidStartupBoost: a value that cannot be read boosts nothing, is told of in one event and, as long as it stays,
// in a condition, and does not keep the pod from the market.
func TestInvalidStartupBoost(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := r.held("web", map[string]string{kube.StartupBoostKey: "fast"})
		l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
		l.look(pod)
		if n := l.eventsSent(reasons.InvalidStartupBoost); n != 1 {
			t.Errorf("told of %d times, want once", n)
		}
		r.limitIs(pod, 500, "without a valid boost")
		r.starts(pod)
		l.settlesAt(pod, 2000)
		r.annotate(pod, kube.StartupBoostKey, "11")
		fault := meta.FindStatusCondition(l.look(pod).Status.Conditions, v1alpha1.ConditionStartupBoostValid)
		if fault == nil || fault.Status != metav1.ConditionFalse || fault.Reason != string(reasons.InvalidStartupBoost) ||
			!strings.Contains(fault.Message, `"11"`) {
			t.Errorf("once the pod is raised, the condition is %+v", fault)
		}
		writes := len(l.writes())
		if l.look(pod); len(l.writes()) != writes {
			t.Errorf("writes without a change: %q", l.writes()[writes:])
		}
		r.annotate(pod, kube.StartupBoostKey, "off")
		fault = meta.FindStatusCondition(l.look(pod).Status.Conditions, v1alpha1.ConditionStartupBoostValid)
		if fault != nil {
			t.Errorf("it is mended, and the condition stays: %+v", fault)
		}
	})
}

// TestNoBoostWithoutAnAgent: on a node without an agent no pod would come back from its boost into the market, so none is
// boosted, and its status says why. One whose agent stops returns to its declared limit.
func TestNoBoostWithoutAnAgent(t *testing.T) {
	t.Run("it never ran", func(t *testing.T) {
		inMemory(t, func(t *testing.T, r *rig) {
			r.must(r.Client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: r.config.Namespace, Name: kube.AgentLease(r.kubelet.Node),
			}}))
			l := r.live()
			pod := r.held("web", map[string]string{kube.StartupBoostKey: "3"})
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.AgentUnresponsive)
			r.limitIs(pod, 500, "on a node without an agent")
		})
	})
	t.Run("it stops", func(t *testing.T) {
		inMemory(t, func(t *testing.T, r *rig) {
			r.config.BoostMax = time.Hour
			l := r.live()
			pod := r.held("web", map[string]string{kube.StartupBoostKey: "3"})
			r.starts(pod)
			l.settles(pod, v1alpha1.PhaseApplied, reasons.StartupBoost)
			l.ahead = r.config.RestoreAfter + 2*time.Minute
			l.gets(pod, 500)
		})
	})
}

// TestInitContainerLoopsWriteOnce: an init container that fails again and again, with or without a start-up boost, costs
// a status when it has failed first, and none with each further attempt.
func TestInitContainerLoopsWriteOnce(t *testing.T) {
	eachInMemory(t, map[string]string{"with a boost": "3", "without": "off"}, func(t *testing.T, r *rig, boost string) {
		l := r.live()
		migrate := apiserver.Container("migrate", "100m", "100m")
		pod := r.held("web", map[string]string{kube.StartupBoostKey: boost}, migrate)
		l.becomes(pod, "recorded", func(pa *v1alpha1.PodAllocation) bool {
			return pa != nil && recorded(pa) && pa.Status.Reason != string(reasons.ResizeInFlight)
		})
		r.annotate(pod, apiserver.HoldKey, apiserver.Unseen) // its status is the test's from now on
		attempt := func(n int32) {
			for _, state := range []corev1.ContainerState{
				{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
				{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Now()}},
				{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			} {
				r.harm(pod, func(s *corev1.PodStatus) {
					s.InitContainerStatuses[0].State, s.InitContainerStatuses[0].RestartCount = state, n
				})
				l.look(pod)
			}
		}
		attempt(0)
		if pa := l.stored(pod); pa.Status.Reason != string(reasons.NotRunning) {
			t.Errorf("it has failed once: status %+v", pa.Status)
		}
		writes := len(l.writes())
		for n := range int32(3) {
			attempt(n + 1)
		}
		if more := l.writes()[writes:]; len(more) > 0 {
			t.Errorf("three more attempts cost writes: %q", more)
		}
		r.harm(pod, func(s *corev1.PodStatus) {
			s.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		})
		r.starts(pod)
		l.settlesAt(pod, 2000)
	})
}

// TestNoBoostOnOldKubelets: whether an older kubelet can resize shows only once the pod runs, so a pod there has no
// boost that could not be taken back.
func TestNoBoostOnOldKubelets(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kube.StartupBoostKey: "3"}}}
	for version, want := range map[string]float64{"v1.33.4": 0, "v1.34.0": 3, "v1.36.3": 3, "": 0} {
		node := &corev1.Node{}
		node.Status.NodeInfo.KubeletVersion = version
		s := &snapshot{node: nodeOf(node)}
		if got, fault := s.startupBoost(&namespaceState{meta: &metav1.ObjectMeta{}}, pod); got != want || fault != "" {
			t.Errorf("kubelet %q: factor %v and fault %q, want %v", version, got, fault, want)
		}
	}
}

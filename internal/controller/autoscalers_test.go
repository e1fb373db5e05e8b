package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// richPod runs a pod with all that schedulers and autoscalers may look at, and a sidecar. Its requests are 170m.
func (r *rig) richPod(name string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "20m", ""))
	pod.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "10m", "10m"), apiserver.Sidecar("proxy", "50m", "200m")}
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
		corev1.PodDeletionCost: "7",
	}
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-abc", UID: "rs-web", Controller: &yes}}
	pod.Spec.PriorityClassName = r.namespace
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
	}}
	return r.kubelet.Run(r, pod)
}

// TestNobodyElseSeesIt: whatever becomes of our resizes (raised, lowered, deferred, refused, failed, never finished, restored), those that
// place and evict pods never see a pod, or a node's requested sum, change. They would see a change of requests, though.
func TestNobodyElseSeesIt(t *testing.T) {
	r := newRig(t)
	r.config.ActuationTimeout, r.config.Backoff = time.Second, time.Hour
	r.priorityClass(r.namespace, 1500, false)
	r.start()
	var pods []*corev1.Pod
	kubelets := []struct {
		name   string
		answer apiserver.Answer
		phase  v1alpha1.Phase
		reason reasons.Reason
		limit  int64 // of app, in the end
	}{
		{"obeys", apiserver.Obey, v1alpha1.PhaseApplied, reasons.Settled, 2000},
		{"defers", apiserver.Defer, v1alpha1.PhaseFailed, reasons.ResizeDeferred, 500},
		{"refuses", apiserver.Refuse, v1alpha1.PhaseFailed, reasons.ResizeInfeasible, 500},
		{"fails", apiserver.Fail, v1alpha1.PhaseFailed, reasons.ResizeError, 500},
		{"stalls", apiserver.Stall, v1alpha1.PhaseFailed, reasons.ResizeTimedOut, 2000},
	}
	for _, k := range kubelets {
		pod := r.richPod(k.name)
		r.allocation(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 })
		pods = append(pods, pod)
	}
	o := r.onlook()
	before := map[string]int64{}
	for view := range views {
		before[view] = o.requested(view, pods...)
	}
	if before["kube-scheduler"] != 5*170 {
		t.Fatalf("the scheduler counts %dm, want 5 x 170m", before["kube-scheduler"])
	}
	proxy := func(m int) v1alpha1.ContainerLimit {
		return v1alpha1.ContainerLimit{Name: "proxy", CPULimit: milli(m)}
	}
	for i, k := range kubelets {
		r.kubelet.Answer(pods[i], k.answer)
		r.decideUpTo(pods[i], 2400, app(2000), proxy(400))
		r.allocation(pods[i], k.name, stands(k.phase, k.reason))
		r.until("app is at its limit", func() (bool, any) {
			got := r.appLimit(pods[i])
			return got == k.limit, got
		})
	}
	r.publish(pods[0], "2.000", app(600), proxy(100))
	r.allocation(pods[0], "lowered in steps", stands(v1alpha1.PhaseApplied, reasons.Settled))
	for _, pod := range pods {
		r.kubelet.Answer(pod, apiserver.Obey)
	}
	r.mode(r.namespace, kube.ModeRestore)
	for _, pod := range pods {
		r.until("restored", func() (bool, any) { got := r.appLimit(pod); return got == 500, got })
	}

	if saw := o.seen(pods...); saw != "" {
		t.Errorf("it is seen:\n%s", saw)
	}
	for view, was := range before {
		if is := o.requested(view, pods...); is != was {
			t.Errorf("%s counts %dm on the node, and %dm before", view, is, was)
		}
	}
	o.seesChanges(pods[1])
}

// seesChanges is the other side of the test: a raise of requests is seen, by all, also while the kubelet defers it, and so is
// any other change of the pod.
func (o *onlookers) seesChanges(pod *corev1.Pod) {
	o.Helper()
	o.mode(o.namespace, kube.ModeOff) // the controller leaves it alone
	o.annotate(pod.DeepCopy(), "example.com/note", "changed")
	o.kubelet.Answer(pod, apiserver.Defer)
	patch := `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"300m"}}}]}}`
	o.must(o.Client.SubResource("resize").Patch(o.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", []byte(patch))))
	saw := o.seen(pod)
	for view := range views {
		if !strings.Contains(saw, view+" counts other requests of pod "+pod.Name) {
			o.Errorf("%s does not see requests that change", view)
		}
	}
	if !strings.Contains(saw, `"changed"`) {
		o.Error("nobody sees an annotation that changes")
	}
}

func (r *rig) appLimit(pod *corev1.Pod) int64 {
	r.Helper()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	return got.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()
}

// TestTheSchedulerDoesNotMind has the real kube-scheduler place pods on a node whose limits add up to five times its CPUs, and
// after they were lowered again: it counts requests in both cases.
func TestTheSchedulerDoesNotMind(t *testing.T) {
	r := newRig(t)
	r.Scheduler(t)
	r.start()
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pod := r.pod(name, "600m", "700m") // 3 of the node's 4 CPUs
		r.allocation(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 })
		pods = append(pods, pod)
	}
	all := func(limit int) {
		t.Helper()
		for _, pod := range pods {
			r.publish(pod, "0.000", app(milli(limit)))
		}
		for _, pod := range pods {
			r.until("limits are in force", func() (bool, any) {
				r.confirm(pod)
				return r.limit(pod) == milli(limit) && stands(v1alpha1.PhaseApplied, reasons.Settled)(r.stored(pod)), r.stored(pod).Status
			})
		}
	}
	all(4000) // 20 CPUs
	r.placed("first", "500m")
	r.unplaced("second", "600m")
	all(700)
	r.placed("third", "500m") // now all 4 are requested
	r.unplaced("fourth", "10m")
	all(4000)
	for _, pod := range pods {
		got := &corev1.Pod{}
		r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
		if got.UID != pod.UID || got.DeletionTimestamp != nil {
			t.Errorf("pod %s was evicted", pod.Name)
		}
	}
}

// unbound makes a pod for the scheduler to place on the rig's node.
func (r *rig) unbound(name, request string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", request, ""))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: r.kubelet.Node}
	r.must(r.Client.Create(r.Context(), pod))
	return pod
}

func (r *rig) placed(name, request string) {
	r.Helper()
	apiserver.WaitFor(r, r.Client, r.unbound(name, request), "placed", func(p *corev1.Pod) bool { return p.Spec.NodeName == r.kubelet.Node })
}

// unplaced checks that the scheduler finds too little CPU, and takes the pod away again.
func (r *rig) unplaced(name, request string) {
	r.Helper()
	pod := apiserver.WaitFor(r, r.Client, r.unbound(name, request), "refused a place", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return true
			}
		}
		return false
	})
	if said := pod.Status.Conditions[0].Message; !strings.Contains(said, "Insufficient cpu") {
		r.Errorf("pod %s is not placed, because of %q", name, said)
	}
	r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
}

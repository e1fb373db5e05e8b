package schedule

import (
	"context"
	"strconv"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// verbs are what a step may be. A step that makes no sense, such as one about a pod that does not
// exist, does nothing: any part of a schedule is a schedule.
var verbs map[string]func(*world, []string)

// A reconcile may play steps while its request is on its way, so the table is filled at the start.
func init() {
	verbs = map[string]func(*world, []string){
		"wait":      func(w *world, a []string) { w.pass(duration(a[0])) },
		"reconcile": (*world).reconcileStep,
		"show":      func(w *world, a []string) { w.process(a[0], func(p *process) { p.show(a[1]) }) },
		"crash":     func(w *world, a []string) { w.process(a[0], (*process).crash) },
		"start":     (*world).startStep,
		"stop":      func(w *world, a []string) { w.process(a[0], func(p *process) { p.stopped = true }) },
		"continue": func(w *world, a []string) {
			w.process(a[0], (*process).wakeUp)
		},
		"arrive":  func(w *world, _ []string) { w.arrive() },
		"renew":   func(w *world, a []string) { w.agent(a[0], (*agent).renew) },
		"decide":  func(w *world, a []string) { w.decideStep(a[0], a[1], a[2], a[3:]) },
		"publish": func(w *world, a []string) { w.agent(a[0], func(g *agent) { g.publishAll(a[1:]) }) },
		"agent":   (*world).agentStep,
		"kubelet": func(w *world, a []string) {
			w.kubelets[a[0]] = answers[a[1]]
		},
		"sync":    func(w *world, a []string) { w.kubelet(a[0], w.kubelets[a[0]]) },
		"resize":  func(w *world, a []string) { w.resize(a[0], int64(number(a[1]))) },
		"delete":  func(w *world, a []string) { w.remove(a[0]) },
		"create":  func(w *world, a []string) { w.run(a[0], a[1:]...) },
		"replace": func(w *world, a []string) { w.remove(a[0]); w.run(a[0], a[1:]...) },
		"harm":    func(w *world, a []string) { w.harm(a[0], a[1]) },
		"down":    func(w *world, a []string) { w.down(a[0], a[1]) },
		"up":      func(w *world, a []string) { w.up(a[0]) },
		"dies":    func(w *world, a []string) { w.dies(a[0], a[1]) },
		"annotate": func(w *world, a []string) {
			w.changePod(a[0], func(p *corev1.Pod) {
				p.Annotations = map[string]string{a[1]: a[2]}
				if a[2] == "none" {
					p.Annotations = nil
				}
			})
		},
		"mode": func(w *world, a []string) {
			memapi.Change(w.api, "user", "", a[0], func(n *corev1.Namespace) { n.Labels = map[string]string{kube.ModeLabel: a[1]} })
		},
		"node":      (*world).nodeStep,
		"hpa":       (*world).hpa,
		"pdb":       (*world).pdb,
		"quota":     (*world).quota,
		"credit":    func(w *world, _ []string) { w.api.Credit() },
		"webhook":   func(w *world, a []string) { w.webhook(a[0], a[1]) },
		"uninstall": func(w *world, _ []string) { w.uninstall() },
		"forget":    func(w *world, a []string) { w.forget(a[0]) },
		"pause": func(w *world, a []string) {
			c := newClient(w.api, "user", nil)
			_ = restore.Pause(w.context(), c, w.Namespace, "user", a[0]) // the API in memory takes it
		},
	}
}

// arguments are how many of them a verb needs.
var arguments = map[string]int{
	"wait": 1, "reconcile": 2, "show": 2, "crash": 1, "start": 1, "stop": 1, "continue": 1, "renew": 1, "decide": 3, "publish": 1, "agent": 2,
	"kubelet": 2, "sync": 1, "resize": 2, "delete": 1, "create": 1, "replace": 1, "harm": 2, "down": 2, "up": 1, "dies": 2, "annotate": 3, "mode": 2, "node": 2,
	"hpa": 1, "pdb": 1, "quota": 2, "webhook": 2, "forget": 1, "pause": 1,
}

var answers = map[string]apiserver.Answer{
	"obey": apiserver.Obey, "stall": apiserver.Stall, "defer": apiserver.Defer, "refuse": apiserver.Refuse,
	"fail": apiserver.Fail, "ignore": apiserver.Ignore,
}

// play carries one step out.
func (w *world) play(step []string) {
	f := verbs[step[0]]
	if f == nil || len(step) <= arguments[step[0]] {
		return
	}
	w.counts[step[0]]++
	f(w, step[1:])
}

func (w *world) context() context.Context { return context.Background() }

// pass lets time pass. Caches never fall behind by more than maxLag.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= maxLag {
		w.elapse(min(d, maxLag))
		for _, name := range Processes {
			w.process(name, func(p *process) {
				p.catchUp()
				p.background()
			})
		}
	}
}

func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s) // what cannot be read is no time
	return d
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // what cannot be read is 0
	return n
}

// process does something with a process that lives.
func (w *world) process(name string, f func(*process)) {
	if p := w.processes[name]; p != nil && p.controller != nil && p != w.acting {
		f(p)
	}
}

func (w *world) reconcileStep(a []string) {
	at := len(w.requests)
	w.requests = append(w.requests, 0)
	w.process(a[0], func(p *process) {
		p.reconcile(a[1], a[2:])
		w.requests[at] = p.requests
	})
}

func (w *world) startStep(a []string) {
	if p := w.processes[a[0]]; p != nil && p.controller != nil {
		return
	}
	var skew time.Duration
	stale := false
	for _, option := range a[1:] {
		if option == "stale" {
			stale = true
		} else {
			skew = duration(option)
		}
	}
	w.start(a[0], skew, stale)
}

// agent does something with the agent of a node.
func (w *world) agent(node string, f func(*agent)) {
	if a := w.agents[node]; a != nil {
		f(a)
	}
}

func (w *world) agentStep(a []string) {
	g := w.agents[a[0]]
	switch {
	case g == nil:
	case a[1] == "restart":
		g.restart()
	case a[1] == "stop" || a[1] == "start":
		g.stopped = a[1] == "stop"
	default:
		g.skew = duration(a[1])
	}
}

// webhook changes the answers of admission.
func (w *world) webhook(namespace, how string) {
	w.webhooks[namespace] = how
	w.note(history.Event{Kind: history.Admission, Namespace: namespace})
}

// resize changes a pod's limit as another writer does.
func (w *world) resize(name string, limit int64) {
	if pod := w.pod(name); pod != nil {
		_ = w.api.Resize("another-client", pod, map[string]int64{pod.Spec.Containers[0].Name: limit}) // it may be refused
	}
}

// remove deletes a pod; the garbage collector deletes what it owns.
func (w *world) remove(name string) {
	pod := w.pod(name)
	if pod == nil {
		return
	}
	w.api.Delete("owner", pod)
	if pa := memapi.Get[*v1alpha1.PodAllocation](w.api, pod.Namespace, string(pod.UID)); pa != nil {
		w.api.Delete("gc", pa)
	}
}

func (w *world) changePod(name string, change func(*corev1.Pod)) {
	if pod := w.pod(name); pod != nil {
		memapi.Change(w.api, "owner", pod.Namespace, name, change)
	}
}

// harm has the kubelet report a pod as not Ready, restarted, or well.
func (w *world) harm(name, how string) {
	now := metav1.NewTime(w.now.Truncate(time.Second))
	w.changePod(name, func(p *corev1.Pod) {
		if how == "restart" {
			if len(p.Status.ContainerStatuses) > 0 {
				s := &p.Status.ContainerStatuses[0]
				s.RestartCount++
				s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: now, ExitCode: 137}
			}
			return
		}
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
				ready, reason := corev1.ConditionTrue, ""
				if how == "unready" {
					ready, reason = corev1.ConditionFalse, "ContainersNotReady"
				}
				if c.Status != ready {
					c.Status, c.Reason, c.LastTransitionTime = ready, reason, now
				}
			}
		}
	})
}

// down has a container of a pod end: with an error, so that it waits for its next start, or successfully, which is for
// good in a job. One that is unready runs; if it is a sidecar, it has not started.
func (w *world) down(name, how string) {
	now := metav1.NewTime(w.now.Truncate(time.Second))
	w.changePod(name, func(p *corev1.Pod) {
		list := kube.Containers(p)
		c := list[len(list)-1]
		if how == "first" {
			c = list[0]
		}
		s := c.Status
		if s == nil || s.State.Running == nil {
			return
		}
		s.Ready, s.Started = false, new(false)
		ended := &corev1.ContainerStateTerminated{FinishedAt: now, ExitCode: 1}
		switch {
		case how == "unready":
		case how == "done" && p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure:
			ended.ExitCode = 0
			s.State = corev1.ContainerState{Terminated: ended}
			w.note(history.Event{Kind: history.Completed, Pod: string(p.UID), NotRunning: []string{s.Name}})
		default:
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			s.LastTerminationState.Terminated = ended
		}
	})
}

// up has all containers of a pod run that have not ended for good.
func (w *world) up(name string) {
	now := metav1.NewTime(w.now.Truncate(time.Second))
	w.changePod(name, func(p *corev1.Pod) {
		delete(p.Annotations, apiserver.HoldKey)
		if p.Status.Phase != corev1.PodRunning {
			return // its kubelet starts it
		}
		for _, c := range kube.Containers(p) {
			s := c.Status
			if s == nil || s.State.Terminated != nil {
				continue
			}
			if s.State.Running == nil {
				s.RestartCount++
				w.cgroups.start(p, c, now)
			} else {
				s.Ready, s.Started = true, new(true)
			}
		}
	})
}

// nodeStep: ready, notready, pressure, cordon, gone, back.
func (w *world) nodeStep(a []string) {
	node := memapi.Get[*corev1.Node](w.api, "", a[0])
	switch {
	case a[1] == "back" && node == nil:
		w.node(a[0])
		for _, name := range podNames(w.pods) {
			w.run(name)
		}
		return
	case node == nil:
		return
	case a[1] == "gone":
		for _, name := range podNames(w.pods) {
			if p := w.pod(name); p != nil && p.Spec.NodeName == a[0] {
				w.remove(name)
			}
		}
		w.api.Delete("cloud", node)
		return
	}
	memapi.Change(w.api, "node controller", "", a[0], func(n *corev1.Node) {
		n.Spec.Unschedulable = a[1] == "cordon"
		ready := corev1.ConditionTrue
		if a[1] == "notready" {
			ready = corev1.ConditionUnknown
		}
		conditions := n.Status.Conditions[:1]
		if c := &conditions[0]; c.Status != ready {
			c.Status, c.LastTransitionTime = ready, metav1.NewTime(w.now.Truncate(time.Second))
		}
		if a[1] == "pressure" {
			conditions = append(conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		}
		n.Status.Conditions = conditions
	})
}

// hpa adds an HPA of the deployment web that scales by CPU, or removes it.
func (w *world) hpa(a []string) {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	h.Spec.Metrics = []autoscalingv2.MetricSpec{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType},
		},
	}}
	w.toggle(h, a[0])
}

// pdb adds a PDB that allows no disruption, or removes it.
func (w *world) pdb(a []string) {
	none := intstr.FromInt32(0)
	p := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	p.Spec.MaxUnavailable, p.Spec.Selector = &none, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	p.Status.ExpectedPods = 2
	w.toggle(p, a[0])
}

func (w *world) toggle(o client.Object, how string) {
	if how == "on" {
		_ = w.api.Create("user", o) // it may exist
	} else {
		w.api.Delete("user", o)
	}
}

// quota bounds the sum of the CPU limits of a namespace; none removes it.
func (w *world) quota(a []string) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: a[0], Name: "cpu"}}
	w.api.Delete("user", q)
	if a[1] == "none" {
		return
	}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: *resource.NewMilliQuantity(int64(number(a[1])), resource.DecimalSI)}
	if w.api.Create("user", q) == nil {
		w.api.Credit()
	}
}

// uninstaller restores declared limits by the rules of an uninstall and of the plugin.
const uninstaller = "uninstall"

// uninstall pauses MBCAS, and restores each pod once.
func (w *world) uninstall() {
	w.play([]string{"pause", "true"})
	resizer := podresize.New(newClient(w.api, uninstaller, nil), kube.FieldManager)
	for _, pod := range memapi.All[*corev1.Pod](w.api) {
		pa := memapi.Get[*v1alpha1.PodAllocation](w.api, pod.Namespace, string(pod.UID))
		if pa == nil || kube.Ended(pod) {
			continue
		}
		if back := restore.ToDeclared(pod, pa.Status.DeclaredLimits); len(back.Move.Changes) > 0 {
			resizer.Apply(w.context(), pod, back.Move) // it may be refused
		}
	}
}

// forget deletes the PodAllocation of a pod, or the ledger of a node, as a user may.
func (w *world) forget(name string) {
	if pod := w.pod(name); pod != nil {
		if pa := memapi.Get[*v1alpha1.PodAllocation](w.api, pod.Namespace, string(pod.UID)); pa != nil {
			w.api.Delete("user", pa)
		}
		return
	}
	if cm := memapi.Get[*corev1.ConfigMap](w.api, w.Namespace, restore.LedgerName(name)); cm != nil {
		w.api.Delete("user", cm)
	}
}

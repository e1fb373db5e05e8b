package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
)

func diagnoseInstall(c *Facts) []Finding {
	f := &findings{check: "install"}
	if !diagnoseCRD(f, c) && c.Controller == nil && c.Agent == nil {
		return f.list // nothing is installed: the other questions have no object
	}
	diagnoseController(f, c)
	if c.State.Paused() {
		f.warn("switch", "all resizes are paused: "+c.State.Pause, "kubectl mbcas resume")
	}
	if c.State.Blocked != "" {
		f.fail("controller", fmt.Sprintf("can resize no pod: %s (%s)", c.State.Message, c.State.Blocked), "Mend that; the controller asks the API server again every minute.")
	}
	diagnoseAgents(f, c)
	diagnoseAutoscalers(f, c)
	diagnoseSignals(f, c)
	return f.list
}

func diagnoseController(f *findings, c *Facts) {
	const subject = "controller"
	if err := c.Unread["controller"]; err != nil {
		f.unread(subject, err)
		return
	}
	if c.Controller == nil {
		f.fail(subject, fmt.Sprintf("deployment %s/%s does not exist", c.System, cluster.ControllerName), "Install MBCAS, or name its namespace with --system-namespace.")
		return
	}
	d := c.Controller
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	switch {
	case want == 0:
		f.fail(subject, "is scaled to 0: nothing is resized or recorded", fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", c.System, cluster.ControllerName))
	case d.Status.ReadyReplicas == 0:
		f.fail(subject, fmt.Sprintf("none of %s is ready%s", format.Plural(int(want), "replica"), whyNotReady(c.SystemPods, cluster.ControllerName)), fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/component=controller", c.System))
	case d.Status.ReadyReplicas < want:
		f.warn(subject, fmt.Sprintf("%d of %s ready%s", d.Status.ReadyReplicas, format.Plural(int(want), "replica"), whyNotReady(c.SystemPods, cluster.ControllerName)), "One is enough to work; the others are spares.")
	default:
		f.ok(subject, "%d of %d ready, %s, default mode %s", d.Status.ReadyReplicas, want, Image(d.Spec.Template.Spec), cluster.ModeFlag(d))
	}
	if may := allowed(c.ControllerPermissions); may != "" {
		f.ok(subject, "may %s", may)
	}
	for _, p := range c.ControllerPermissions {
		if p.Asked && !p.Allowed {
			f.fail(subject, fmt.Sprintf("its service account may not %s, needed for %s", p, p.For), "Apply the RBAC manifests of MBCAS again: kubectl apply -k config/base")
		}
	}
	if err := c.Unread["account"]; err != nil {
		f.unread("controller's rights", err)
	}
}

func diagnoseAgents(f *findings, c *Facts) {
	const subject = "agents"
	if err := c.Unread["agent"]; err != nil {
		f.unread(subject, err)
		return
	}
	if c.Agent == nil {
		f.fail(subject, fmt.Sprintf("daemonset %s/%s does not exist", c.System, cluster.AgentName), "Install MBCAS, or name its namespace with --system-namespace.")
		return
	}
	s := c.Agent.Status
	switch {
	case s.DesiredNumberScheduled == 0:
		f.fail(subject, "no node matches the daemonset", "Check its nodeSelector and tolerations.")
	case s.NumberReady < s.DesiredNumberScheduled:
		f.warn(subject, fmt.Sprintf("%d of %d ready%s", s.NumberReady, s.DesiredNumberScheduled, whyNotReady(c.SystemPods, cluster.AgentName)), fmt.Sprintf("kubectl -n %s get pods -o wide", c.System))
	default:
		f.ok(subject, "%d of %d ready, %s", s.NumberReady, s.DesiredNumberScheduled, Image(c.Agent.Spec.Template.Spec))
	}
	if c.Controller != nil && tag(c.Controller.Spec.Template.Spec) != tag(c.Agent.Spec.Template.Spec) {
		f.warn(subject, fmt.Sprintf("agent %s and controller %s are of different versions", Image(c.Agent.Spec.Template.Spec), Image(c.Controller.Spec.Template.Spec)), "Finish the upgrade.")
	}
}

// diagnoseAutoscalers counts the autoscalers that may write CPU themselves.
func diagnoseAutoscalers(f *findings, c *Facts) {
	const subject = "VPA"
	all := 0
	for _, n := range c.Objects {
		all += len(n.VPAs)
	}
	switch err := c.Unread["verticalpodautoscalers"]; {
	case err != nil:
		f.unread(subject, err)
	case all == 0:
		f.ok(subject, "none")
	default:
		f.ok(subject, "%s; pods whose CPU a VPA writes are left to it", format.Plural(all, "VerticalPodAutoscaler"))
	}
}

// whyNotReady is the first reason that a pod of the named workload gives.
func whyNotReady(pods []corev1.Pod, name string) string {
	for _, p := range pods {
		if !cluster.OfWorkload(&p, name) {
			continue
		}
		for _, s := range p.Status.ContainerStatuses {
			switch {
			case s.State.Waiting != nil:
				return fmt.Sprintf(": %s is %s", p.Name, s.State.Waiting.Reason)
			case !s.Ready && s.State.Running != nil:
				return fmt.Sprintf(": %s runs and is not ready", p.Name)
			}
		}
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
				return fmt.Sprintf(": %s is not scheduled: %s", p.Name, format.OneLine(cond.Message))
			}
		}
	}
	return ""
}

func Image(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return "no image"
	}
	return spec.Containers[0].Image
}

func tag(spec corev1.PodSpec) string {
	i := Image(spec)
	if at := strings.LastIndex(i, ":"); at > strings.LastIndex(i, "/") {
		return i[at+1:]
	}
	return ""
}

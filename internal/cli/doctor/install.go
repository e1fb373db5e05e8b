package doctor

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

const (
	reapply = "Apply the RBAC manifests of MBCAS again: kubectl apply -k config/base"
	install = "Install MBCAS, or name its namespace with --system-namespace."
)

func checkCRDs(f *findings, s subject) {
	const pods, nodes = "PodAllocation CRD", "NodeAllocation CRD"
	if !servesCRD(f, pods, s.CRD) || s.Unreadable["nodecrd"] == nil && !servesCRD(f, nodes, s.NodeCRD) {
		return
	}
	f.ok(pods, "%s is served", v1alpha1.GroupVersion)
}

// servesCRD says whether the API server serves a CRD; if not, that is a finding.
func servesCRD(f *findings, name string, crd *apiextensionsv1.CustomResourceDefinition) bool {
	switch {
	case crd == nil:
		f.fail(name, "is not installed", "Install MBCAS: kubectl apply -k config/base")
	case !apihelpers.HasServedCRDVersion(crd, v1alpha1.GroupVersion.Version):
		f.fail(name, "does not serve version "+v1alpha1.GroupVersion.Version, "Install the CRD of the plugin's version.")
	case !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established):
		f.fail(name, "is not established yet", "Wait some seconds, then: kubectl describe crd "+crd.Name)
	default:
		return true
	}
	return false
}

func checkController(f *findings, s subject) {
	const controller = "controller"
	d := s.Controller
	if d == nil {
		f.fail(controller, fmt.Sprintf("deployment %s/%s does not exist", s.System, cluster.ControllerName), install)
		return
	}
	want := ptr.Deref(d.Spec.Replicas, 1)
	ready, why := d.Status.ReadyReplicas, WhyNotReady(s.SystemPods, cluster.ControllerName)
	switch {
	case want == 0:
		f.fail(controller, "is scaled to 0: nothing is resized or recorded",
			fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", s.System, cluster.ControllerName))
	case ready == 0:
		f.fail(controller, fmt.Sprintf("none of %s is ready%s", format.Plural(int(want), "replica"), why),
			fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/component=controller", s.System))
	case ready < want:
		f.warn(controller, fmt.Sprintf("%d of %s ready%s", ready, format.Plural(int(want), "replica"), why),
			"One is enough; the others are standbys.")
	default:
		f.ok(controller, "%d of %d ready, %s", ready, want, Image(d.Spec.Template.Spec))
	}
}

func checkControllerPermissions(f *findings, s subject) {
	const controller = "controller"
	if allowed := allowedText(s.ControllerPermissions); allowed != "" {
		f.ok(controller, "may %s", allowed)
	}
	for _, p := range s.ControllerPermissions {
		if p.Reviewed && !p.Allowed {
			f.fail(controller, fmt.Sprintf("its service account may not %s, needed for %s", p, p.For), reapply)
		}
	}
	if err := s.Unreadable["controller permissions"]; err != nil {
		f.unreadable("controller's permissions", err)
	}
}

// checkSettings shows the settings that explain what MBCAS does to a pod.
func checkSettings(f *findings, s subject) {
	const settings = "settings"
	if err := s.Unreadable[settings]; err != nil {
		f.warn(settings, "default mode, hold-offs and quota headroom are unknown: "+format.OneLine(err.Error()),
			"Check that the controller runs and that you may read ConfigMaps of its namespace.")
		return
	}
	known := func(text string, ok bool) string {
		if !ok {
			return "unknown"
		}
		return text
	}
	external, hasExternal := s.Settings.Duration(kube.ExternalChangeHoldOffFlag)
	rollback, hasRollback := s.Settings.Duration(kube.RollbackHoldOffFlag)
	headroom, hasHeadroom := s.Settings.Share(kube.QuotaHeadroomFlag)
	f.ok(settings, "default mode %s, hold-off %s after an external change and %s after a rollback, quota headroom %s",
		cmp.Or(string(s.Settings.Mode()), "unknown"),
		known(format.Age(external), hasExternal), known(format.Age(rollback), hasRollback),
		known(fmt.Sprintf("%g%%", 100*headroom), hasHeadroom))
}

func checkPause(f *findings, s subject) {
	if s.Switch.Paused() {
		f.warn("pause", "all resizes are paused: "+s.Switch.Pause, "kubectl mbcas resume")
		if s.Switch.Acknowledged != s.Switch.Pause {
			f.warn("pause", "not all replicas of the controller have acknowledged the pause: a resize may be in flight",
				"Look at the controllers' logs if this stays for more than 20 s.")
		}
	}
	if s.Switch.HarmHold != "" {
		f.warn("pause", "decisions only raise limits up to the declared ones, as harm has spread: "+s.Switch.HarmHold,
			"Find out what harmed these workloads, then: kubectl mbcas resume")
	}
	if s.Switch.Blocked != "" {
		f.fail("controller", fmt.Sprintf("cannot resize any pod: %s (%s)", s.Switch.Message, s.Switch.Blocked),
			"Fix the cause; the controller tries again every minute.")
	}
	if s.Switch.Warning != "" {
		f.warn("controller", fmt.Sprintf("%s (%s)", s.Switch.WarningMessage, s.Switch.Warning),
			"Look at the agents and at the controller's log. To restore all the same: kubectl mbcas mode NAMESPACE restore")
	}
}

func checkAgents(f *findings, s subject) {
	const agents = "agents"
	if s.Agent == nil {
		f.fail(agents, fmt.Sprintf("daemonset %s/%s does not exist", s.System, cluster.AgentName), install)
		return
	}
	ready, want := s.Agent.Status.NumberReady, s.Agent.Status.DesiredNumberScheduled
	switch {
	case want == 0:
		f.fail(agents, "no node matches the daemonset", "Check its nodeSelector and tolerations.")
	case ready < want:
		f.warn(agents, fmt.Sprintf("%d of %d ready%s", ready, want, WhyNotReady(s.SystemPods, cluster.AgentName)),
			fmt.Sprintf("kubectl -n %s get pods -o wide", s.System))
	default:
		f.ok(agents, "%d of %d ready, %s", ready, want, Image(s.Agent.Spec.Template.Spec))
	}
}

func checkVersions(f *findings, s subject) {
	if s.Controller == nil {
		return
	}
	controller, agent := s.Controller.Spec.Template.Spec, s.Agent.Spec.Template.Spec
	if tag(controller) != tag(agent) {
		f.warn("agents",
			fmt.Sprintf("agent %s and controller %s have different versions", Image(agent), Image(controller)),
			"Finish the upgrade.")
	}
}

func countVPAs(f *findings, s subject) {
	const vpa = "VPA"
	all := 0
	for _, n := range s.Objects {
		all += len(n.VPAs)
	}
	if all == 0 {
		f.ok(vpa, "none")
		return
	}
	f.ok(vpa, "%s; MBCAS does not resize pods whose CPU a VPA writes", format.Plural(all, "VerticalPodAutoscaler"))
}

// WhyNotReady is the first reason that a pod of the workload gives.
func WhyNotReady(pods []corev1.Pod, workload string) string {
	for _, p := range pods {
		if !cluster.OfWorkload(&p, workload) {
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

// Image is that of the first container.
func Image(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return "no image"
	}
	return spec.Containers[0].Image
}

func tag(spec corev1.PodSpec) string {
	image := Image(spec)
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return ""
}

// firstResize is the first version that serves pods/resize by default.
var firstResize = utilversion.MustParseGeneric("1.33.0")

func checkAPIServer(f *findings, s subject) {
	const server = "API server"
	if err := s.Unreadable["version"]; err != nil {
		f.fail(server, "does not respond: "+format.OneLine(err.Error()),
			"Check the kubeconfig, its context and the network.")
		return
	}
	v, err := utilversion.ParseGeneric(s.Version)
	switch {
	case err != nil:
		f.warn(server, fmt.Sprintf("Kubernetes %s: the version cannot be parsed", s.Version),
			"Nothing, as long as pods/resize is served.")
	case v.LessThan(firstResize):
		f.warn(server, fmt.Sprintf("Kubernetes %s: in-place resize is on by default from 1.33", s.Version),
			"Upgrade the cluster, or use MBCAS in recommend mode.")
	default:
		f.ok(server, "Kubernetes %s", s.Version)
	}
}

func checkResizeServed(f *findings, s subject) {
	const resize = "pods/resize"
	if s.Served.Yes {
		f.ok(resize, "%s", s.Served.Why)
		return
	}
	f.fail(resize, s.Served.Why,
		"Upgrade, or enable the feature gate InPlacePodVerticalScaling. Until then MBCAS decides and records, "+
			"and resizes nothing.")
}

func checkUserPermissions(f *findings, s subject) {
	const user = "you"
	if allowed := allowedText(s.UserPermissions); allowed != "" {
		f.ok(user, "may %s in all namespaces", allowed)
	}
	for _, p := range s.UserPermissions {
		if p.Reviewed && !p.Allowed {
			f.warn(user, fmt.Sprintf("may not %s in all namespaces, needed for: %s", p, p.For),
				"Ask for it where you need it; other commands work without.")
		}
	}
	if err := s.Unreadable["permissions"]; err != nil {
		f.unreadable("your permissions", err)
	}
}

package doctor

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

func checkKubelet(f *findings, s subject) {
	node, info := s.node.Name, s.node.Status.NodeInfo
	if !isLinux(s.node) {
		f.warn(node, "runs "+info.OperatingSystem+": its pods cannot be resized",
			"Nothing: MBCAS does not manage them.")
		return
	}
	server, _ := utilversion.ParseGeneric(s.Version)
	v, err := utilversion.ParseGeneric(info.KubeletVersion)
	switch {
	case err != nil:
		f.warn(node, fmt.Sprintf("kubelet version %q cannot be parsed", info.KubeletVersion),
			"Check that the kubelet is 1.33 or later.")
	case v.LessThan(firstResize):
		f.warn(node, "kubelet "+info.KubeletVersion+" cannot resize: its pods are observed only",
			"Upgrade the kubelet to 1.33 or later.")
	case server != nil && v.Minor() > server.Minor():
		f.warn(node, fmt.Sprintf("kubelet %s is newer than the API server", info.KubeletVersion),
			"Upgrade the control plane: Kubernetes does not support this.")
	case server != nil && server.Minor() > v.Minor()+3:
		f.warn(node, fmt.Sprintf("kubelet %s is more than three minor versions behind the API server",
			info.KubeletVersion),
			"Upgrade the kubelet: Kubernetes does not support this.")
	default:
		f.ok(node, "kubelet %s, kernel %s, %s", info.KubeletVersion, info.KernelVersion, info.ContainerRuntimeVersion)
	}
	if strings.HasPrefix(info.ContainerRuntimeVersion, "docker://") {
		f.warn(node, "the docker runtime applies limits but never reports them, so a resize looks unfinished",
			"Use containerd or CRI-O on this node.")
	}
}

func isLinux(n *corev1.Node) bool {
	return n.Status.NodeInfo.OperatingSystem == "" || n.Status.NodeInfo.OperatingSystem == "linux"
}

func checkConditions(f *findings, s subject) {
	node := s.node.Name
	describe := "kubectl describe node " + node
	for _, cond := range s.node.Status.Conditions {
		set := cond.Status == corev1.ConditionTrue
		switch cond.Type {
		case corev1.NodeReady:
			if !set {
				f.warn(node, "is not Ready: nothing is resized there", describe)
			}
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if set {
				f.warn(node, fmt.Sprintf("has %s: the kubelet defers every resize", cond.Type),
					"Relieve it; see "+describe)
			}
		case corev1.NodeMemoryPressure:
			if set {
				f.warn(node, "has MemoryPressure: its supply is a tenth lower", "Relieve it; see "+describe)
			}
		}
	}
}

// checkAgent judges the node's agent by its pod and its Lease.
func checkAgent(f *findings, s subject) {
	if !isLinux(s.node) {
		return
	}
	node := s.node.Name
	pod := cluster.AgentOn(s.SystemPods, node)
	if pod == nil && s.Unreadable["pods"] == nil {
		f.warn(node, "has no agent: its pods are not managed",
			"Check the daemonset's nodeSelector and tolerations against the node's labels and taints.")
		return
	}
	lease := s.Leases[kube.AgentLease(node)]
	switch {
	case s.Unreadable["leases"] != nil:
	case lease == nil || lease.Spec.RenewTime == nil:
		f.fail(node, "its agent has never renewed its Lease: nothing is decided there", agentLogs(s.System, pod))
	default:
		age := s.Now.Sub(lease.Spec.RenewTime.Time)
		if age <= kube.AgentSilentAfter {
			f.ok(node, "its agent renews its Lease")
			return
		}
		after := "the controller's --" + kube.RestoreAfterFlag
		if d, ok := s.Settings.Duration(kube.RestoreAfterFlag); ok {
			after = format.Age(d)
		}
		f.fail(node, fmt.Sprintf("its agent renewed its Lease %s ago: limits there are frozen; declared limits "+
			"return after %s", format.Age(age), after),
			agentLogs(s.System, pod))
	}
}

func agentLogs(system string, pod *corev1.Pod) string {
	if pod == nil {
		return fmt.Sprintf("kubectl -n %s get pods -o wide", system)
	}
	return fmt.Sprintf("kubectl -n %s logs %s", system, pod.Name)
}

// checkPodQuotas names the pods whose own cgroup has a wrong CPU quota, as the agent says with its Lease.
func checkPodQuotas(f *findings, s subject) {
	lease := s.Leases[kube.AgentLease(s.node.Name)]
	if lease == nil {
		return
	}
	m, err := allocation.ParseNodeMarket(lease.Annotations[kube.MarketKey])
	if err != nil { // an agent that has just started says nothing
		return
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if q, _ := m.QuotaOf(p, time.Time{}); q.Wrong() && p.Spec.NodeName == s.node.Name {
			f.warn(p.Namespace+"/"+p.Name, "the CPU quota of its cgroup: "+q.String(),
				"Wait a minute: MBCAS repairs it. If it stays, docs/runbooks/MbcasQuotaMismatch.md.")
		}
	}
}

// checkRound judges the last round of the node's agent.
func checkRound(f *findings, s subject) {
	node := s.node.Name
	if err, ok := s.RoundErrors[node]; ok {
		f.warn(node, "its last round cannot be read: "+format.OneLine(err.Error()),
			agentLogs(s.System, cluster.AgentOn(s.SystemPods, node)))
		return
	}
	m, ok := s.Rounds[node]
	if !ok {
		return
	}
	f.ok(node, "usage %v of a supply of %v, price %v, %s", m.Usage, m.Supply, m.Price,
		format.Plural(m.Managed, "managed pod"))
	if m.Pressure == nil {
		f.warn(node, "its kernel reports no CPU pressure (PSI): starved pods are not detected",
			"Boot the node with psi=1, or do without: throttling is detected anyway.")
	}
	capacity := kube.Milli(s.node.Status.Capacity[corev1.ResourceCPU])
	reserved := capacity - kube.Milli(s.node.Status.Allocatable[corev1.ResourceCPU])
	if m.System > reserved+capacity/10 {
		f.warn(node, fmt.Sprintf("processes outside pods use %v, and the kubelet reserves %v for them: the supply "+
			"is lower by the difference", m.System, reserved),
			"Find what runs on the node outside pods, or raise the kubelet's systemReserved.")
	}
	if m.FloorsExceedSupply {
		f.warn(node, "the floors of its pods add up to more than its supply, so its market cannot divide anything",
			"Lower requests, or move pods to other nodes.")
	}
}

// checkReportedResources finds kubelets that do not report container resources. The API server
// refuses to resize their pods.
func checkReportedResources(f *findings, s subject) {
	node, without := s.node.Name, 0
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Spec.NodeName != node {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				if c.Resources == nil {
					without++
				}
				break
			}
		}
	}
	if without > 0 {
		f.warn(node, fmt.Sprintf("its kubelet reports no container resources for %s: they cannot be resized",
			format.Plural(without, "pod")),
			"Upgrade the kubelet, or enable InPlacePodVerticalScaling on it.")
	}
}

package doctor

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// leaseFresh is how old an agent's heartbeat may be: it is renewed every 10 s.
const leaseFresh = 30 * time.Second

func diagnoseNodes(c *Facts, now time.Time) []Finding {
	f := &findings{check: "node"}
	if err := c.Unread["nodes"]; err != nil {
		f.unread("nodes", err)
	}
	if err := c.Unread["leases"]; err != nil {
		f.unread("heartbeats", err)
	}
	if err := c.Unread["rounds"]; err != nil {
		f.unread("agents", err)
	}
	server, _ := utilversion.ParseGeneric(c.Version)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		diagnosePlatform(f, n, server)
		diagnoseConditions(f, n)
		if c.Agent != nil {
			diagnoseHeartbeat(f, c, n, now)
		}
		diagnoseMarket(f, c, n)
		diagnoseReports(f, c, n.Name)
	}
	return f.list
}

// diagnosePlatform judges what the node runs on.
func diagnosePlatform(f *findings, n *corev1.Node, server *utilversion.Version) {
	info := n.Status.NodeInfo
	if info.OperatingSystem != "" && info.OperatingSystem != "linux" {
		f.warn(n.Name, "runs "+info.OperatingSystem+": its pods cannot be resized", "Nothing: they are left alone.")
		return
	}
	v, err := utilversion.ParseGeneric(info.KubeletVersion)
	switch {
	case err != nil:
		f.warn(n.Name, fmt.Sprintf("kubelet version %q cannot be read", info.KubeletVersion), "Check that the kubelet is 1.33 or later.")
	case v.LessThan(firstResize):
		f.warn(n.Name, "kubelet "+info.KubeletVersion+" cannot resize: its pods are only watched", "Upgrade the kubelet to 1.33 or later.")
	case server != nil && v.Minor() > server.Minor():
		f.warn(n.Name, fmt.Sprintf("kubelet %s is newer than the API server", info.KubeletVersion), "Upgrade the control plane: Kubernetes does not support this.")
	case server != nil && server.Minor() > v.Minor()+3:
		f.warn(n.Name, fmt.Sprintf("kubelet %s is more than three minor versions behind the API server", info.KubeletVersion), "Upgrade the kubelet: Kubernetes does not support this.")
	default:
		f.ok(n.Name, "kubelet %s, kernel %s, %s", info.KubeletVersion, info.KernelVersion, info.ContainerRuntimeVersion)
	}
	if strings.HasPrefix(info.ContainerRuntimeVersion, "docker://") {
		f.warn(n.Name, "the docker runtime applies limits but never reports them, so a resize looks unfinished", "Use containerd or CRI-O on this node.")
	}
}

// diagnoseConditions judges what the node says about itself.
func diagnoseConditions(f *findings, n *corev1.Node) {
	for _, cond := range n.Status.Conditions {
		switch cond.Type {
		case corev1.NodeReady:
			if cond.Status != corev1.ConditionTrue {
				f.warn(n.Name, "is not Ready: nothing is resized there", "kubectl describe node "+n.Name)
			}
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if cond.Status == corev1.ConditionTrue {
				f.warn(n.Name, "has "+string(cond.Type)+": the kubelet defers every resize", "Relieve it; see kubectl describe node "+n.Name)
			}
		case corev1.NodeMemoryPressure:
			if cond.Status == corev1.ConditionTrue {
				f.warn(n.Name, "has MemoryPressure: a tenth of its CPU is kept out of the market", "Relieve it; see kubectl describe node "+n.Name)
			}
		}
	}
}

// diagnoseHeartbeat judges the node's agent by its pod and its lease.
func diagnoseHeartbeat(f *findings, c *Facts, n *corev1.Node, now time.Time) {
	if n.Status.NodeInfo.OperatingSystem != "" && n.Status.NodeInfo.OperatingSystem != "linux" {
		return
	}
	pod := cluster.AgentOn(c.SystemPods, n.Name)
	if pod == nil && c.Unread["pods"] == nil {
		f.warn(n.Name, "has no agent: its pods are not managed", "Check the daemonset's nodeSelector and tolerations against the node's labels and taints.")
		return
	}
	lease := leaseOf(c.Leases, n.Name)
	switch {
	case c.Unread["leases"] != nil:
	case lease == nil || lease.Spec.RenewTime == nil:
		f.fail(n.Name, "its agent has never reported: nothing is decided there", agentLogs(c.System, pod))
	default:
		old := now.Sub(lease.Spec.RenewTime.Time)
		if old > leaseFresh {
			f.fail(n.Name, fmt.Sprintf("its agent last reported %s ago: limits there are frozen, and restored after 5 minutes", format.Age(old)), agentLogs(c.System, pod))
			return
		}
		f.ok(n.Name, "agent reports every 10 s")
	}
}

func agentLogs(system string, pod *corev1.Pod) string {
	if pod == nil {
		return fmt.Sprintf("kubectl -n %s get pods -o wide", system)
	}
	return fmt.Sprintf("kubectl -n %s logs %s", system, pod.Name)
}

func leaseOf(leases []coordinationv1.Lease, node string) *coordinationv1.Lease {
	for i := range leases {
		if leases[i].Name == kube.AgentLease(node) {
			return &leases[i]
		}
	}
	return nil
}

// diagnoseMarket judges what the node's agent tells of its last round.
func diagnoseMarket(f *findings, c *Facts, n *corev1.Node) {
	node := n.Name
	if err, ok := c.RoundErrors[node]; ok {
		f.warn(node, "does not tell its last round: "+format.OneLine(err.Error()), agentLogs(c.System, cluster.AgentOn(c.SystemPods, node)))
		return
	}
	m, ok := c.Markets[node]
	if !ok {
		return
	}
	f.ok(node, "%v of %v for the market in use, price %s, %s bid", m.Usage, m.Supply, m.Price, format.Plural(m.Bidders, "pod"))
	if m.Pressure == nil {
		f.warn(node, "its kernel tells no CPU pressure (PSI): starvation by neighbours is not seen", "Boot the node with psi=1, or do without: throttling is seen all the same.")
	}
	capacity, allocatable := kube.Milli(n.Status.Capacity[corev1.ResourceCPU]), kube.Milli(n.Status.Allocatable[corev1.ResourceCPU])
	if reserved := capacity - allocatable; m.System > reserved+capacity/10 {
		f.warn(node, fmt.Sprintf("what runs there beside pods uses %v, and the kubelet reserves %v for it: the market has that much less for pods", m.System, reserved), "Look for what runs on the node beside pods, or raise the kubelet's systemReserved.")
	}
	if m.FloorsExceedSupply {
		f.warn(node, "the requests of its pods add up to more than it has for them: the market has no room there", "Lower requests, or move pods to other nodes.")
	}
}

// diagnoseReports finds kubelets that do not report container resources, which the API server takes
// as a refusal to resize.
func diagnoseReports(f *findings, c *Facts, node string) {
	silent := 0
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Spec.NodeName != node {
			continue
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil {
				if s.Resources == nil {
					silent++
				}
				break
			}
		}
	}
	if silent > 0 {
		f.warn(node, fmt.Sprintf("its kubelet reports no container resources for %s: they cannot be resized", format.Plural(silent, "pod")), "Upgrade the kubelet, or enable InPlacePodVerticalScaling on it.")
	}
}

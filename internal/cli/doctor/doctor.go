// Package doctor checks a cluster, the installation of MBCAS, its nodes and its namespaces. Gather
// reads the facts; Judge, which is pure, turns them into findings.
package doctor

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

type check struct {
	area, name string
	per        kind
	needs      func(subject) bool // nil: always
	// reads are the facts without which nothing can be judged. One that cannot be read is the
	// finding.
	reads []string
	judge func(*findings, subject) // nil: the check reports all facts that cannot be read
}

// kind is what a check judges: the cluster once, each node, or each namespace.
type kind int

const (
	perCluster kind = iota
	perNode
	perNamespace
)

// subject is the cluster, with the node or namespace that a check judges.
type subject struct {
	*Facts
	node      *corev1.Node
	namespace *namespace
}

// checks are in the order of the report. A run of checks per node or namespace completes one object
// before the next.
var checks = []check{
	{"cluster", "API server", perCluster, nil, nil, checkAPIServer},
	{"cluster", "pods/resize", perCluster, reachable, []string{"resize"}, checkResizeServed},
	{"cluster", "user permissions", perCluster, reachable, nil, checkUserPermissions},

	{"install", "PodAllocation CRD", perCluster, reachable, []string{"crd"}, checkCRDs},
	{"install", "controller", perCluster, installed, []string{"controller"}, checkController},
	{"install", "controller permissions", perCluster, installed, nil, checkControllerPermissions},
	{"install", "settings", perCluster, hasController, nil, checkSettings},
	{"install", "pause", perCluster, installed, []string{"switch"}, checkPause},
	{"install", "agents", perCluster, installed, []string{"agent"}, checkAgents},
	{"install", "versions", perCluster, hasAgents, nil, checkVersions},
	{"install", "VPA", perCluster, installed, []string{"verticalpodautoscalers"}, countVPAs},
	{"install", "DemandSignals", perCluster, installed, []string{"demandsignals"}, checkSignals},

	{"node", "facts", perCluster, reachable, []string{"nodes", "leases", "rounds"}, nil},
	{"node", "kubelet", perNode, reachable, nil, checkKubelet},
	{"node", "conditions", perNode, reachable, nil, checkConditions},
	{"node", "agent", perNode, hasAgents, nil, checkAgent},
	{"node", "pod quotas", perNode, hasAgents, nil, checkPodQuotas},
	{"node", "last round", perNode, reachable, nil, checkRound},
	{"node", "reported resources", perNode, reachable, nil, checkReportedResources},

	{"namespace", "facts", perCluster, reachable, namespaceObjects, nil},
	{"namespace", "mode", perNamespace, reachable, nil, checkMode},
	{"namespace", "declared limits", perNamespace, hasCandidates, nil, checkBelowDeclared},
	{"namespace", "raises", perNamespace, hasCandidates, nil, checkMaxRaise},
	{"namespace", "VPA", perNamespace, switchedOn, nil, checkVPAs},
	{"namespace", "refused pods", perNamespace, hasCandidates, nil, checkRefused},
	{"namespace", "LimitRange", perNamespace, hasCandidates, nil, checkLimitRanges},
	{"namespace", "ResourceQuota", perNamespace, hasCandidates, nil, checkQuotas},
	{"namespace", "HPA", perNamespace, hasCandidates, nil, checkHPAs},
	{"namespace", "PodDisruptionBudget", perNamespace, hasCandidates, nil, checkBudgets},

	{"pod", "managed pods", perCluster, reachable, []string{"pods", "allocations"}, checkPods},
}

// namespaceObjects are the facts that the checks of namespaces judge.
var namespaceObjects = []string{
	"namespaces", "limitranges", "resourcequotas", "horizontalpodautoscalers", "poddisruptionbudgets",
}

// titles are the subjects of findings about facts that cannot be read, if other than the fact.
var titles = map[string]string{
	"crd": "PodAllocation CRD", "agent": "agents", "switch": "pause", "resize": "pods/resize", "rounds": "agents",
	"verticalpodautoscalers": "VPA", "demandsignals": "DemandSignals", "leases": "leases of agents",
}

// readable says whether a check can judge what it reads; what cannot be read is a finding.
func (f *findings) readable(c *Facts, check check) bool {
	for _, fact := range check.reads {
		if err := c.Unreadable[fact]; err != nil {
			f.unreadable(cmp.Or(titles[fact], fact), err)
			if check.judge != nil {
				return false
			}
		}
	}
	return check.judge != nil
}

func reachable(s subject) bool { return s.Version != "" }

// installed: some part of MBCAS exists, or cannot be ruled out.
func installed(s subject) bool {
	return reachable(s) && (s.CRD != nil || s.Unreadable["crd"] != nil || s.Controller != nil || s.Agent != nil)
}

func hasController(s subject) bool { return reachable(s) && s.Controller != nil }
func hasAgents(s subject) bool     { return reachable(s) && s.Agent != nil }

// Judge runs all checks.
func Judge(c *Facts) []Finding {
	f := &findings{}
	for i, end := 0, 0; i < len(checks); i = end {
		for end < len(checks) && checks[end].per == checks[i].per {
			end++
		}
		for _, s := range subjects(c, checks[i].per) {
			for _, check := range checks[i:end] {
				if check.needs == nil || check.needs(s) {
					f.area, f.name = check.area, check.name
					if f.readable(s.Facts, check) {
						check.judge(f, s)
					}
				}
			}
		}
	}
	return f.list
}

func subjects(c *Facts, per kind) (list []subject) {
	switch per {
	case perNode:
		for i := range c.Nodes {
			list = append(list, subject{Facts: c, node: &c.Nodes[i]})
		}
	case perNamespace:
		for i := range c.Namespaces {
			if n := newNamespace(c, &c.Namespaces[i]); n != nil {
				list = append(list, subject{Facts: c, namespace: n})
			}
		}
	case perCluster:
		list = append(list, subject{Facts: c})
	}
	return list
}

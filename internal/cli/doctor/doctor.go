// Package doctor checks a cluster, the installation of MBCAS, its nodes and its namespaces. Gather
// reads the facts; Judge, which is pure, turns them into findings.
package doctor

import (
	corev1 "k8s.io/api/core/v1"
)

// check judges one subject.
type check struct {
	area, name string
	per        kind
	needs      func(subject) bool // nil: always
	judge      func(*findings, subject)
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
	{"cluster", "API server", perCluster, nil, checkAPIServer},
	{"cluster", "pods/resize", perCluster, reachable, checkResizeServed},
	{"cluster", "user permissions", perCluster, reachable, checkUserPermissions},

	{"install", "PodAllocation CRD", perCluster, reachable, checkCRD},
	{"install", "controller", perCluster, installed, checkController},
	{"install", "controller permissions", perCluster, installed, checkControllerPermissions},
	{"install", "settings", perCluster, hasController, checkSettings},
	{"install", "pause", perCluster, installed, checkPause},
	{"install", "agents", perCluster, installed, checkAgents},
	{"install", "versions", perCluster, hasAgents, checkVersions},
	{"install", "VPA", perCluster, installed, countVPAs},
	{"install", "DemandSignals", perCluster, installed, checkSignals},

	{"node", "facts", perCluster, reachable, checkNodeFacts},
	{"node", "kubelet", perNode, reachable, checkKubelet},
	{"node", "conditions", perNode, reachable, checkConditions},
	{"node", "agent", perNode, hasAgents, checkAgent},
	{"node", "last round", perNode, reachable, checkRound},
	{"node", "reported resources", perNode, reachable, checkReportedResources},

	{"namespace", "facts", perCluster, reachable, checkNamespaceFacts},
	{"namespace", "mode", perNamespace, reachable, checkMode},
	{"namespace", "VPA", perNamespace, switchedOn, checkVPAs},
	{"namespace", "refused pods", perNamespace, hasCandidates, checkRefused},
	{"namespace", "LimitRange", perNamespace, hasCandidates, checkLimitRanges},
	{"namespace", "ResourceQuota", perNamespace, hasCandidates, checkQuotas},
	{"namespace", "HPA", perNamespace, hasCandidates, checkHPAs},
	{"namespace", "PodDisruptionBudget", perNamespace, hasCandidates, checkBudgets},

	{"pod", "managed pods", perCluster, reachable, checkPods},
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
					check.judge(f, s)
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

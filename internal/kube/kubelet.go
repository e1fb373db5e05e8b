package kube

import (
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// LatestResizeWins says whether the kubelet of a node takes resizes from a queue, in which the latest of a pod
// replaces an earlier one. Before 1.34 the pod's own sync takes them, and reports do not tell two apart.
func LatestResizeWins(n *corev1.Node) bool {
	v, err := utilversion.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
	return err == nil && v.AtLeast(utilversion.MajorMinor(1, 34))
}

package cli

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What the manifests call the parts of an installation.
const (
	controllerName = "mbcas-controller" // Deployment and its service account
	agentName      = "mbcas-agent"      // DaemonSet
	agentPort      = "9090"
	crdName        = "podallocations.allocation.mbcas.io"
	signalCRDName  = "demandsignals.allocation.mbcas.io"
)

// ofWorkload says whether a pod belongs to the Deployment or DaemonSet of that name.
func ofWorkload(pod *corev1.Pod, name string) bool { return strings.HasPrefix(pod.Name, name+"-") }

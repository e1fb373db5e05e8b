package cli

// What the manifests call the parts of an installation.
const (
	controllerName = "mbcas-controller" // Deployment and its service account
	agentName      = "mbcas-agent"      // DaemonSet
	leasePrefix    = "mbcas-agent-"     // + node: an agent's heartbeat
	crdName        = "podallocations.allocation.mbcas.io"
)

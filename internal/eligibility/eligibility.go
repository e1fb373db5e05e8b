// Package eligibility decides whether MBCAS may manage a pod at all. It is pure.
//
// What it promises, each a test of the same name:
//   - EveryExclusion: each fact that excludes a pod does so by itself, with its own reason.
//   - UnlimitedContainersDoNotExclude: the resizePolicy of a container without a CPU limit does not matter.
package eligibility

import "github.com/mbcas/mbcas/api/v1alpha1/reasons"

// Facts are what eligibility depends on.
type Facts struct {
	SystemNamespace, NamespaceOff, OptedOut, InvalidAnnotation bool
	// VPA: a VerticalPodAutoscaler writes the pod's CPU.
	VPA bool
	// Running: the phase is Running and the pod is not being deleted.
	Running                                     bool
	QOS                                         QOS
	Static, Windows, PodResources, RuntimeClass bool
	// StatusWithoutResources: a running container's status has no resources, so
	// the kubelet is too old to resize.
	StatusWithoutResources bool
	Containers             []ContainerFacts
}

// ContainerFacts are what eligibility depends on in one container or sidecar.
type ContainerFacts struct {
	Limited  bool // has a CPU limit
	Restarts bool // its resizePolicy for cpu is RestartContainer
}

// QOS is a pod's quality-of-service class.
type QOS string

// The classes, as Kubernetes writes them.
const (
	QOSGuaranteed QOS = "Guaranteed"
	QOSBurstable  QOS = "Burstable"
	QOSBestEffort QOS = "BestEffort"
)

// exclusion is one reason not to manage a pod, and whether it applies.
type exclusion struct {
	reason  reasons.Reason
	applies bool
}

// exclusions are in the order in which they count: from what the user chose to what the
// platform cannot do.
func exclusions(f Facts) []exclusion {
	limited, restarts := false, false
	for _, c := range f.Containers {
		limited = limited || c.Limited
		restarts = restarts || (c.Limited && c.Restarts)
	}
	return []exclusion{
		{reasons.SystemNamespace, f.SystemNamespace},
		{reasons.NamespaceOff, f.NamespaceOff},
		{reasons.OptedOut, f.OptedOut},
		{reasons.InvalidAnnotation, f.InvalidAnnotation},
		{reasons.ManagedByVPA, f.VPA},
		{reasons.NotRunning, !f.Running},
		{reasons.StaticPod, f.Static},
		{reasons.WindowsPod, f.Windows},
		{reasons.GuaranteedQoS, f.QOS == QOSGuaranteed},
		{reasons.BestEffortQoS, f.QOS == QOSBestEffort},
		{reasons.PodLevelResources, f.PodResources},
		{reasons.RuntimeClass, f.RuntimeClass},
		{reasons.NoCPULimit, !limited},
		{reasons.ResizeRestarts, restarts},
		{reasons.NodeCannotResize, f.StatusWithoutResources},
	}
}

// Eligible says whether MBCAS may manage the pod, and if not, the first reason that applies.
func Eligible(f Facts) (reasons.Reason, bool) {
	for _, e := range exclusions(f) {
		if e.applies {
			return e.reason, false
		}
	}
	return "", true
}

// Exclusions lists all reasons for which a pod is not managed, in the order in which they count.
func Exclusions() []reasons.Reason {
	var list []reasons.Reason
	for _, e := range exclusions(Facts{}) {
		list = append(list, e.reason)
	}
	return list
}

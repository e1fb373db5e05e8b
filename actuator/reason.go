package actuator

import "fmt"

// Reason is one CamelCase word that says why a pod stands as it does. Reasons are API: users
// script against them, and docs/reasons.md explains each.
type Reason string

// Reasons of a plan.
const (
	Settled     Reason = "Settled"          // the limits are what they should be
	DeadBand    Reason = "WithinDeadBand"   // the change is too small to be worth a resize
	CoolingDown Reason = "CoolingDown"      // lowered or raised too lately
	InFlight    Reason = "ResizeInFlight"   // the last resize is not finished
	BackingOff  Reason = "BackingOff"       // the last resize was refused; tried again later
	GiversFirst Reason = "WaitingForGivers" // the node is full: others shrink first
	Undecided   Reason = "NoDecisionYet"    // the node's agent has not decided
	DecisionOld Reason = "DecisionTooOld"   // the node's agent has to say it again before anything is moved
	Stepping    Reason = "LoweringInSteps"  // moved part of the way
	NotReady    Reason = "PodNotReady"      // never lowered while not Ready
	Starting    Reason = "PodStarting"      // never lowered within the start-up grace

	ScaledByHPA  Reason = "ScaledByHPA"         // an HPA looks at its CPU use
	NoDisruption Reason = "NoDisruptionAllowed" // its PodDisruptionBudget allows none
	Hurt         Reason = "HurtByDecrease"      // not Ready, or restarted, right after a decrease
	QuotaShort   Reason = "WaitingForQuota"     // the ResourceQuota has no room to spare
)

// Reasons why a pod is not in the market.
const (
	SystemNamespace Reason = "SystemNamespace"      // kube-system and the like, and our own
	NamespaceOff    Reason = "NamespaceOff"         // mbcas.io/mode=off
	OptedOut        Reason = "OptedOut"             // mbcas.io/managed=false
	NotRunning      Reason = "NotRunning"           // not started, finished or being deleted
	Guaranteed      Reason = "GuaranteedQoS"        // a limit-only change would change the QoS class
	BestEffort      Reason = "BestEffortQoS"        // has neither request nor limit
	NoCPULimit      Reason = "NoCPULimit"           // a limit, once added, cannot be removed
	StaticPod       Reason = "StaticPod"            // the API server refuses to resize it
	WindowsPod      Reason = "WindowsPod"           // the API server refuses to resize it
	RestartPolicy   Reason = "ResizeRestarts"       // resizePolicy asks for a restart on a CPU change
	PodResources    Reason = "PodLevelResources"    // spec.resources is set
	Sandboxed       Reason = "RuntimeClass"         // the runtime may not honour a changed limit
	NodeUnsupported Reason = "NodeCannotResize"     // the kubelet does not report resources
	ManagedByVPA    Reason = "ManagedByVPA"         // a VerticalPodAutoscaler writes its CPU
	BadOptOut       Reason = "BadAnnotation"        // an mbcas.io annotation cannot be read, so the pod is left alone
	ForeignResize   Reason = "ChangedBySomebody"    // limits changed by somebody else, adopted as declared
	Contested       Reason = "LimitsContested"      // somebody else changes them again and again
	DeclaredUnknown Reason = "DeclaredLimitUnknown" // the record is lost and cannot be recovered
)

// Reasons of the controller: what holds a whole installation or node, or became of a resize.
const (
	Recommending      Reason = "Recommending"         // the mode is recommend
	Restoring         Reason = "Restoring"            // the mode is restore
	Leaving           Reason = "LeavingMarket"        // no longer eligible: restored first, then forgotten
	Paused            Reason = "Paused"               // somebody paused the installation
	AllocationsGone   Reason = "AllocationsNotServed" // the CRD is missing
	ResizeNotServed   Reason = "ResizeNotServed"      // the API server has no pods/resize
	PermissionMissing Reason = "PermissionMissing"    // RBAC forbids resizing
	NodeUnknown       Reason = "NodeUnknown"          // the API server has no such node
	NodeNotReady      Reason = "NodeNotReady"         // the kubelet would not carry it out
	NodeShuttingDown  Reason = "NodeShuttingDown"     // the kubelet would not carry it out
	NodeDraining      Reason = "NodeDraining"         // its pods are about to go
	NodePressure      Reason = "NodeUnderPressure"    // disk or PID pressure defers every resize
	NodeEvicting      Reason = "NodeEvicting"         // a NoExecute taint that the pod does not tolerate
	AgentSilent       Reason = "AgentSilent"          // no decision on stale data
	ScalersUnknown    Reason = "AutoscalersUnknown"   // it may be one that is left to a VPA, or not lowered for an HPA
	RestartedLately   Reason = "RestartedLately"      // never lowered right after a restart
	BudgetSpent       Reason = "ResizeBudgetSpent"    // the installation's rate of resizes is used up
	Contended         Reason = "PodChanging"          // the pod changed under every attempt
	TookTooLong       Reason = "ResizeTookTooLong"    // the kubelet did not carry it out in time
	ResizeDeferred    Reason = "ResizeDeferred"       // the kubelet cannot take it now
	ResizeInfeasible  Reason = "ResizeInfeasible"     // the kubelet never will
	ResizeErrored     Reason = "ResizeError"          // the runtime or kernel refused it
	QuotaExceeded     Reason = "QuotaExceeded"        // a ResourceQuota has no room
	QuotaNeedsLimits  Reason = "QuotaNeedsLimits"     // a ResourceQuota wants limits on every container
	LimitRangeRefused Reason = "LimitRangeRefused"    // a LimitRange forbids it
	WouldMutate       Reason = "AdmissionWouldMutate" // admission would change more than asked for
	NodeRefused       Reason = "NodeRefused"          // capacity, platform or a missing feature
	PolicyRefused     Reason = "PolicyRefused"        // an admission policy or webhook
	Invalid           Reason = "InvalidResize"        // the API server calls it invalid
	ServerUnavailable Reason = "ServerUnavailable"    // the API server could not answer
	OutcomeUnknown    Reason = "OutcomeUnknown"       // the answer was lost
)

// Facts is what eligibility depends on.
type Facts struct {
	SystemNamespace, NamespaceOff, OptedOut, BadAnnotation bool
	// VPA: a VerticalPodAutoscaler writes the pod's CPU.
	VPA                                      bool
	Running                                  bool // phase Running and not being deleted
	QOS                                      QOS
	Static, Windows, PodResources, Sandboxed bool
	// StatusWithoutResources: a running container's status has no resources, so
	// the kubelet is too old to resize.
	StatusWithoutResources bool
	Containers             []ContainerFacts
}

// ContainerFacts is what eligibility depends on in one container or sidecar.
type ContainerFacts struct {
	Limited  bool // has a CPU limit
	Restarts bool // its resizePolicy for cpu is RestartContainer
}

// QOS is a pod's quality-of-service class.
type QOS string

const (
	QOSGuaranteed QOS = "Guaranteed"
	QOSBurstable  QOS = "Burstable"
	QOSBestEffort QOS = "BestEffort"
)

// exclusion is one reason to be left alone, and whether it applies.
type exclusion struct {
	reason Reason
	out    bool
}

// exclusions are in the order in which they count: from what the user chose to what the platform cannot do.
func exclusions(f Facts) []exclusion {
	limited, restarts := false, false
	for _, c := range f.Containers {
		limited = limited || c.Limited
		restarts = restarts || (c.Limited && c.Restarts)
	}
	return []exclusion{
		{SystemNamespace, f.SystemNamespace},
		{NamespaceOff, f.NamespaceOff},
		{OptedOut, f.OptedOut},
		{BadOptOut, f.BadAnnotation},
		{ManagedByVPA, f.VPA},
		{NotRunning, !f.Running},
		{StaticPod, f.Static},
		{WindowsPod, f.Windows},
		{Guaranteed, f.QOS == QOSGuaranteed},
		{BestEffort, f.QOS == QOSBestEffort},
		{PodResources, f.PodResources},
		{Sandboxed, f.Sandboxed},
		{NoCPULimit, !limited},
		{RestartPolicy, restarts},
		{NodeUnsupported, f.StatusWithoutResources},
	}
}

// Eligible says whether the market may move the pod's limits, and if not, why: the first reason that applies.
func Eligible(f Facts) (Reason, bool) {
	for _, e := range exclusions(f) {
		if e.out {
			return e.reason, false
		}
	}
	return "", true
}

// Exclusions are all reasons for which a pod may be left alone, in the order in which they count.
func Exclusions() []Reason {
	var reasons []Reason
	for _, e := range exclusions(Facts{}) {
		reasons = append(reasons, e.reason)
	}
	return reasons
}

// Sentence explains the reason to the person whose pod it is.
func (r Reason) Sentence() string {
	if s, ok := sentences[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %s", string(r))
}

var sentences = map[Reason]string{
	Settled:     "the CPU limits are what they should be",
	DeadBand:    "the wanted change is smaller than the dead band, so it is not worth a resize",
	CoolingDown: "the limits were changed a moment ago; the next change waits for the cooldown",
	InFlight:    "the last resize has not been carried out by the kubelet yet",
	BackingOff:  "the last resize was refused or failed; it will be tried again later",
	GiversFirst: "the node is full: pods that give CPU are lowered before this one is raised",
	Undecided:   "the agent of this pod's node has not decided yet; it watches a new pod for some seconds first",
	DecisionOld: "the decision is too old to act on: the agent of the pod's node is asked whether it still holds, and until it says so nothing is moved",
	Stepping:    "the limit is lowered in steps",
	NotReady:    "a pod that is not Ready is never lowered",
	Starting:    "a pod is not lowered within its start-up grace",

	ScaledByHPA:  "a HorizontalPodAutoscaler looks at the pod's CPU use, so the pod is not lowered",
	NoDisruption: "a PodDisruptionBudget allows no disruption, so the pod is not lowered",
	Hurt:         "the pod was not Ready, or restarted, right after it was lowered; it is not lowered for a day, and gets back what it had before as far as its bounds and quotas allow",
	QuotaShort:   "a ResourceQuota of the namespace has no room to spare at present; the raise waits until there is",

	SystemNamespace:   "pods of this namespace are always left alone",
	NamespaceOff:      "the namespace is labelled mbcas.io/mode=off",
	OptedOut:          "the pod is marked mbcas.io/managed=false",
	NotRunning:        "the pod is not running",
	Guaranteed:        "the pod is Guaranteed: changing its limit alone would change its QoS class, which Kubernetes refuses",
	BestEffort:        "the pod is BestEffort: it has no CPU limit, and a limit once added cannot be removed",
	NoCPULimit:        "no container has a CPU limit, and a limit once added cannot be removed",
	StaticPod:         "static pods cannot be resized",
	WindowsPod:        "Windows pods cannot be resized",
	RestartPolicy:     "a container's resizePolicy restarts it when its CPU changes",
	PodResources:      "the pod sets pod-level resources, which are not supported",
	Sandboxed:         "the pod has a runtimeClassName, and such runtimes may not honour a changed limit",
	NodeUnsupported:   "the kubelet of the pod's node does not report container resources, so it cannot resize",
	BadOptOut:         "an mbcas.io annotation cannot be read, so the pod is left alone until it is mended",
	ForeignResize:     "somebody else changed the limits; they are taken as the new declared limits, and the pod is left alone for a while",
	ManagedByVPA:      "a VerticalPodAutoscaler writes the pod's CPU requests and limits, so the pod is left to it",
	Contested:         "somebody else changed the limits twice within an hour; they are left as they are for a day",
	Recommending:      "the namespace is in recommend mode: decisions are recorded and nothing is resized",
	Restoring:         "the namespace is in restore mode: pods go back to their declared limits and stay there",
	Leaving:           "the pod has left the market: it goes back to its declared limits, and this object is then deleted",
	Paused:            "MBCAS is paused in the whole cluster (ConfigMap mbcas, key paused)",
	AllocationsGone:   "the PodAllocation API is not served; install the CRD again",
	ResizeNotServed:   "this API server does not serve pods/resize, so nothing is resized; Kubernetes 1.33 or later is needed",
	PermissionMissing: "the controller may not patch pods/resize, so nothing is resized; check its ClusterRole and binding",
	NodeUnknown:       "the API server has no Node object of the pod's node, so nothing on it is resized",
	NodeNotReady:      "the node is not Ready, so nothing on it is resized",
	NodeShuttingDown:  "the node is shutting down, so nothing on it is resized",
	NodeDraining:      "the node is being drained, so nothing on it is resized",
	NodePressure:      "the node is short of disk or PIDs, and its kubelet defers every resize until that ends",
	NodeEvicting:      "the node has a NoExecute taint that the pod does not tolerate, so it is about to be evicted",
	AgentSilent:       "the agent of the pod's node has not been heard for a minute, so its decisions are not followed; after five minutes the declared limits are restored",
	ScalersUnknown:    "the controller cannot tell which pods are under an autoscaler, so the pod is not resized",
	RestartedLately:   "a container restarted less than two minutes ago, so the pod is not lowered",
	BudgetSpent:       "the installation's rate of resizes is used up, and this one waits for its turn",
	Contended:         "the pod changed each time it was about to be resized; tried again shortly",
	TookTooLong:       "the kubelet accepted the resize and did not report it as done in time",
	ResizeDeferred:    "the kubelet cannot carry the resize out at present",
	ResizeInfeasible:  "the kubelet says that the resize can never be carried out on this node",
	ResizeErrored:     "the container runtime or the kernel refused the resize",
	QuotaExceeded:     "a ResourceQuota of the namespace has no room for the higher limit",
	QuotaNeedsLimits:  "a ResourceQuota of the namespace wants limits on every container of the pod",
	LimitRangeRefused: "a LimitRange of the namespace does not allow the pod as it would be",
	WouldMutate:       "admission would change more of the pod than its CPU limits, so it is left alone",
	NodeRefused:       "the node cannot take the resize",
	PolicyRefused:     "an admission policy or webhook refused the resize",
	Invalid:           "the API server calls the resize invalid",
	ServerUnavailable: "the API server could not take the resize just now",
	OutcomeUnknown:    "the answer of the API server was lost; the pod is read again first",
	DeclaredUnknown:   "the record of the declared limits is lost and cannot be recovered, so the pod is left alone; recreate the pod to manage it again",
}

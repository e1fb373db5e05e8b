// Package reasons is the list of words in status.reason of a PodAllocation, in events and in
// metric labels. They are API: users script against them, and docs/reasons.md explains each.
// The package knows no Kubernetes type, so that pure packages can use it.
package reasons

// Reason is one CamelCase word that says why a pod's limits are what they are.
type Reason string

// Reasons of the planner, package actuator.
const (
	Settled             Reason = "Settled"
	WithinDeadBand      Reason = "WithinDeadBand"
	CoolingDown         Reason = "CoolingDown"
	ResizeInFlight      Reason = "ResizeInFlight"
	BackingOff          Reason = "BackingOff"
	WaitingForDecreases Reason = "WaitingForDecreases"
	NoDecisionYet       Reason = "NoDecisionYet"
	DecisionTooOld      Reason = "DecisionTooOld"
	StepLimited         Reason = "StepLimited"
)

// Reasons why a limit is not decreased, or not increased for now.
const (
	PodNotReady            Reason = "PodNotReady"
	PodStarting            Reason = "PodStarting"
	RecentlyRestarted      Reason = "RecentlyRestarted"
	ScaledByHPA            Reason = "ScaledByHPA"
	NoDisruptionAllowed    Reason = "NoDisruptionAllowed"
	UnhealthyAfterDecrease Reason = "UnhealthyAfterDecrease"
	ContainerNotRunning    Reason = "ContainerNotRunning"
	StartFailed            Reason = "StartFailed"
	PodQuotaDiffers        Reason = "PodQuotaDiffers"
	WaitingForQuota        Reason = "WaitingForQuota"
	StartupBoost           Reason = "StartupBoost"
	InvalidStartupBoost    Reason = "InvalidStartupBoost"
)

// Reasons why a pod is not managed, from what its owner chose to what the platform cannot do.
const (
	SystemNamespace   Reason = "SystemNamespace"
	NamespaceOff      Reason = "NamespaceOff"
	OptedOut          Reason = "OptedOut"
	InvalidAnnotation Reason = "InvalidAnnotation"
	ManagedByVPA      Reason = "ManagedByVPA"
	NotRunning        Reason = "NotRunning"
	StaticPod         Reason = "StaticPod"
	WindowsPod        Reason = "WindowsPod"
	GuaranteedQoS     Reason = "GuaranteedQoS"
	BestEffortQoS     Reason = "BestEffortQoS"
	PodLevelResources Reason = "PodLevelResources"
	RuntimeClass      Reason = "RuntimeClass"
	NoCPULimit        Reason = "NoCPULimit"
	ResizeRestarts    Reason = "ResizeRestarts"
	NodeCannotResize  Reason = "NodeCannotResize"
	PodTooLarge       Reason = "PodTooLarge"
)

// Reasons why the controller leaves a managed pod, a node or the installation alone.
const (
	Recommending           Reason = "Recommending"
	Restoring              Reason = "Restoring"
	Unmanaging             Reason = "Unmanaging"
	Paused                 Reason = "Paused"
	CRDNotInstalled        Reason = "CRDNotInstalled"
	ResizeNotServed        Reason = "ResizeNotServed"
	PermissionMissing      Reason = "PermissionMissing"
	ServerUnavailable      Reason = "ServerUnavailable"
	AutoscalerLookupFailed Reason = "AutoscalerLookupFailed"
	DeclaredLimitUnknown   Reason = "DeclaredLimitUnknown"
	LimitsNotRecorded      Reason = "LimitsNotRecorded"
	NotPublished           Reason = "NotPublished"
	ExternalChange         Reason = "ExternalChange"
	ConflictingWriter      Reason = "ConflictingWriter"
	AgentUnresponsive      Reason = "AgentUnresponsive"
	AgentsUnresponsive     Reason = "AgentsUnresponsive"
	NodeUnknown            Reason = "NodeUnknown"
	NodeNotReady           Reason = "NodeNotReady"
	NodeShuttingDown       Reason = "NodeShuttingDown"
	NodeDraining           Reason = "NodeDraining"
	NodeUnderPressure      Reason = "NodeUnderPressure"
	NodeEvicting           Reason = "NodeEvicting"
	RateLimited            Reason = "RateLimited"
)

// Reasons that say how a resize failed.
const (
	WriteConflict        Reason = "WriteConflict"
	OutcomeUnknown       Reason = "OutcomeUnknown"
	ResizeTimedOut       Reason = "ResizeTimedOut"
	ResizeDeferred       Reason = "ResizeDeferred"
	ResizeInfeasible     Reason = "ResizeInfeasible"
	ResizeError          Reason = "ResizeError"
	QuotaExceeded        Reason = "QuotaExceeded"
	QuotaNeedsLimits     Reason = "QuotaNeedsLimits"
	LimitRangeRefused    Reason = "LimitRangeRefused"
	AdmissionWouldMutate Reason = "AdmissionWouldMutate"
	NodeRefused          Reason = "NodeRefused"
	PolicyRefused        Reason = "PolicyRefused"
	InvalidResize        Reason = "InvalidResize"
)

// Sentence explains the reason to the owner of the pod, without a capital or a full stop.
func (r Reason) Sentence() string {
	for _, e := range explained {
		if e.reason == r {
			return e.sentence
		}
	}
	return "reason " + string(r)
}

// All lists every reason, in the order of their groups.
func All() []Reason {
	all := make([]Reason, len(explained))
	for i, e := range explained {
		all[i] = e.reason
	}
	return all
}

// explained are all reasons with their sentences, in the order of their groups.
var explained = []struct {
	reason   Reason
	sentence string
}{
	{Settled, "the CPU limits are as decided"},
	{WithinDeadBand, "the change is smaller than the dead band, so it is not worth a resize"},
	{CoolingDown, "the limits changed a moment ago; the next change waits for the cooldown"},
	{ResizeInFlight, "the kubelet has not carried out the last resize yet"},
	{BackingOff, "the last resize was refused or failed; it will be tried again later"},
	{WaitingForDecreases, "the node is full: other pods are lowered before this one is raised"},
	{NoDecisionYet, "the node's agent has not decided yet; it samples a new pod for some seconds first"},
	{DecisionTooOld, "the decision is too old to act on, and the node's agent has not confirmed it since"},
	{StepLimited, "the limit changes in steps, and this step is not the last"},

	{PodNotReady, "a pod that is not Ready is not lowered below its declared limit"},
	{PodStarting, "within its start-up grace a pod is not lowered below its declared limit"},
	{RecentlyRestarted, "a container restarted less than two minutes ago, so the pod is not lowered below its declared limit"},
	{ScaledByHPA, "a HorizontalPodAutoscaler scales the pod by its CPU usage, so the pod is not lowered below its declared limit"},
	{NoDisruptionAllowed, "a PodDisruptionBudget allows no disruption, so the pod is not lowered below its declared limit"},
	{UnhealthyAfterDecrease, "the pod became not Ready or restarted right after a decrease; its limits from before are restored, up to the declared ones, as far as bounds and quotas allow, and the pod keeps at least its declared limit for a day"},
	{ContainerNotRunning, "a container does not run; its limit is raised once it does, as it might never start with a higher one"},
	{StartFailed, "a container could not start after a limit of the pod was raised; a limit changes so that it can"},
	{PodQuotaDiffers, "the CPU quota of the pod's cgroup is not the one of its limits; where MBCAS wrote a limit of the pod, it repairs that"},
	{WaitingForQuota, "a ResourceQuota of the namespace has no room; the increase waits until it has"},
	{StartupBoost, "the pod starts, and until it is Ready its limit is at least the declared one times its start-up boost"},
	{InvalidStartupBoost, "the start-up boost is not a factor above 1 and up to 10, so the pod starts with its declared limit"},

	{SystemNamespace, "pods of system namespaces are not managed"},
	{NamespaceOff, "the namespace is labelled mbcas.io/mode=off"},
	{OptedOut, "the pod is marked mbcas.io/managed=false"},
	{InvalidAnnotation, "an mbcas.io annotation cannot be parsed, so the pod is not managed until it is corrected"},
	{ManagedByVPA, "a VerticalPodAutoscaler writes the pod's CPU requests and limits"},
	{NotRunning, "the pod is not running"},
	{StaticPod, "static pods cannot be resized"},
	{WindowsPod, "Windows pods cannot be resized"},
	{GuaranteedQoS, "the pod is Guaranteed: changing its limit alone would change its QoS class, which Kubernetes refuses"},
	{BestEffortQoS, "the pod is BestEffort: it has no CPU limit, and a limit once added cannot be removed"},
	{PodLevelResources, "the pod sets pod-level resources, which are not supported"},
	{RuntimeClass, "the pod has a runtimeClassName, and such runtimes may ignore a changed limit"},
	{NoCPULimit, "no container has a CPU limit, and a limit once added cannot be removed"},
	{ResizeRestarts, "a container's resizePolicy restarts it when its CPU changes"},
	{NodeCannotResize, "the node's kubelet does not report container resources, so it cannot resize"},
	{PodTooLarge, "the pod has CPU limits of 100,000 cores or more, or more than 64 containers with one"},

	{Recommending, "the namespace is in recommend mode: decisions are recorded and not carried out"},
	{Restoring, "the namespace is in restore mode: pods return to their declared limits and stay there"},
	{Unmanaging, "the pod is no longer managed: it returns to its declared limits, then this object is deleted"},
	{Paused, "MBCAS is paused in the whole cluster (ConfigMap mbcas, key paused)"},
	{CRDNotInstalled, "the PodAllocation API is not served; install the CRD again"},
	{ResizeNotServed, "this API server does not serve pods/resize; Kubernetes 1.33 or later is needed"},
	{PermissionMissing, "the controller may not patch pods/resize; check its ClusterRole and binding"},
	{ServerUnavailable, "the API server could not take the resize; it will be tried again"},
	{AutoscalerLookupFailed, "the controller cannot tell which pods are under an autoscaler, so the pod is not resized"},
	{DeclaredLimitUnknown, "the record of the declared limits is lost and cannot be recovered; recreate the pod to manage it again"},
	{LimitsNotRecorded, "the declared limits cannot be recorded at present, so the pod is not resized; it will be tried again"},
	{NotPublished, "the API server refuses what the controller publishes about the pod, or the NodeAllocation is full; a lowered limit goes back to the declared one, and the controller's log says why"},
	{ExternalChange, "another client changed the limits; they are the new declared limits, and the pod is not resized for a while"},
	{ConflictingWriter, "another client changed the limits twice within an hour; the pod is not resized for a day"},
	{AgentUnresponsive, "the node's agent has not renewed its Lease for a minute, so its decisions are not applied; after five minutes the declared limits are restored in steps"},
	{AgentsUnresponsive, "more than a third of the agents are unresponsive, so the cause is likely not theirs: limits stay as they are, and no node is restored because of its agent"},
	{NodeUnknown, "the API server has no Node object of the pod's node, so nothing on it is resized"},
	{NodeNotReady, "the node is not Ready, so nothing on it is resized"},
	{NodeShuttingDown, "the node is shutting down, so nothing on it is resized"},
	{NodeDraining, "the node is being drained, so nothing on it is resized"},
	{NodeUnderPressure, "the node is short of disk or PIDs, and its kubelet defers every resize until that ends"},
	{NodeEvicting, "the node has a NoExecute taint that the pod does not tolerate, so the pod will be evicted"},
	{RateLimited, "the installation's rate of resizes is used up; the resize waits for its turn"},

	{WriteConflict, "the pod changed during each attempt to resize it; it will be tried again"},
	{OutcomeUnknown, "the API server did not answer the resize; the pod is read again first"},
	{ResizeTimedOut, "the kubelet accepted the resize and did not report it as done in time"},
	{ResizeDeferred, "the kubelet cannot carry out the resize at present"},
	{ResizeInfeasible, "the kubelet says that this node can never carry out the resize"},
	{ResizeError, "the container runtime or the kernel refused the resize"},
	{QuotaExceeded, "a ResourceQuota of the namespace has no room for the higher limit"},
	{QuotaNeedsLimits, "a ResourceQuota of the namespace requires limits on every container of the pod"},
	{LimitRangeRefused, "a LimitRange of the namespace does not allow the new limits"},
	{AdmissionWouldMutate, "admission would change more of the pod than its CPU limits, so the pod is not resized"},
	{NodeRefused, "the node cannot take the resize"},
	{PolicyRefused, "an admission policy or webhook refused the resize"},
	{InvalidResize, "the API server calls the resize invalid"},
}

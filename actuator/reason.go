package actuator

// Reason is one CamelCase word that says why a pod is not moved, or not moved all the way. A
// caller may pass words of its own in Pod.NoDecrease.
type Reason string

// Reasons of a plan.
const (
	// Settled: the limits are the desired ones.
	Settled Reason = "Settled"
	// WithinDeadBand: the change is too small to be worth a resize.
	WithinDeadBand Reason = "WithinDeadBand"
	// CoolingDown: the last change in this direction is too recent.
	CoolingDown Reason = "CoolingDown"
	// ResizeInFlight: the kubelet has not finished the last resize.
	ResizeInFlight Reason = "ResizeInFlight"
	// BackingOff: the last resize failed, and RetryAt is not reached.
	BackingOff Reason = "BackingOff"
	// WaitingForDecreases: the node is full, and other pods are lowered first.
	WaitingForDecreases Reason = "WaitingForDecreases"
	// NoDecisionYet: no limit is desired.
	NoDecisionYet Reason = "NoDecisionYet"
	// DecisionTooOld: the decision is stale and must be confirmed before a move.
	DecisionTooOld Reason = "DecisionTooOld"
	// StepLimited: the change takes several steps, of which this move or the next one is not the last.
	StepLimited Reason = "StepLimited"
)

package idleclass

import "github.com/mbcas/mbcas/api/v1alpha1/reasons"

// Class says what holds a pod down in a round: the idle class, its weight, or its limit alone, and why. Recordings hold
// its number, so new ones come last.
type Class uint8

const (
	NoClass        Class = iota // weights are not allowed, no agent writes them, or nothing was decided yet
	Idle                        // in the idle class
	Weighted                    // its weight
	PartlyLimited               // its weight; a container has no limit, so the pod never enters the idle class
	BelowGuarantee              // weight and limit, as its request guarantees more than the idle class leaves
	LeftToLimits                // weight and limit, as it saturates and cannot enter the idle class
	KeptOut                     // its limit: the controller does not allow weights of the pod
	Refused                     // its limit: mbcas-weights refuses it
	Unavailable                 // its limit: mbcas-weights does not answer
	Quiet                       // a small weight, as it uses next to no CPU
	OnProbation                 // a small weight, until it is known whether it saturates
)

// Names of classes, as users read them.
const (
	NameIdle, NameWeighted, NameLimited = "idle", "weighted", "limited"
)

// String is "idle", "weighted" or "limited"; "" for NoClass.
func (c Class) String() string {
	switch c {
	case NoClass:
		return ""
	case Idle:
		return NameIdle
	case Weighted, PartlyLimited, Quiet, OnProbation:
		return NameWeighted
	}
	return NameLimited
}

// Reason is why the pod is not in a better class; "" where there is none, or where the class does not tell.
func (c Class) Reason() reasons.Reason {
	switch c {
	case PartlyLimited:
		return reasons.PartlyLimited
	case BelowGuarantee:
		return reasons.BelowGuarantee
	case LeftToLimits:
		return reasons.LeftToLimits
	case Quiet:
		return reasons.Quiet
	case OnProbation:
		return reasons.OnProbation
	case Unavailable:
		return reasons.WeightsUnavailable
	}
	return ""
}

// Words are the class and its reason as a sentence about the past.
func (c Class) Words() string {
	words := map[string]string{
		NameIdle:     "idle. It ran when no other pod demanded the CPU.",
		NameWeighted: "weighted. Its weight held it to what its budget bought, and its limit did not cap it.",
		NameLimited:  "limited. Its namespace allowed weights, and its limit might cap it.",
	}[c.String()]
	why := ""
	switch {
	case c == Quiet, c == OnProbation:
		return "weighted, with a small weight: " + c.Reason().Sentence() + " (" + string(c.Reason()) + "). Its limit did not cap it."
	case c.Reason() != "":
		why = " Why no better one: " + c.Reason().Sentence() + " (" + string(c.Reason()) + ")."
	case c == KeptOut:
		why = " The controller kept class and weight from it."
	case c == Refused:
		why = " mbcas-weights refused it."
	}
	return words + why
}

// class is that of a pod after a decision.
func (p *pod) class(cfg Config) Class {
	switch {
	case p.idle:
		return Idle
	case p.heldOff && p.fellShort:
		return BelowGuarantee
	case p.heldOff:
		return LeftToLimits
	case p.probation > 0 && p.quietFor >= cfg.QuietAfter:
		return Quiet
	case p.probation > 0:
		return OnProbation
	case !p.limited:
		return PartlyLimited
	}
	return Weighted
}

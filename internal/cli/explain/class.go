package explain

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// class says what holds the pod down where its namespace allows weights, and why it is in no better class. The agent
// knows the class, which may change within seconds; the controller tells why it keeps a pod out.
func class(s Subject) string {
	c, f := s.Row.Constraints, s.Row.Figures
	if f == nil || f.Class == "" && (c == nil || !c.AllowWeights && c.WeightsReason == "") {
		return ""
	}
	name, why := f.Class, f.ClassReason
	if name == "" {
		why = c.WeightsReason
	}
	because := ""
	if why != "" {
		because = fmt.Sprintf(" Why no better one: %s (%s).", classReason(why), why)
	}
	switch name {
	case "idle":
		return "Class: idle. The pod saturates, so it runs when no other pod demands the CPU, " +
			"and its limit does not cap it." + because
	case "weighted":
		if r := reasons.Reason(why); r == reasons.Quiet || r == reasons.OnProbation {
			return fmt.Sprintf("Class: weighted, with a small weight: %s (%s). Its limit does not cap it.", r.Sentence(), r)
		}
		return "Class: weighted. Under contention its weight holds it to what its budget buys, " +
			"and its limit does not cap it." + because
	case "":
		if why == "" {
			return "Class: not known. The namespace allows weights; the agent of the node did not answer, " +
				"or runs without mbcas-weights."
		}
	}
	return "Class: limited. The namespace allows weights, and the limit may cap the pod." + because
}

// classReason is the reason in words.
func classReason(why string) string {
	if slices.Contains(reasons.All(), reasons.Reason(why)) {
		return reasons.Reason(why).Sentence()
	}
	return "mbcas-weights refuses the pod"
}

package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// maxSignals is how many DemandSignals a sentence names.
const maxSignals = 3

// ConstraintWords are the constraints of a pod in a table: a word for each kind of source.
func ConstraintWords(c *v1alpha1.Constraints) string {
	if c == nil {
		return ""
	}
	by := c.FloorBy + " " + c.CeilingBy
	var words []string
	for _, source := range []struct {
		word    string
		applies bool
	}{
		{"hpa", strings.Contains(by, "HorizontalPodAutoscaler/") || c.NoDecrease == string(reasons.ScaledByHPA)},
		{"declared", strings.Contains(by, "Namespace/")},
		{"limitrange", strings.Contains(by, "LimitRange/")},
		{"quota", strings.Contains(by, "ResourceQuota/") || c.IncreaseOnNeed},
		{"pdb", c.NoDecrease == string(reasons.NoDisruptionAllowed)},
		{"rollback", c.NoDecrease == string(reasons.UnhealthyAfterDecrease)},
		{"coordination", c.CoordinationPercent != nil && *c.CoordinationPercent != 100},
		{"signal", c.DemandPercent != nil && *c.DemandPercent != 100},
	} {
		if source.applies {
			words = append(words, source.word)
		}
	}
	return strings.Join(words, ",")
}

// constraintSentences say which objects constrain the pod's limit, and how.
func constraintSentences(s Subject) string {
	c := s.Row.Constraints
	if c == nil {
		return ""
	}
	var text []string
	several := len(s.Allocation.Status.DeclaredLimits) > 1
	floors := amounts(c.Containers, nil, several, func(c v1alpha1.ContainerConstraints) *cpu.Milli { return c.Floor })
	if c.FloorBy != "" && floors != "" {
		text = append(text, fmt.Sprintf("%s a floor of %s.", subjectAndVerb(c.FloorBy, "set"), floors))
	}
	ceilings := amounts(c.Containers, c.Ceiling, several,
		func(c v1alpha1.ContainerConstraints) *cpu.Milli { return c.Ceiling })
	if c.CeilingBy != "" && ceilings != "" {
		text = append(text, fmt.Sprintf("%s a ceiling of %s.", subjectAndVerb(c.CeilingBy, "set"), ceilings))
	}
	if c.IncreaseOnNeed {
		text = append(text, "Its ResourceQuota is nearly used up, so its limit increases only when it is "+
			"throttled or uses more than half of it.")
	}
	if c.NoDecrease != "" {
		text = append(text, noDecrease(s))
	}
	if p := c.DemandPercent; p != nil {
		text = append(text, demandSignals(c))
	}
	if len(text) == 0 {
		return ""
	}
	return "Constraints: " + strings.Join(text, " ")
}

// noDecrease says why the limit is not decreased, and until when or unless what.
func noDecrease(s Subject) string {
	why := reasons.Reason(s.Row.Constraints.NoDecrease)
	const override = "Its limit is not decreased, because %s (%s). To allow decreases, annotate that with %s=true."
	switch harmed := s.Allocation.Status.Rollback.LastHarmfulDecreaseTime; {
	case why == reasons.ScaledByHPA:
		return fmt.Sprintf(override, "its HorizontalPodAutoscaler scales on CPU usage", why, kube.AllowDecreaseKey)
	case why == reasons.NoDisruptionAllowed:
		return fmt.Sprintf(override, "its PodDisruptionBudget allows no disruption, or has allowed one for less than five minutes", why, kube.AllowDecreaseKey)
	case why == reasons.UnhealthyAfterDecrease && !harmed.IsZero():
		until := "for the controller's --" + kube.RollbackHoldOffFlag
		if hold, ok := s.Settings.Duration(kube.RollbackHoldOffFlag); ok {
			until = "until " + harmed.Add(hold).UTC().Format("2006-01-02 15:04 UTC")
		}
		return fmt.Sprintf("Its limit is not decreased %s, because the pod became not Ready or restarted right "+
			"after a decrease %s ago (%s).",
			until, format.Age(s.Now.Sub(harmed.Time)), why)
	}
	return fmt.Sprintf("Its limit is not decreased: %s (%s).", why.Sentence(), why)
}

// demandSignals says by how much its DemandSignals multiply the demand.
func demandSignals(c *v1alpha1.Constraints) string {
	by := "A DemandSignal multiplies"
	if c.DemandBy != "" {
		by = subjectAndVerb(c.DemandBy, "multiply")
	}
	return fmt.Sprintf("%s its demand by %v.", by, float64(*c.DemandPercent)/100)
}

// Signals names the DemandSignals that raise the demand of pods of a node; "" if there are none.
func Signals(of []snapshot.PodConstraints) string {
	pods, known := 0, map[string]bool{}
	var by []string
	for _, c := range of {
		if c.DemandPercent == nil || *c.DemandPercent <= 100 {
			continue
		}
		pods++
		for _, object := range strings.Split(c.DemandBy, ", ") {
			name := "a DemandSignal of namespace " + c.Namespace
			if _, after, ok := strings.Cut(object, "/"); ok {
				name = "DemandSignal " + c.Namespace + "/" + after
			}
			if name = fmt.Sprintf("%s (%d%%)", name, *c.DemandPercent); !known[name] {
				known[name], by = true, append(by, name)
			}
		}
	}
	if pods == 0 {
		return ""
	}
	slices.Sort(by)
	if len(by) > maxSignals {
		by = append(by[:maxSignals], fmt.Sprintf("%d more", len(by)-maxSignals))
	}
	return fmt.Sprintf("The demand of %s is raised by %s.", format.Plural(pods, "pod"), format.Join(by))
}

// subjectAndVerb is a list "Kind/name, Kind/name" with a verb in the present: "A a and B b set", "A
// a sets".
func subjectAndVerb(by, verb string) string {
	switch {
	case strings.Contains(by, ", "):
	case strings.HasSuffix(verb, "y"):
		verb = strings.TrimSuffix(verb, "y") + "ies"
	default:
		verb += "s"
	}
	return objects(by) + " " + verb
}

// objects writes a list "Kind/name, Kind/name" in words.
func objects(by string) string {
	return format.Join(strings.Split(strings.ReplaceAll(by, "/", " "), ", "))
}

// amounts are the bounds of containers and of the whole pod (nil: none). For a pod with one limit
// it is the lowest.
func amounts(
	list []v1alpha1.ContainerConstraints, whole *cpu.Milli, several bool,
	bound func(v1alpha1.ContainerConstraints) *cpu.Milli,
) string {
	var parts []string
	lowest := cpu.Milli(math.MaxInt64)
	for _, c := range list {
		if b := bound(c); b != nil {
			lowest = min(lowest, *b)
			parts = append(parts, fmt.Sprintf("%v for container %s", *b, c.Name))
		}
	}
	if whole != nil {
		lowest = min(lowest, *whole)
		parts = append(parts, fmt.Sprintf("%v for the pod as a whole", *whole))
	}
	if !several && len(parts) > 0 {
		return lowest.String()
	}
	return format.Join(parts)
}

// floorSource says what sets the floor of the figures; "" if that is the pod's own.
func floorSource(s Subject) string {
	c := ptr.Deref(s.Row.Constraints, v1alpha1.Constraints{})
	decreasing := c
	decreasing.NoDecrease = ""
	own, _ := bounds(s, nil)
	constrained, _ := bounds(s, &decreasing)
	switch floor := s.Row.Figures.Floor; {
	case floor <= own:
		return ""
	case floor <= constrained:
		return "set by " + objects(c.FloorBy)
	case c.NoDecrease != "":
		return "because it is not decreased"
	case s.Row.Declared != nil && floor >= min(*s.Row.Declared, s.Row.Figures.Ceiling).RoundDown(cpu.Quantum):
		return "what its declared limit and request give it"
	}
	return ""
}

// ceilingSource says what sets the ceiling of the figures; "" if that is the node or the pod.
func ceilingSource(s Subject) string {
	c := ptr.Deref(s.Row.Constraints, v1alpha1.Constraints{})
	raise, most := ptr.Deref(c.MaxRaise, demand.DefaultMaxRaise), int32(kube.HighestMaxRaise)
	_, ceiling := bounds(s, &c)
	_, own := bounds(s, &v1alpha1.Constraints{MaxRaise: &raise})
	_, unraised := bounds(s, &v1alpha1.Constraints{MaxRaise: &most})
	switch {
	case s.Row.Figures.Ceiling != ceiling:
		return ""
	case ceiling < own && c.CeilingBy != "":
		return "set by " + objects(c.CeilingBy)
	case ceiling == own && own < unraised:
		return fmt.Sprintf("%d times its declared limit; %s changes that", raise, kube.MaxRaiseKey)
	}
	return ""
}

// bounds are those of the sum of the pod's limits under the constraints, on a node of unlimited
// size.
func bounds(s Subject, c *v1alpha1.Constraints) (floor, ceiling cpu.Milli) {
	const unlimited = cpu.Milli(1e9)
	return constraints.BoundsOf(s.Pod, s.Allocation.Status.DeclaredLimits, unlimited, c).Total()
}

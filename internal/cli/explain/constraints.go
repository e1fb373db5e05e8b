package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// signalSentence says for how many of the pods a DemandSignal raises the demand, and which; "" where none does.
func Signals(allocations []*v1alpha1.PodAllocation) string {
	pods, seen := 0, map[string]bool{}
	var by []string
	for _, pa := range allocations {
		t := pa.Status.Constraints
		if t == nil || t.DemandPercent == nil || *t.DemandPercent <= 100 {
			continue
		}
		pods++
		for _, one := range strings.Split(t.DemandBy, ", ") {
			name := "a DemandSignal of namespace " + pa.Namespace
			if _, after, ok := strings.Cut(one, "/"); ok {
				name = "DemandSignal " + pa.Namespace + "/" + after
			}
			if name = fmt.Sprintf("%s (%d%%)", name, *t.DemandPercent); !seen[name] {
				seen[name], by = true, append(by, name)
			}
		}
	}
	if pods == 0 {
		return ""
	}
	verb := "asks"
	if len(by) > 1 {
		verb = "ask"
	}
	slices.Sort(by)
	if most := 3; len(by) > most {
		by = append(by[:most], fmt.Sprintf("%d more", len(by)-most))
	}
	return fmt.Sprintf("CPU is to be kept free for %s, as %s %s.", format.Plural(pods, "pod"), format.Join(by), verb)
}

// ConstraintWords are the terms of a pod in a table: who asks, in a word each.
func ConstraintWords(t *v1alpha1.Constraints) string {
	if t == nil {
		return ""
	}
	by := t.FloorBy + " " + t.CeilingBy
	var words []string
	for _, w := range []struct {
		word string
		is   bool
	}{
		{"hpa", strings.Contains(by, "HorizontalPodAutoscaler/") || t.NoDecrease == string(reasons.ScaledByHPA)},
		{"limitrange", strings.Contains(by, "LimitRange/")},
		{"quota", strings.Contains(by, "ResourceQuota/") || t.IncreaseOnNeed},
		{"pdb", t.NoDecrease == string(reasons.NoDisruptionAllowed)},
		{"hurt", t.NoDecrease == string(reasons.UnhealthyAfterDecrease)},
		{"fairness", t.CoordinationPercent != nil && *t.CoordinationPercent != 100},
		{"signal", t.DemandPercent != nil && *t.DemandPercent != 100},
	} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ",")
}

// platform says what the platform asks of the pod's limit, and who; "" where it asks nothing.
func (e Explanation) platform(now time.Time) string {
	t := e.Terms
	if t == nil {
		return ""
	}
	var s []string
	several := len(e.of.Allocation.Status.DeclaredLimits) > 1
	if floors := amounts(t.Containers, nil, several, func(c v1alpha1.ContainerConstraints) *cpu.Milli { return c.Floor }); t.FloorBy != "" && floors != "" {
		s = append(s, sets(t.FloorBy, "floor", floors))
	}
	if ceilings := amounts(t.Containers, t.Ceiling, several, func(c v1alpha1.ContainerConstraints) *cpu.Milli { return c.Ceiling }); t.CeilingBy != "" && ceilings != "" {
		s = append(s, sets(t.CeilingBy, "ceiling", ceilings))
	}
	if t.IncreaseOnNeed {
		s = append(s, "Its quota is short and shared with other pods, so it is raised only when its need shows.")
	}
	if t.NoDecrease != "" {
		s = append(s, e.notLowered(now))
	}
	if p := t.DemandPercent; p != nil {
		s = append(s, fmt.Sprintf("Its demand counts %d%%, as %s.", *p, asker(t.DemandBy)))
	}
	if len(s) == 0 {
		return ""
	}
	return "Platform: " + strings.Join(s, " ")
}

// asker is who asks for a demand, as "DemandSignal/name, DemandSignal/name", in a sentence.
func asker(by string) string {
	switch {
	case by == "":
		return "a DemandSignal asks"
	case strings.Contains(by, ", "):
		return whose(by) + " ask"
	}
	return whose(by) + " asks"
}

// notLowered says why the pod is not lowered, and until when, or unless what.
func (e Explanation) notLowered(now time.Time) string {
	why := reasons.Reason(e.Terms.NoDecrease)
	switch hurt := e.of.Allocation.Status.Rollback.LastHarmfulDecreaseTime; {
	case why == reasons.ScaledByHPA:
		return fmt.Sprintf("It is not lowered, because its HorizontalPodAutoscaler looks at its CPU use (%s), unless that is annotated %s=true.", why, kube.AllowDecreaseKey)
	case why == reasons.NoDisruptionAllowed:
		return fmt.Sprintf("It is not lowered, because its PodDisruptionBudget allows no disruption now (%s), unless that is annotated %s=true.", why, kube.AllowDecreaseKey)
	case why == reasons.UnhealthyAfterDecrease && hurt != nil:
		return fmt.Sprintf("It is not lowered until %s, because %s ago it was not Ready, or restarted, right after it was lowered (%s).",
			hurt.Add(kube.RollbackHoldOff).UTC().Format("2006-01-02 15:04 UTC"), format.Age(now.Sub(hurt.Time)), why)
	}
	return fmt.Sprintf("It is not lowered: %s (%s).", why.Sentence(), why)
}

// sets is who sets a bound, as "Kind/name, Kind/name", in a sentence.
func sets(by, what, amounts string) string {
	verb := "sets"
	if strings.Contains(by, ", ") {
		verb = "set"
	}
	return fmt.Sprintf("%s %s a %s of %s.", whose(by), verb, what, amounts)
}

// whose are objects, given as "Kind/name, Kind/name", in words.
func whose(by string) string {
	return format.Join(strings.Split(strings.ReplaceAll(by, "/", " "), ", "))
}

// amounts are the bounds of containers, and that of the pod as a whole; nil: none. A pod of one container has but one limit.
func amounts(containers []v1alpha1.ContainerConstraints, whole *cpu.Milli, several bool, of func(v1alpha1.ContainerConstraints) *cpu.Milli) string {
	var parts []string
	least := cpu.Milli(math.MaxInt64)
	for _, c := range containers {
		if b := of(c); b != nil {
			least = min(least, *b)
			parts = append(parts, fmt.Sprintf("%v for container %s", *b, c.Name))
		}
	}
	if whole != nil {
		least = min(least, *whole)
		parts = append(parts, fmt.Sprintf("%v for the pod as a whole", *whole))
	}
	if !several && len(parts) > 0 {
		return least.String()
	}
	return format.Join(parts)
}

// raisedBy says where the floor of the figures comes from; "" where the platform has no part in it.
func (e Explanation) raisedBy() string {
	t := e.Terms
	if t == nil {
		return ""
	}
	lowerable := *t
	lowerable.NoDecrease = ""
	own, asked := e.within(nil), e.within(&lowerable)
	switch floor := e.Figures.Floor; {
	case floor <= own.floor:
		return ""
	case t.NoDecrease != "" && floor > asked.floor:
		return "because it is not lowered"
	case t.FloorBy != "":
		return "set by " + whose(t.FloorBy)
	}
	return ""
}

// cappedBy says where the ceiling of the figures comes from; "" where the platform has no part in it.
func (e Explanation) cappedBy() string {
	if e.Terms == nil || e.Terms.CeilingBy == "" {
		return ""
	}
	if own, asked := e.within(nil), e.within(e.Terms); asked.ceiling < own.ceiling && e.Figures.Ceiling == asked.ceiling {
		return "set by " + whose(e.Terms.CeilingBy)
	}
	return ""
}

// total is within what the pod's whole limit stays.
type total struct{ floor, ceiling cpu.Milli }

// within are the pod's bounds under the terms on a node of any size.
func (e Explanation) within(t *v1alpha1.Constraints) total {
	const anySize = cpu.Milli(1e9)
	b := constraints.BoundsOf(e.of.Pod, e.of.Allocation.Status.DeclaredLimits, anySize, t)
	var sum total
	for _, c := range b.Containers {
		sum.floor += c.Floor
		sum.ceiling += c.Ceiling
	}
	if b.Ceiling > 0 {
		sum.ceiling = min(sum.ceiling, b.Ceiling)
	}
	return sum
}

// weights say what the budget is made of; "" where the decision does not tell, or where a newer one has other weights.
func (e Explanation) weights() string {
	f := e.Figures
	request, all := cpu.Milli(0), true
	for _, c := range snapshot.RunningContainers(e.of.Pod) {
		if slices.ContainsFunc(e.of.Allocation.Status.DeclaredLimits, func(l v1alpha1.ContainerLimit) bool { return l.Name == c.Name }) {
			request += c.Request
		} else {
			all = all && c.Request == 0
		}
	}
	product, factors := request.Cores()*1000, []string(nil)
	factor := func(percent int32, what string) {
		if percent != 0 && percent != 100 {
			product *= float64(percent) / 100
			factors = append(factors, fmt.Sprintf("%v for %s", float64(percent)/100, what))
		}
	}
	factor(f.PriorityPercent, "its priority")
	factor(f.FairnessPercent, "fairness between nodes")
	if request == 0 || f.PriorityPercent == 0 || math.Abs(product-float64(f.Budget)) > 1 {
		return ""
	}
	what, amount := "its CPU request", fmt.Sprintf(" of %v", request)
	if !all {
		what, amount = "the CPU request of its containers with a limit", fmt.Sprintf(", %v,", request)
	}
	if len(factors) == 0 {
		return fmt.Sprintf(" (%s)", what)
	}
	return fmt.Sprintf(" (%s%s times %s)", what, amount, strings.Join(factors, " and "))
}

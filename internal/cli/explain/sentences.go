package explain

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// eligibility says why the pod is not resized.
func eligibility(s Subject) string {
	reason := s.Row.Reason
	if s.Row.VPA != "" {
		reason = fmt.Sprintf("%s: VerticalPodAutoscaler %s", reason, s.Row.VPA)
	}
	switch {
	case s.Allocation == nil:
		return fmt.Sprintf("MBCAS does not manage this pod: %s (%s).", s.Row.Message, reason)
	case !s.Row.Managed:
		return fmt.Sprintf("MBCAS does not resize this pod now: %s (%s).", s.Row.Message, reason)
	}
	return ""
}

// startupBoost says why the pod has no start-up boost although its owner wants one.
func startupBoost(s Subject) string {
	if s.Allocation == nil {
		return ""
	}
	c := meta.FindStatusCondition(s.Allocation.Status.Conditions, v1alpha1.ConditionStartupBoostValid)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return fmt.Sprintf("Start-up boost: %s (%s).", strings.TrimSuffix(format.OneLine(c.Message), "."), c.Reason)
}

// demanded says what the pod uses and would use without a limit.
func demanded(s Subject) string {
	f := s.Row.Figures
	switch {
	case s.Allocation == nil:
		return ""
	case f == nil:
		return "No decision yet: the agent needs two samples of a new pod, and about 10 seconds of samples after " +
			"its own start."
	}
	when := fmt.Sprintf("%s ago", format.Age(s.Now.Sub(f.At)))
	if !f.Live {
		when = "when last published, " + when
	}
	text := fmt.Sprintf("Demand: its usage was %v (%s), and it was throttled in %d%% of its periods", f.Usage, when,
		f.Throttled)
	if f.Pressure != nil {
		text += fmt.Sprintf(". Some of its tasks waited for a CPU %d%% of the time", *f.Pressure)
	}
	return text + fmt.Sprintf(". Without a limit it would use about %v: %s.", f.Demand, bottlenecks[f.Bottleneck()])
}

var bottlenecks = map[snapshot.Bottleneck]string{
	snapshot.BottleneckNone:   "its limit does not throttle it",
	snapshot.BottleneckStall:  "it waits for memory or IO, and a higher limit does not help",
	snapshot.BottleneckLimit:  "its limit throttles it most of the time",
	snapshot.BottleneckBursts: "its limit throttles its bursts",
	snapshot.BottleneckContention: "it waits for CPUs that other pods or its own threads use, and a higher limit " +
		"does not help",
}

// stalls says for how much of the time all tasks of the pod waited for memory or IO.
func stalls(s Subject) string {
	f := s.Row.Figures
	if f == nil || f.MemoryPressure == nil && f.IOPressure == nil {
		return ""
	}
	var waited []string
	if f.MemoryPressure != nil {
		waited = append(waited, fmt.Sprintf("for memory %d%%", *f.MemoryPressure))
	}
	if f.IOPressure != nil {
		waited = append(waited, fmt.Sprintf("for IO %d%%", *f.IOPressure))
	}
	waited[0] += " of the time"
	text := "Stalls: all its runnable tasks waited " + format.Join(waited) + "."
	switch stalled := f.Stalled(); {
	case stalled >= snapshot.StallDominates:
		return text + " Throttling and CPU pressure therefore do not raise its demand."
	case stalled > snapshot.StallLimits:
		return text + fmt.Sprintf(" More CPU would therefore raise its usage by %d%% at most.", 100*100/stalled-100)
	}
	return text
}

// price says what the price is, why, and what the budget buys at it.
func price(s Subject) string {
	f := s.Row.Figures
	if f == nil {
		return ""
	}
	scarce := f.Price > 0
	why := fmt.Sprintf("the pods of node %s demand no more than its supply", s.Row.Node)
	if scarce {
		why = fmt.Sprintf("the pods of node %s demand more than its supply", s.Row.Node)
	}
	if m := s.Market; m != nil {
		why = fmt.Sprintf("%s, and its supply is %v", NodeDemand(m), m.Supply)
	}
	if signals := Signals(s.NodeConstraints); signals != "" {
		why += ". " + strings.TrimSuffix(signals, ".")
	}
	if !scarce {
		return fmt.Sprintf("Price: 0, because %s. At that price a limit may rise to what the other pods leave, at most to "+
			"the pod's ceiling, here %v.", why, f.Ceiling)
	}
	share := cpu.Milli(math.Round(float64(f.Budget) / float64(f.Price)))
	return fmt.Sprintf("Price: %v, because %s. The pod's budget is %d%s, which buys %v.", f.Price, why, f.Budget,
		multipliers(s), share)
}

// NodeDemand says what the pods of a node demand.
func NodeDemand(m *snapshot.Market) string {
	text := fmt.Sprintf("the pods of node %s demand %v", m.Node, m.Demand)
	if m.SignalDemand > 0 {
		text += fmt.Sprintf(", DemandSignals add %v", m.SignalDemand)
	}
	return text
}

// multipliers say how the request makes the budget; "" if they are unknown, or older than the
// budget.
func multipliers(s Subject) string {
	f := s.Row.Figures
	request, all := cpu.Milli(0), true
	declared := kube.ByName(s.Allocation.Status.DeclaredLimits)
	for _, c := range kube.Containers(s.Pod) {
		if _, limited := declared[c.Spec.Name]; limited {
			request += c.Request()
		} else {
			all = all && c.Request() == 0
		}
	}
	product, factors := request.Cores()*1000, []string(nil)
	multiply := func(percent int32, what string) {
		if percent != 0 && percent != 100 {
			product *= float64(percent) / 100
			factors = append(factors, fmt.Sprintf("%v for %s", float64(percent)/100, what))
		}
	}
	multiply(f.PriorityPercent, "its priority")
	multiply(f.CoordinationPercent, "fairness between nodes")
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

// decision says which limit was decided, and what bounds it.
func decision(s Subject) string {
	f := s.Row.Figures
	if f == nil {
		return ""
	}
	decided := f.Desired
	if decided == 0 && s.Row.Desired != nil {
		decided = *s.Row.Desired
	}
	head := fmt.Sprintf("Decision: a limit of %v", decided)
	if s.Now.Before(f.RevokedUntil) && (f.BoundBy == v1alpha1.BoundByCeiling || f.BoundBy == v1alpha1.BoundByNothing) {
		return fmt.Sprintf("%s, at most the declared one or the floor until %s: other pods needed the CPU that it had above that. "+
			"Then it is raised again on need.", head, f.RevokedUntil.UTC().Format("15:04:05 UTC"))
	}
	switch f.BoundBy {
	case v1alpha1.BoundByPrice:
		return head + ", set by the price: the pod demands more than its budget buys. A larger request or a " +
			"higher PriorityClass buys more; a PriorityClass also affects preemption and eviction."
	case v1alpha1.BoundByFloor:
		if by := floorSource(s); by != "" {
			return fmt.Sprintf("%s, its floor, %s. Its budget buys less.", head, by)
		}
		return head + ", its floor. Its budget buys less, but a limit is at least the request, at least 100m if " +
			"more is declared, at least the smallest quota of the kernel, and four fifths of what its declared limit " +
			"and request give a pod that takes all the CPU it can get."
	case v1alpha1.BoundByCeiling:
		if by := ceilingSource(s); by != "" {
			return fmt.Sprintf("%s, its ceiling, %s.", head, by)
		}
		return fmt.Sprintf("%s, its ceiling: the node's allocatable CPU, a multiple of the declared limit (%s) or the pod's "+
			"%s, whichever is lowest.", head, kube.MaxRaiseKey, kube.MaxCPUKey)
	}
	return head + ". Neither price nor bounds restrict it: the pod demands less. " +
		"It rises when the pod is throttled or uses more than half of it."
}

func floorsExceedSupply(s Subject) string {
	if s.Row.Figures == nil || !s.Row.Figures.FloorsExceedSupply {
		return ""
	}
	return fmt.Sprintf("The floors of the pods of node %s add up to more than its supply, so its market cannot "+
		"divide anything. Lower requests or move pods.", s.Row.Node)
}

func lastChange(s Subject) string {
	if s.Allocation == nil {
		return ""
	}
	st := s.Allocation.Status
	text := "Last change: none by MBCAS."
	if t := st.LastAppliedTime; !t.IsZero() {
		text = fmt.Sprintf("Last change: %s ago", format.Age(s.Now.Sub(t.Time)))
		if st.AppliedCPULimit != nil {
			text += fmt.Sprintf(", to %v", *st.AppliedCPULimit)
		}
		text += "."
	}
	if len(st.DeclaredLimits) > 0 {
		text += fmt.Sprintf(" Declared limit: %v.", kube.Total(st.DeclaredLimits))
	}
	return text
}

// state is the phase of the allocation, and when the controller tries again.
func state(s Subject) string {
	if s.Allocation == nil || !s.Row.Managed {
		return ""
	}
	st := s.Allocation.Status
	if a := st.AppliedLimits; len(a) > 0 && !kube.SameLimits(a, kube.Limits(s.Pod)) {
		return "State: the pod's limits have just changed, and its status does not show it yet. Try again in some " +
			"seconds."
	}
	if st.Phase == "" {
		return "State: the controller has not handled this decision yet."
	}
	why := st.Message
	if why == "" {
		why = reasons.Reason(st.Reason).Sentence()
	}
	text := fmt.Sprintf("State: %s (%s): %s.", st.Phase, st.Reason, strings.TrimSuffix(format.OneLine(why), "."))
	if t := st.Retry.Time; t.After(s.Now) {
		text += fmt.Sprintf(" Next: the controller tries again in %s", format.Age(t.Sub(s.Now)))
		if st.Retry.Failures > 0 {
			text += fmt.Sprintf(", after %s in a row", format.Plural(int(st.Retry.Failures), "failure"))
		}
		text += "."
	}
	return text
}

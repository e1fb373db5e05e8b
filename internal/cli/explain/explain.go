// Package explain writes sentences about the CPU limit of a pod. It is pure: the same snapshot gives the same text.
package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// Explanation is all that explain knows of a pod, and what it says about it.
type Explanation struct {
	snapshot.Row
	Sentences []string `json:"sentences"`
	Notes     []string `json:"notes,omitempty"`

	of Subject
}

// subject is what an explanation is derived from.
type Subject struct {
	Pod             *corev1.Pod
	Allocation      *v1alpha1.PodAllocation   // nil: none
	Market          *snapshot.Market          // of its node; nil: unknown
	NodeAllocations []*v1alpha1.PodAllocation // all of its node, as far as they can be read
}

// explain writes the sentences about a pod at a time.
func Pod(row snapshot.Row, s Subject, notes []string, now time.Time) Explanation {
	e := Explanation{Row: row, Notes: notes, of: s}
	e.Sentences = e.sentences(now)
	return e
}

func (e Explanation) Text(now time.Time) string {
	var b strings.Builder
	node := ""
	if e.Node != "" {
		node = ", node " + e.Node
	}
	fmt.Fprintf(&b, "Pod %s/%s%s, mode %s\n\n", e.Namespace, e.Pod, node, format.ModeWord(e.Mode))
	b.WriteString(e.containers().String())
	b.WriteByte('\n')
	for _, s := range e.Sentences {
		b.WriteString(format.Wrap(s, 100))
	}
	for _, n := range e.Notes {
		b.WriteString(format.Wrap("Note: "+n, 100))
	}
	return b.String()
}

// containers shows each container's CPU as declared, decided and in force.
func (e Explanation) containers() *format.Table {
	t := &format.Table{Header: []string{"CONTAINER", "REQUEST", "DECLARED", "LIMIT", "IN-FORCE", "DECIDED"}}
	var decided map[string]cpu.Milli
	if e.Figures != nil {
		decided = e.Figures.Containers
	}
	declared := map[string]cpu.Milli{}
	if e.of.Allocation != nil {
		for _, l := range e.of.Allocation.Status.DeclaredLimits {
			declared[l.Name] = l.CPULimit
		}
	}
	for _, c := range snapshot.RunningContainers(e.of.Pod) {
		limit := "none"
		if c.Limit > 0 {
			limit = c.Limit.String()
		}
		t.Add(c.Name, format.Amount(c.Request), format.Amount(declared[c.Name]), limit, format.Amount(snapshot.InForce(e.of.Pod, c.Name)), format.Amount(decided[c.Name]))
	}
	return t
}

// sentences are the explanation in the order in which the limit comes about: wish, price, bounds, deed, next.
func (e Explanation) sentences(now time.Time) []string {
	if e.of.Allocation == nil {
		return []string{fmt.Sprintf("MBCAS does not manage this pod: %s (%s).", e.Message, e.unfit())}
	}
	var s []string
	if !e.Managed {
		s = append(s, fmt.Sprintf("MBCAS does not resize this pod now: %s (%s).", e.Message, e.unfit()))
	}
	f := e.Figures
	if f != nil {
		s = append(s, wish(e.Row, now))
		if f.MemoryPressure != nil || f.IOPressure != nil {
			s = append(s, stalls(f))
		}
		s = append(s, e.bought())
	} else {
		s = append(s, "Nothing is decided yet: the agent has to see a new pod twice, and watches the node for about 10 seconds when it starts itself.")
	}
	if p := e.platform(now); p != "" {
		s = append(s, p)
	}
	if f != nil {
		s = append(s, e.verdict())
		if f.FloorsExceedSupply {
			s = append(s, fmt.Sprintf("Even the least that the pods of node %s may be given is more than it has, so the market has no room there. Lower requests or move pods.", e.Node))
		}
	}
	s = append(s, deed(e.of.Allocation, now))
	if e.Managed {
		if n := next(e, now); n != "" {
			s = append(s, n)
		}
	}
	return s
}

// unfit is the reason not to resize the pod, with the VerticalPodAutoscaler to which it is left.
func (e Explanation) unfit() string {
	if e.VPA == "" {
		return e.Reason
	}
	return fmt.Sprintf("%s: VerticalPodAutoscaler %s", e.Reason, e.VPA)
}

// wish says what the pod uses and would use.
func wish(s snapshot.Row, now time.Time) string {
	f := s.Figures
	when := fmt.Sprintf("%s ago", format.Age(now.Sub(f.At)))
	if !f.Live {
		when = fmt.Sprintf("when last published, %s ago", format.Age(now.Sub(f.At)))
	}
	text := fmt.Sprintf("Wish: it used %v (%s), was throttled in %d%% of its periods", f.Usage, when, f.Throttled)
	if f.Pressure != nil {
		text += fmt.Sprintf(", and had tasks waiting for a CPU %d%% of the time", *f.Pressure)
	}
	return text + fmt.Sprintf(". Unhindered it would use about %v: %s.", f.Demand, wishReading(f))
}

func wishReading(f *snapshot.Figures) string {
	switch f.Bottleneck() {
	case snapshot.BottleneckStall:
		return "it waits for memory or IO, and a higher limit would not help"
	case snapshot.BottleneckLimit:
		return "it is held back by its limit"
	case snapshot.BottleneckBursts:
		return "its bursts touch the limit, its mean does not"
	case snapshot.BottleneckContention:
		return "it waits for CPUs that others use, or for its own threads, and a higher limit would not help"
	case snapshot.BottleneckNone:
	}
	return "its limit is no hindrance"
}

// stalls says for how much of the time nothing of the pod went on for want of other things than a CPU.
func stalls(f *snapshot.Figures) string {
	var waited []string
	if f.MemoryPressure != nil {
		waited = append(waited, fmt.Sprintf("for memory %d%%", *f.MemoryPressure))
	}
	if f.IOPressure != nil {
		waited = append(waited, fmt.Sprintf("for IO %d%%", *f.IOPressure))
	}
	waited[0] += " of the time"
	text := "Stalls: all of it that was awake waited " + strings.Join(waited, ", and ") + "."
	switch s := f.Stalled(); {
	case s >= snapshot.StallDominates:
		return text + " That it is throttled, or waits for a CPU, is not taken for need."
	case s > snapshot.StallLimits:
		return text + fmt.Sprintf(" So with more CPU it could use %d%% more at most.", 100*100/s-100)
	}
	return text
}

// bought says what the price is, why, and what the budget buys at it.
func (e Explanation) bought() string {
	f := e.Figures
	if free(f.Price) {
		why := fmt.Sprintf("because what the pods of node %s want fits into what its market has", e.Node)
		if m := e.of.Market; m != nil {
			why = fmt.Sprintf("because %s, and its market has %v", NodeDemand(m), m.Supply)
		}
		return fmt.Sprintf("Price: 0, %s.%s At that price every pod may have its ceiling, here %v.", why, e.counted(), f.Ceiling)
	}
	why := fmt.Sprintf("because the pods of node %s want more than its market has", e.Node)
	if m := e.of.Market; m != nil {
		why = fmt.Sprintf("because %s, and its market has only %v", NodeDemand(m), m.Supply)
	}
	return fmt.Sprintf("Price: %s, %s.%s The pod's budget is %d%s, which buys %v.", f.Price, why, e.counted(), f.Budget, e.weights(), share(f))
}

// demandOfNode is what the pods of the node want, and what is to be kept free for them.
func NodeDemand(m *snapshot.Market) string {
	text := fmt.Sprintf("the pods of node %s want %v", m.Node, m.Demand)
	if m.Asked > 0 {
		text += fmt.Sprintf(", %v more are to be kept free for those that ask for it", m.Asked)
	}
	return text
}

// counted is what the wants of the node's pods count beyond what they would use, as a sentence that follows another.
func (e Explanation) counted() string {
	if s := Signals(e.of.NodeAllocations); s != "" {
		return " " + s
	}
	return ""
}

func free(price string) bool { return strings.Trim(price, "0.") == "" }

// share is what the budget buys at the price.
func share(f *snapshot.Figures) cpu.Milli {
	p, err := strconv.ParseFloat(f.Price, 64)
	if err != nil || p <= 0 {
		return f.Ceiling
	}
	return cpu.Milli(math.Round(float64(f.Budget) / p))
}

// verdict says what holds the limit.
func (e Explanation) verdict() string {
	f := e.Figures
	decided := f.Desired
	if decided == 0 && e.Desired != nil {
		decided = *e.Desired
	}
	head := fmt.Sprintf("Decision: a limit of %v", decided)
	switch f.BoundBy {
	case v1alpha1.BoundByPrice:
		return fmt.Sprintf("%s. The price binds: the pod would use more than its budget buys. A larger request or a higher PriorityClass would buy more.", head)
	case v1alpha1.BoundByFloor:
		if by := e.raisedBy(); by != "" {
			return fmt.Sprintf("%s, its floor, %s. Its budget buys less.", head, by)
		}
		return fmt.Sprintf("%s, its floor. Its budget buys less, but no limit goes below the request, below 100m where more is declared, or below the least quota that its kernel takes.", head)
	case v1alpha1.BoundByCeiling:
		if by := e.cappedBy(); by != "" {
			return fmt.Sprintf("%s, its ceiling, %s.", head, by)
		}
		return fmt.Sprintf("%s, its ceiling: no limit goes above what the node has to give or the pod's own %s.", head, kube.MaxCPUKey)
	}
	return fmt.Sprintf("%s. Nothing binds: what the pod wants fits below it.", head)
}

// deed says what was done about the decision.
func deed(pa *v1alpha1.PodAllocation, now time.Time) string {
	text := "Last change: none by MBCAS."
	if t := pa.Status.LastAppliedTime; t != nil {
		text = fmt.Sprintf("Last change: %s ago", format.Age(now.Sub(t.Time)))
		if pa.Status.AppliedCPULimit != nil {
			text += fmt.Sprintf(", to %v", *pa.Status.AppliedCPULimit)
		}
		text += "."
	}
	if len(pa.Status.DeclaredLimits) > 0 {
		text += fmt.Sprintf(" Declared by its owner: %v.", kube.Total(pa.Status.DeclaredLimits))
	}
	return text
}

// next says where the allocation stands and what comes next.
func next(e Explanation, now time.Time) string {
	st := e.of.Allocation.Status
	if a := st.AppliedLimits; len(a) > 0 && !kube.SameLimits(a, kube.Limits(e.of.Pod)) {
		return "State: the pod's limits have just changed, and its record does not show it yet. Ask again in some seconds."
	}
	if st.Phase == "" {
		return "Next: the controller has not looked at this decision yet."
	}
	why := st.Message
	if why == "" {
		why = reasons.Reason(st.Reason).Sentence()
	}
	text := fmt.Sprintf("State: %s (%s): %s.", st.Phase, st.Reason, strings.TrimSuffix(format.OneLine(why), "."))
	if t := st.Retry.Time; t != nil && t.After(now) {
		text += fmt.Sprintf(" Next: looked at again in %s", format.Age(t.Sub(now)))
		if st.Retry.Failures > 0 {
			text += fmt.Sprintf(", after %s in a row", format.Plural(int(st.Retry.Failures), "failure"))
		}
		text += "."
	}
	return text
}

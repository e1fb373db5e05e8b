// Package benefit counts what MBCAS brings and costs, from the rounds of a recording: what limits delayed and denied, which
// is measured; what enforcing the decided limits would have avoided of it, which is an estimate where they are only
// recommended; and what it has avoided, where they are enforced.
//
// Promises:
//   - Figures add up what the counters say, per pod: TestFigures.
//   - The delay that a declared limit causes is the same, measured at that limit or computed from the usage above it: TestQueue.
//   - Where the limit of a container is what delays its work, the estimate of a load is within 25 % of what the same load shows
//     where limits are enforced: TestEstimateIsNear, TestEstimateOfDrawnLoads.
//   - Where pods wait for CPUs rather than for quota, the estimate is low, not high: TestEstimates.
package benefit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Figures are of a pod, or sums of pods. Durations of CPU are CPU time, such as core-seconds.
type Figures struct {
	// Managed is the time in which MBCAS decided about the pod.
	Managed time.Duration `json:"managed"`
	// ThrottledIdle and ThrottledScarce are pod time: the share of its CFS periods in which a pod was throttled, times the
	// time. Idle: the node had idle CPU in that round, see round.NodeDecision.HasIdleCPU.
	ThrottledIdle   time.Duration `json:"throttledWhileIdle"`
	ThrottledScarce time.Duration `json:"throttledWhileScarce"`
	// BeyondDeclared is CPU time used beyond the declared limits, measured: limits as declared would have denied it then.
	BeyondDeclared time.Duration `json:"beyondDeclared"`
	// Withheld is the estimated demand above the limit in force, times the time.
	Withheld time.Duration `json:"withheld"`
	// Delayed is CPU time used while the limit was exhausted, measured: the work in it waited for quota.
	Delayed time.Duration `json:"delayed"`
	// Avoidable is an estimate: the part of Delayed, of pods at their declared limits, that the limits decided would not have
	// delayed. Avoided is what the declared limits would have delayed where higher limits are in force, computed from the
	// usage, and was not delayed.
	Avoidable time.Duration `json:"avoidable"`
	Avoided   time.Duration `json:"avoided"`
	// BelowDeclared is the time in which the limit decided was below the declared one, and Freed the CPU time that a capped
	// pod used above the limit decided: what enforcing it would have left to others.
	BelowDeclared time.Duration `json:"belowDeclared"`
	Freed         time.Duration `json:"freed"`
	// Raises and Lowers count published decisions, and Changes changes of the limit in the spec.
	Raises  int `json:"raises"`
	Lowers  int `json:"lowers"`
	Changes int `json:"changes"`
}

// Add adds figures.
func (f *Figures) Add(o Figures) {
	f.Managed += o.Managed
	f.ThrottledIdle += o.ThrottledIdle
	f.ThrottledScarce += o.ThrottledScarce
	f.BeyondDeclared += o.BeyondDeclared
	f.Withheld += o.Withheld
	f.Delayed += o.Delayed
	f.Avoidable += o.Avoidable
	f.Avoided += o.Avoided
	f.BelowDeclared += o.BelowDeclared
	f.Freed += o.Freed
	f.Raises += o.Raises
	f.Lowers += o.Lowers
	f.Changes += o.Changes
}

// Sub subtracts figures.
func (f *Figures) Sub(o Figures) {
	f.Managed -= o.Managed
	f.ThrottledIdle -= o.ThrottledIdle
	f.ThrottledScarce -= o.ThrottledScarce
	f.BeyondDeclared -= o.BeyondDeclared
	f.Withheld -= o.Withheld
	f.Delayed -= o.Delayed
	f.Avoidable -= o.Avoidable
	f.Avoided -= o.Avoided
	f.BelowDeclared -= o.BelowDeclared
	f.Freed -= o.Freed
	f.Raises -= o.Raises
	f.Lowers -= o.Lowers
	f.Changes -= o.Changes
}

// Totals are of a node and its managed pods.
type Totals struct {
	// Covered is the time with counters, and Scarce the part of it with a price.
	Covered time.Duration `json:"covered"`
	Scarce  time.Duration `json:"scarce"`
	Sum     Figures       `json:"sum"`
	Pods    []Pod         `json:"pods"`
}

// Pod is a pod with its figures.
type Pod struct {
	record.Name
	Figures
	// Before is the part of the figures until the mark of its namespace; see OfMarked.
	Before Figures `json:"-"`
}

// Counter adds rounds up.
type Counter struct {
	about  func(record.Name) bool
	totals Totals
	pods   map[string]*counted // by UID
	last   *kernel.Sample
}

type counted struct {
	Pod
	limit        cpu.Milli        // in the spec
	decided      cpu.Milli        // last counted, until the API server shows it
	queues       map[string]queue // by container ID
	delayed      time.Duration    // in the last round
	exhaustedFor time.Duration    // a limit, without a break
}

// NewCounter counts the pods that it is about.
func NewCounter(about func(record.Name) bool) *Counter {
	return &Counter{about: about, pods: map[string]*counted{}}
}

// Of counts a recording.
func Of(rec *record.Recording, about func(record.Name) bool) (Totals, error) {
	c := NewCounter(about)
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		c.Add(f)
		return nil
	})
	return c.Totals(), err
}

// OfMarked counts a recording. Of a namespace with a mark, a time, it also counts what was until then.
func OfMarked(rec *record.Recording, about func(record.Name) bool, marks map[string]time.Time) (Totals, error) {
	c, left := NewCounter(about), maps.Clone(marks)
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		for namespace, at := range left {
			if f.Round != nil && f.Input.Now.After(at) {
				c.mark(namespace)
				delete(left, namespace)
			}
		}
		c.Add(f)
		return nil
	})
	for namespace := range left { // all of it was before
		c.mark(namespace)
	}
	return c.Totals(), err
}

func (c *Counter) mark(namespace string) {
	for _, p := range c.pods {
		if p.Namespace == namespace {
			p.Before = p.Figures
		}
	}
}

// Clone is a counter that goes on from here by itself.
func (c *Counter) Clone() *Counter {
	out := *c
	out.pods = make(map[string]*counted, len(c.pods))
	for uid, p := range c.pods {
		copied := *p
		copied.queues = maps.Clone(p.queues)
		out.pods[uid] = &copied
	}
	return &out
}

// Add adds a frame: of a round the time since the one before, of a look what it publishes.
func (c *Counter) Add(f *replay.Frame) {
	for i := range f.Output.Decisions {
		if d := &f.Output.Decisions[i]; d.Publish {
			c.published(&f.Pods[d.Pod], d)
		}
	}
	if f.Round == nil {
		return
	}
	before := c.last
	if c.last = &f.Round.Sample; before == nil {
		return
	}
	rates := sense.Compare(*before, f.Round.Sample, f.Config.LongestGap)
	if rates.Node.Validity != sense.Valid {
		for _, p := range c.pods { // what happened meanwhile is not known
			clear(p.queues)
			p.exhaustedFor = 0
		}
		return
	}
	n, elapsed := f.Output.Node, rates.Node.Elapsed
	c.totals.Covered += elapsed
	if n.Price > 0 {
		c.totals.Scarce += elapsed
	}
	hasIdle, _ := n.HasIdleCPU() // what is not known is not idle
	used := make([]use, len(f.Pods))
	for i := range f.Pods {
		if p := c.of(&f.Pods[i]); p != nil && !f.Pods[i].Unmanaged {
			used[i] = useOf(&f.Pods[i], rates.Pods[i])
			p.measured(&f.Pods[i], used[i], elapsed, hasIdle)
			p.delays(&f.Pods[i], rates.Pods[i], elapsed)
		}
	}
	c.decided(f, used, elapsed)
}

// use is what the limited containers of a pod have used.
type use struct {
	usage, declared cpu.Milli
	throttled       float64 // the highest ratio among them
}

func useOf(p *replay.Pod, rates sense.PodRates) (u use) {
	for j, c := range p.Containers {
		if j >= len(rates.Containers) || rates.Containers[j].Validity != sense.Valid || !c.Limited() {
			continue
		}
		u.usage += rates.Containers[j].Usage
		u.declared += c.Declared
		u.throttled = max(u.throttled, rates.Containers[j].ThrottleRatio)
	}
	return u
}

// of is nil for a pod that is not counted.
func (c *Counter) of(p *replay.Pod) *counted {
	known := c.pods[p.UID]
	if known == nil && !p.Unmanaged && c.about(p.Name) {
		known = &counted{Pod: Pod{Name: p.Name}, limit: LimitOf(p.PodInput), queues: map[string]queue{}}
		c.pods[p.UID] = known
	}
	return known
}

func (p *counted) measured(in *replay.Pod, u use, elapsed time.Duration, hasIdle bool) {
	if limit := LimitOf(in.PodInput); limit != p.limit {
		p.limit = limit
		p.Changes++
	}
	p.BeyondDeclared += over(u.usage-u.declared, elapsed)
	if throttled := time.Duration(u.throttled * float64(elapsed)); hasIdle {
		p.ThrottledIdle += throttled
	} else {
		p.ThrottledScarce += throttled
	}
}

// decided counts what the decisions of a round mean for the time before it.
func (c *Counter) decided(f *replay.Frame, used []use, elapsed time.Duration) {
	for i := range f.Output.Decisions {
		d := &f.Output.Decisions[i]
		p, u := c.of(&f.Pods[d.Pod]), used[d.Pod]
		if p == nil {
			continue
		}
		p.Managed += elapsed
		if p.avoids(d, u.declared) {
			p.Avoidable += p.delayed
		}
		p.Withheld += over(d.Demand-p.limit, elapsed)
		if d.Limit < u.declared && (d.Bound == market.ByPrice || d.Bound == market.ByFloor) {
			p.BelowDeclared += elapsed
		}
		if d.Bound == market.ByPrice {
			p.Freed += over(u.usage-d.Limit, elapsed)
		}
	}
}

func (c *Counter) published(in *replay.Pod, d *round.Decision) {
	p := c.of(in)
	if p == nil {
		return
	}
	var was cpu.Milli
	for _, l := range in.Published.Limits {
		was += l
	}
	if was == 0 {
		was = LimitOf(in.PodInput)
	}
	if d.Limit == p.decided { // it was counted, and could not be published yet
		return
	}
	switch p.decided = d.Limit; {
	case d.Limit > was:
		p.Raises++
	case d.Limit < was:
		p.Lowers++
	}
}

// LimitOf is the sum of the limits in a pod's spec.
func LimitOf(p round.PodInput) (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Limit
		}
	}
	return sum
}

// over is an amount of CPU above 0, for a time.
func over(m cpu.Milli, d time.Duration) time.Duration {
	return time.Duration(max(0, m).Cores() * float64(d))
}

// Totals are those so far, the pods that were throttled most first.
func (c *Counter) Totals() Totals {
	t := c.totals
	for _, p := range c.pods {
		t.Pods = append(t.Pods, p.Pod)
		t.Sum.Add(p.Figures)
	}
	slices.SortFunc(t.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.ThrottledIdle+b.ThrottledScarce, a.ThrottledIdle+a.ThrottledScarce),
			cmp.Compare(b.BeyondDeclared, a.BeyondDeclared), cmp.Compare(a.String(), b.String()))
	})
	return t
}

// maxPods is how many pods the text names.
const maxPods = 10

// Text is the totals in sentences.
func (t Totals) Text() string {
	var b strings.Builder
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	fmt.Fprintf(&b, "In %v with counters, CPU had a price for %v.\n", t.Covered.Round(time.Second), t.Scarce.Round(time.Second))
	fmt.Fprintf(&b, "Pods were throttled for %v while CPU was idle, and for %v while it was not.\n", round(t.Sum.ThrottledIdle), round(t.Sum.ThrottledScarce))
	fmt.Fprintf(&b, "They used %v of CPU time beyond their declared limits, and were denied %v of what they demanded.\n",
		round(t.Sum.BeyondDeclared), round(t.Sum.Withheld))
	fmt.Fprintf(&b, "Limits delayed %v of CPU time; the limits decided would have avoided an estimated %v of it, and limits above the declared ones avoided %v.\n",
		round(t.Sum.Delayed), round(t.Sum.Avoidable), round(t.Sum.Avoided))
	shown := 0
	for _, p := range t.Pods {
		if p.ThrottledIdle+p.ThrottledScarce+p.BeyondDeclared+p.Withheld < 100*time.Millisecond && p.Changes == 0 {
			continue
		}
		if shown++; shown > maxPods {
			break
		}
		fmt.Fprintf(&b, "  %s: throttled for %v (%v while CPU was idle), %v beyond its declared limit, %v withheld, %s of the limit\n",
			p, round(p.ThrottledIdle+p.ThrottledScarce), round(p.ThrottledIdle), round(p.BeyondDeclared), round(p.Withheld), changes(p.Changes))
	}
	return b.String()
}

func changes(n int) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}

// Package benefit counts what MBCAS brings and costs, from the rounds of a recording: what pods used beyond their declared
// limits and what they were denied, which is measured where limits are enforced; and what raised limits could have given,
// which is an estimate where they are only recommended.
//
// Promises:
//   - Figures add up what the counters say, per pod: TestFigures.
//   - What is recoverable never exceeds the idle CPU and what capped pods would leave: TestRecoverableFitsIdleCPU.
//   - Where limits are recommended, the estimate is within 25 % of what the same load then uses beyond its declared limits where
//     they are enforced, if it is overloaded, or in bursts that demand about twice the limit: TestEstimateIsNear.
package benefit

import (
	"cmp"
	"fmt"
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
	// Recoverable is an estimate: how much more a throttled pod could have used with the limit decided, from idle CPU and from
	// what capped pods would have left.
	Recoverable time.Duration `json:"recoverable"`
	// Capped is the time in which the limit decided was below the declared one, and Moved the CPU time that the pod used
	// above the limit decided: what enforcing it would have left to others.
	Capped time.Duration `json:"capped"`
	Moved  time.Duration `json:"moved"`
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
	f.Recoverable += o.Recoverable
	f.Capped += o.Capped
	f.Moved += o.Moved
	f.Raises += o.Raises
	f.Lowers += o.Lowers
	f.Changes += o.Changes
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
	limit        cpu.Milli     // in the spec
	decided      cpu.Milli     // last counted, until the API server shows it
	throttledFor time.Duration // most of the time
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
		return
	}
	n, elapsed := f.Output.Node, rates.Node.Elapsed
	c.totals.Covered += elapsed
	if n.Price > 0 {
		c.totals.Scarce += elapsed
	}
	hasIdle, known := n.HasIdleCPU()
	idle := max(0, n.Supply-n.Usage)
	if !known { // what is not known is not idle
		idle = 0
	}
	used := make([]use, len(f.Pods))
	for i := range f.Pods {
		if !f.Pods[i].Unmanaged {
			used[i] = useOf(&f.Pods[i], rates.Pods[i])
			c.measured(&f.Pods[i], used[i], elapsed, hasIdle)
		}
	}
	c.decided(f, used, idle, elapsed)
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
		known = &counted{Pod: Pod{Name: p.Name}, limit: p.Pod.Limit()}
		c.pods[p.UID] = known
	}
	return known
}

func (c *Counter) measured(in *replay.Pod, u use, elapsed time.Duration, hasIdle bool) {
	p := c.of(in)
	if p == nil {
		return
	}
	if limit := in.Pod.Limit(); limit != p.limit {
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
func (c *Counter) decided(f *replay.Frame, used []use, idle cpu.Milli, elapsed time.Duration) {
	wants := make([]float64, len(f.Output.Decisions)) // in cores
	free, sum := idle.Cores(), 0.0
	for i := range f.Output.Decisions {
		d := &f.Output.Decisions[i]
		u := used[d.Pod]
		if d.Bound == market.ByPrice {
			free += max(0, u.usage-d.Limit).Cores()
		}
		wants[i] = c.wants(&f.Pods[d.Pod], d, u, elapsed)
		sum += wants[i]
	}
	fits := 1.0
	if sum > free {
		fits = free / sum
	}
	for i := range f.Output.Decisions {
		d := &f.Output.Decisions[i]
		p, u := c.of(&f.Pods[d.Pod]), used[d.Pod]
		if p == nil {
			continue
		}
		p.Managed += elapsed
		p.Recoverable += time.Duration(fits * wants[i] * float64(elapsed))
		p.Withheld += over(d.Demand-p.limit, elapsed)
		if d.Limit < u.declared && (d.Bound == market.ByPrice || d.Bound == market.ByFloor) {
			p.Capped += elapsed
		}
		if d.Bound == market.ByPrice {
			p.Moved += over(u.usage-d.Limit, elapsed)
		}
	}
}

// overloadedAfter is how long a pod is throttled most of the time until it counts as overloaded: its work does not end.
const overloadedAfter = 30 * time.Second

// wants is how many cores more a throttled pod could have used with the limit decided. What it would have used while it was
// throttled does not show: twice its limit is assumed. Work that ends then takes half of the time.
func (c *Counter) wants(in *replay.Pod, d *round.Decision, u use, elapsed time.Duration) float64 {
	p := c.of(in)
	if p == nil {
		return 0
	}
	switch {
	case u.throttled >= 0.5:
		p.throttledFor += elapsed
	case u.throttled == 0:
		p.throttledFor = 0
	}
	if u.throttled == 0 || d.Limit <= p.limit {
		return 0
	}
	if p.throttledFor >= overloadedAfter {
		return max(0, min(d.Demand, d.Limit)-u.usage).Cores()
	}
	limit, most := p.limit.Cores(), min(d.Limit, 2*p.limit).Cores()
	return u.throttled * (most - limit) * limit / most
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
		was = in.Pod.Limit()
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
	shown := 0
	for _, p := range t.Pods {
		if p.ThrottledIdle+p.ThrottledScarce+p.BeyondDeclared+p.Withheld < 100*time.Millisecond && p.Changes == 0 {
			continue
		}
		if shown++; shown > maxPods {
			break
		}
		fmt.Fprintf(&b, "  %s: throttled for %v (%v while CPU was idle), %v beyond its declared limit, %v withheld, %d changes of the limit\n",
			p, round(p.ThrottledIdle+p.ThrottledScarce), round(p.ThrottledIdle), round(p.BeyondDeclared), round(p.Withheld), p.Changes)
	}
	return b.String()
}

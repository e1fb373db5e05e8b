package story

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
	"github.com/mbcas/mbcas/internal/sense"
)

// Totals are what a time has brought and cost, of the pods that MBCAS manages.
type Totals struct {
	// Covered is the time with counters, and Scarce the part of it with a price.
	Covered time.Duration `json:"covered"`
	Scarce  time.Duration `json:"scarce"`
	// ThrottledIdle and ThrottledScarce are pod time: the share of its CFS periods in which a pod was throttled, times the
	// time, summed over pods. Idle: the node had idle CPU in that round, at least IdleFrom of its supply.
	ThrottledIdle   time.Duration `json:"throttledWhileIdle"`
	ThrottledScarce time.Duration `json:"throttledWhileScarce"`
	// BeyondDeclared is CPU time that pods used beyond their declared limits: a static limit would have denied it at that
	// time.
	BeyondDeclared time.Duration `json:"beyondDeclared"`
	// Withheld is the demand, as estimated, above the limits of capped pods, times the time.
	Withheld time.Duration `json:"withheld"`
	Pods     []PodTotals   `json:"pods"`
}

// PodTotals are those of a pod.
type PodTotals struct {
	Pod             string        `json:"pod"`
	ThrottledIdle   time.Duration `json:"throttledWhileIdle"`
	ThrottledScarce time.Duration `json:"throttledWhileScarce"`
	BeyondDeclared  time.Duration `json:"beyondDeclared"`
	Withheld        time.Duration `json:"withheld"`
	Changes         int           `json:"changes"` // of the limit in its spec
}

// IdleFrom is the share of the supply from which unused CPU counts as idle.
const IdleFrom = 0.05

// counting adds up.
type counting struct {
	about  About
	totals Totals
	pods   map[string]*counted // by UID
	last   *kernel.Sample
}

type counted struct {
	PodTotals
	limit cpu.Milli
}

func newCounting(about About) *counting { return &counting{about: about, pods: map[string]*counted{}} }

// frame adds a round: the time since the one before.
func (c *counting) frame(f *replay.Frame) {
	if f.Round == nil {
		return
	}
	before := c.last
	if c.last = &f.Round.Sample; before == nil {
		return
	}
	rates := sense.Compare(*before, f.Round.Sample, f.Config.LongestGap)
	elapsed := rates.Node.Elapsed
	if rates.Node.Validity != sense.Valid {
		return
	}
	n := f.Output.Node
	c.totals.Covered += elapsed
	if n.Price > 0 {
		c.totals.Scarce += elapsed
	}
	idle := (n.Supply - n.Usage).Cores() >= IdleFrom*n.Supply.Cores()
	for i := range f.Pods {
		if p := &f.Pods[i]; !p.Unmanaged && c.about(p.Name) {
			c.pod(p, rates.Pods[i], elapsed, idle)
		}
	}
	for i := range f.Output.Decisions {
		d := &f.Output.Decisions[i]
		if p := c.pods[f.Pods[d.Pod].UID]; p != nil && d.Demand > d.Limit {
			p.Withheld += over(d.Demand-d.Limit, elapsed)
		}
	}
}

func (c *counting) pod(in *replay.Pod, rates sense.PodRates, elapsed time.Duration, idle bool) {
	p := c.pods[in.UID]
	if p == nil {
		p = &counted{PodTotals: PodTotals{Pod: in.Namespace + "/" + in.Name.Name}, limit: limitOf(in)}
		c.pods[in.UID] = p
	}
	if limit := limitOf(in); limit != p.limit {
		p.limit = limit
		p.Changes++
	}
	var usage, declared cpu.Milli
	throttled := 0.0
	for j, container := range in.Containers {
		if j >= len(rates.Containers) || rates.Containers[j].Validity != sense.Valid || !container.Limited() {
			continue
		}
		usage += rates.Containers[j].Usage
		declared += container.Declared
		throttled = max(throttled, rates.Containers[j].ThrottleRatio)
	}
	p.BeyondDeclared += over(max(0, usage-declared), elapsed)
	if time := time.Duration(throttled * float64(elapsed)); idle {
		p.ThrottledIdle += time
	} else {
		p.ThrottledScarce += time
	}
}

// over is an amount of CPU for a time.
func over(m cpu.Milli, d time.Duration) time.Duration {
	return time.Duration(m.Cores() * float64(d))
}

// sum is the totals, the pods that were throttled most first.
func (c *counting) sum() Totals {
	t := c.totals
	for _, p := range c.pods {
		t.Pods = append(t.Pods, p.PodTotals)
		t.ThrottledIdle += p.ThrottledIdle
		t.ThrottledScarce += p.ThrottledScarce
		t.BeyondDeclared += p.BeyondDeclared
		t.Withheld += p.Withheld
	}
	slices.SortFunc(t.Pods, func(a, b PodTotals) int {
		return cmp.Or(cmp.Compare(b.ThrottledIdle+b.ThrottledScarce, a.ThrottledIdle+a.ThrottledScarce),
			cmp.Compare(b.BeyondDeclared, a.BeyondDeclared), cmp.Compare(a.Pod, b.Pod))
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
	fmt.Fprintf(&b, "Pods were throttled for %v while CPU was idle, and for %v while it was not.\n", round(t.ThrottledIdle), round(t.ThrottledScarce))
	fmt.Fprintf(&b, "They used %v of CPU time beyond their declared limits, and were denied %v of what they demanded.\n",
		round(t.BeyondDeclared), round(t.Withheld))
	shown := 0
	for _, p := range t.Pods {
		if p.ThrottledIdle+p.ThrottledScarce+p.BeyondDeclared+p.Withheld < 100*time.Millisecond && p.Changes == 0 {
			continue
		}
		if shown++; shown > maxPods {
			break
		}
		fmt.Fprintf(&b, "  %s: throttled for %v (%v while CPU was idle), %v beyond its declared limit, %v withheld, %d changes of the limit\n",
			p.Pod, round(p.ThrottledIdle+p.ThrottledScarce), round(p.ThrottledIdle), round(p.BeyondDeclared), round(p.Withheld), p.Changes)
	}
	return b.String()
}

// Pod selects a pod, by its namespace and name.
func Pod(namespace, name string) About {
	return func(n record.Name) bool { return n.Namespace == namespace && n.Name == name }
}

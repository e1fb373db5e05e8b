package incident

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/whatif"
)

// Played is what pods would have done, as the simulator has it.
type Played struct {
	Node      string
	From, To  time.Time
	Compared  time.Duration // without the warm-up
	Estimated float64       // share of the demand
	// Changed: something is otherwise than recorded.
	Changed bool
	Matched int // pods that a pattern of the change matches
	Error   Error
	// Price is its mean with the settings in force, and changed.
	PriceBefore, PriceAfter float64
	Pods                    []PlayedPod
}

// PlayedPod is a pod as it was recorded, played with the settings in force, and played with the change.
type PlayedPod struct {
	record.Name
	Recorded, Before, After Figures
}

// Figures are means over the time that a pod was there.
type Figures struct {
	Usage, Limit cpu.Milli
	Throttled    float64 // share of its CFS periods
	Seconds      int
}

// Error is how far the load, played with the settings in force, differs from what was recorded.
type Error struct {
	// Usage and Limit are the sums of the differences of the pods, as shares of the sums.
	Usage, Limit float64
	// Throttled is the mean difference of the pods, by their usage.
	Throttled float64
}

// Play plays the load of a recording twice: with the settings in force, and changed.
func Play(rec *record.Recording, change whatif.Change) (Played, error) {
	if err := change.Validate(); err != nil {
		return Played{}, err
	}
	was, err := Of(rec)
	if err != nil {
		return Played{}, err
	}
	changed, matched := was.with(change)
	p := Played{
		Node: was.Node, From: was.From, To: was.From.Add(time.Duration(was.Seconds) * time.Second), Estimated: was.Estimated,
		Changed: change.Off || change.Reserve != nil || change.Credits != nil || matched > 0, Matched: matched,
	}
	var running sync.WaitGroup
	var before, after result
	var errs [2]error
	running.Go(func() { before, errs[0] = was.run() })
	if p.Changed {
		running.Go(func() { after, errs[1] = changed.run() })
	}
	running.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return Played{}, err
	}
	if !p.Changed {
		after = before
	}
	p.Compared = time.Duration(was.Seconds-before.warm) * time.Second
	p.PriceBefore, p.PriceAfter = before.price, after.price
	for i := range was.Pods {
		recorded := was.Pods[i].figures(before.warm)
		p.Pods = append(p.Pods, PlayedPod{was.Pods[i].Name, recorded, before.pods[i], after.pods[i]})
	}
	p.Error = errorOf(p.Pods)
	return p, nil
}

// with is the incident with a change; matched counts the pods of its patterns.
func (i *Incident) with(c whatif.Change) (changed *Incident, matched int) {
	out := *i
	out.Config, out.Recommend = c.Config(i.Config), i.Recommend || c.Off
	out.Pods = slices.Clone(i.Pods)
	for k := range out.Pods {
		p := &out.Pods[k]
		for _, pc := range c.Pods {
			if ok, _ := path.Match(pc.Pattern, p.Name.String()); !ok || !i.Pods[k].Managed {
				continue
			}
			matched++
			p.Managed = p.Managed && !pc.OptOut
			if pc.MaxCPU > 0 {
				p.Ceiling = min(cmp.Or(p.Ceiling, pc.MaxCPU), pc.MaxCPU)
			}
			if pc.Priority != nil {
				p.Priority = *pc.Priority
			}
			p.Request = cmp.Or(pc.Request, p.Request)
		}
	}
	return &out, matched
}

// result is that of a run, with the pods in the order of the incident.
type result struct {
	warm  int // seconds that are not measured
	price float64
	pods  []Figures
}

// run plays it under MBCAS.
func (i *Incident) run() (result, error) {
	s, err := i.Scenario()
	if err != nil {
		return result{}, err
	}
	cfg := mbcas.DefaultConfig()
	cfg.Round, cfg.Interval, cfg.Recommend, cfg.DemandPercent = i.Config, i.Interval, i.Recommend, map[string]int32{}
	for _, p := range i.Pods {
		if p.DemandPercent > 0 {
			cfg.DemandPercent[p.Alias] = p.DemandPercent
		}
	}
	played := sim.Run(s.Setup(0, 1), mbcas.New(cfg))
	out := result{warm: int(s.WarmUp / time.Second)}
	for _, price := range played.Price[out.warm:] {
		out.price += float64(price) / float64(len(played.Price)-out.warm)
	}
	named := map[string]*sim.PodResult{}
	for k := range played.Pods {
		if p := &played.Pods[k]; !p.Spec.System {
			named[p.Spec.Name] = p
		}
	}
	for _, p := range i.Pods {
		simulated := Pod{}
		for _, point := range named[p.Alias].Points {
			simulated.Points = append(simulated.Points, Point{
				Present: !point.Absent, Usage: point.Usage, Limit: point.Limit, Throttled: point.Throttle,
			})
		}
		out.pods = append(out.pods, simulated.figures(out.warm))
	}
	return out, nil
}

// figures are the means from a second on.
func (p *Pod) figures(from int) (f Figures) {
	usage, limit := 0.0, 0.0
	for _, point := range p.Points[min(from, len(p.Points)):] {
		if !point.Present {
			continue
		}
		f.Seconds++
		usage += point.Usage.Cores()
		limit += point.Limit.Cores()
		f.Throttled += point.Throttled
	}
	if n := float64(f.Seconds); n > 0 {
		f.Usage, f.Limit, f.Throttled = cpu.FromCores(usage/n), cpu.FromCores(limit/n), f.Throttled/n
	}
	return f
}

// errorOf compares what was played with the settings in force to what was recorded.
func errorOf(pods []PlayedPod) (e Error) {
	var usage, limit, apart Figures
	throttled := 0.0
	for _, p := range pods {
		weight := cpu.Milli(p.Recorded.Seconds)
		usage.Usage += weight * p.Recorded.Usage
		limit.Limit += weight * p.Recorded.Limit
		apart.Usage += weight * max(p.Before.Usage-p.Recorded.Usage, p.Recorded.Usage-p.Before.Usage)
		apart.Limit += weight * max(p.Before.Limit-p.Recorded.Limit, p.Recorded.Limit-p.Before.Limit)
		throttled += float64(weight*p.Recorded.Usage) * math.Abs(p.Before.Throttled-p.Recorded.Throttled)
	}
	if usage.Usage > 0 {
		e.Usage, e.Throttled = float64(apart.Usage)/float64(usage.Usage), throttled/float64(usage.Usage)
	}
	if limit.Limit > 0 {
		e.Limit = float64(apart.Limit) / float64(limit.Limit)
	}
	return e
}

func (e Error) String() string {
	return fmt.Sprintf("it reproduces the recorded usage of the pods within %.0f %%, their limits within %.0f %%, and\n"+
		"throttling within %.0f points", 100*e.Usage, 100*e.Limit, 100*e.Throttled)
}

// maxShown is how many pods the text names of those that lose, and of those that gain.
const maxShown = 10

// Text is the answer, with its error.
func (p Played) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s from %s to %s: the load of that time, PLAYED by the simulator.\n", p.Node,
		p.From.UTC().Format("2006-01-02 15:04:05"), p.To.UTC().Format("15:04:05 UTC"))
	fmt.Fprintf(&b, "Error: with the settings in force %v (means of %v).\n", p.Error, p.Compared)
	fmt.Fprintf(&b, "%.0f %% of the demand is an estimate, of pods that use all they get, while they were hindered.\n\n",
		100*p.Estimated)
	shown := slices.Clone(p.Pods)
	if p.Changed {
		shown = slices.DeleteFunc(shown, func(pod PlayedPod) bool { return pod.Before == pod.After })
		fmt.Fprintf(&b, "Mean price: %.3f with the settings in force, %.3f changed.\n\n", p.PriceBefore, p.PriceAfter)
	}
	slices.SortStableFunc(shown, func(x, y PlayedPod) int {
		return cmp.Compare(x.After.Usage-x.Before.Usage, y.After.Usage-y.Before.Usage)
	})
	p.table(&b, shown)
	b.WriteString("\nRECORDED is measured; PLAYED and CHANGED are answers of the simulator, with that error. What the market\n" +
		"would have decided on the recorded counters is another question: what-if without --played.\n")
	return b.String()
}

// table writes the pods.
func (p Played) table(b *strings.Builder, shown []PlayedPod) {
	fmt.Fprintf(b, "%-34s %30s %30s %26s\n", "", "CPU USAGE", "LIMIT", "THROTTLED")
	columns := fmt.Sprintf("%10s%10s%10s", "RECORDED", "PLAYED", "CHANGED")
	fmt.Fprintf(b, "%-34s %s %s %s\n", "POD", columns, columns, fmt.Sprintf("%10s%8s%8s", "RECORDED", "PLAYED", "CHANGED"))
	limit := func(m cpu.Milli) string {
		if m == 0 {
			return "none"
		}
		return m.String()
	}
	for i, pod := range shown {
		if i >= maxShown && i < len(shown)-maxShown {
			if i == maxShown {
				fmt.Fprintf(b, "%d more\n", len(shown)-2*maxShown)
			}
			continue
		}
		r, x, y := pod.Recorded, pod.Before, pod.After
		fmt.Fprintf(b, "%-34s %10s%10s%10s %10s%10s%10s %9.0f%%%7.0f%%%7.0f%%\n", pod.Name, r.Usage, x.Usage, y.Usage,
			limit(r.Limit), limit(x.Limit), limit(y.Limit), 100*r.Throttled, 100*x.Throttled, 100*y.Throttled)
	}
	if len(shown) == 0 {
		b.WriteString("No pod would have done anything else.\n")
	}
}

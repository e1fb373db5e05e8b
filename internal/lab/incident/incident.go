// Package incident plays what a node has recorded: it estimates what each pod would have used
// unhindered, and makes a scenario of the simulator of it. What a simulated pod then uses is an answer
// of the simulator, and not of the market on the recorded counters, as package whatif gives it. So
// each answer has the error with which the simulator reproduces the recording.
//
// Promises:
//   - A pod that uses all it gets demands what the market estimated while it was hindered; another one
//     what it used, sooner or later: TestDemand.
//   - The files of a scenario are read as any other scenario, and give the load of the recording:
//     TestFilesAreAScenario.
//   - A played answer tells its error; without a change nothing differs: TestPlayedTellsItsError.
//   - A change has the same direction when it is played as when it is decided: TestPlayedChanges.
package incident

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Incident is the longest time of a recording without a gap.
type Incident struct {
	Node string
	From time.Time
	// Seconds is how long it is.
	Seconds int
	// Interval is the mean time between two rounds, in whole seconds.
	Interval time.Duration
	Config   round.Config // of the last round
	// Cores, Allocatable and System are of the node; System is the mean CPU usage outside of pods.
	Cores               int
	Allocatable, System cpu.Milli
	// Recommend: limits were decided, and none was in force.
	Recommend bool
	// Estimated is the share of the demand that is an estimate: that of pods that use all they get, while
	// they were hindered.
	Estimated float64
	Pods      []Pod
}

// Pod is a pod of it, with all its containers as one.
type Pod struct {
	record.Name
	// Alias is its name in the scenario.
	Alias             string
	Request, Declared cpu.Milli // Declared 0: none
	Priority          int32     // a PriorityClass that gives its budget
	DemandPercent     int32     // of a DemandSignal
	Managed           bool
	Floor, Ceiling    cpu.Milli // that other objects set; 0: none
	// Hindered is the share of its time in which it had more to do than it was let.
	Hindered float64
	// Points are of each second of the incident.
	Points []Point
}

// Point is a second of a pod. An absent pod has no other figures.
type Point struct {
	Present       bool
	Usage, Demand cpu.Milli
	Limit         cpu.Milli // in its spec; 0: none
	Throttled     float64   // share of its CFS periods
}

// shortest is the least that can be played.
const shortest = 20

// Of reads the longest time of a recording without a gap.
func Of(rec *record.Recording) (*Incident, error) {
	var best, now *reading
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		if f.Round == nil {
			return nil
		}
		if now == nil || !now.add(f) {
			now = newReading(rec.About.Node, f)
		}
		if best == nil || now.Seconds > best.Seconds {
			best = now
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case best == nil:
		return nil, errors.New("the recording has no round: record while the agent runs")
	case best.Seconds < shortest:
		return nil, fmt.Errorf("the recording has at most %d s without a gap; at least %d s can be played: record for longer",
			best.Seconds, shortest)
	}
	return best.incident(), nil
}

// reading is an incident as far as it was read.
type reading struct {
	Incident

	last      *round.Input
	rounds    int
	estimates map[string]demand.Estimate // by container ID
	pods      map[string]*podReading     // by UID
	order     []*podReading
	system    float64 // times seconds
	enforced  bool    // some limit was another than the declared one
	differing bool    // some published limit was not in force for long
}

// podReading is a pod of it.
type podReading struct {
	Pod

	seconds, hindered int
	differs           int // rounds in a row in which what is published is not in force
}

// enforcedWithin is how many rounds a published limit may take to be in force where limits are
// enforced at all.
const enforcedWithin = 60

func newReading(node string, f *replay.Frame) *reading {
	in := f.Input
	return &reading{
		Incident: Incident{
			Node: node, From: f.At(), Config: *f.Config,
			Cores: int((in.Node.Capacity + 500) / cpu.Core), Allocatable: in.Node.Allocatable,
		},
		last: in, estimates: map[string]demand.Estimate{}, pods: map[string]*podReading{},
	}
}

// add adds a round; false: there is a gap before it.
func (r *reading) add(f *replay.Frame) bool {
	in := f.Input
	rates := sense.Compare(r.last.Sample, in.Sample, f.Config.LongestGap)
	from, to := r.second(r.last.Now), r.second(in.Now)
	if rates.Node.Validity != sense.Valid || to < from {
		return false
	}
	r.last, r.Config = in, *f.Config
	r.rounds++
	r.Seconds = to
	r.system += f.Output.Node.System.Cores() * float64(to-from)
	for i := range in.Pods {
		r.addPod(f, &f.Pods[i], rates.Pods[i], from, to)
	}
	return true
}

// second is the second of the incident that begins at a time.
func (r *reading) second(at time.Time) int {
	return int((at.Sub(r.From) + time.Second/2) / time.Second)
}

// addPod adds the time since the round before.
func (r *reading) addPod(f *replay.Frame, p *replay.Pod, rates sense.PodRates, from, to int) {
	known := r.pods[p.UID]
	if known == nil {
		known = &podReading{Pod: podOf(p, f.Input.Node.Allocatable)}
		r.pods[p.UID], r.order = known, append(r.order, known)
	}
	point, hindered := Point{Present: true}, false
	for j, c := range p.Containers {
		if j >= len(rates.Containers) || c.ID == "" {
			continue
		}
		rate := rates.Containers[j]
		e := f.Config.Demand.Next(r.estimates[c.ID], rate, 0)
		r.estimates[c.ID] = e
		point.Limit += c.Limit
		demanded := rate.Usage
		if isHindered(rate) {
			hindered, demanded = true, max(rate.Usage, e.LatestDemand())
		}
		point.Usage, point.Demand = point.Usage+rate.Usage, point.Demand+demanded
		point.Throttled = max(point.Throttled, rate.ThrottleRatio)
	}
	for len(known.Points) < to {
		if len(known.Points) < from {
			known.Points = append(known.Points, Point{})
			continue
		}
		known.Points = append(known.Points, point)
		known.seconds++
		if hindered {
			known.hindered++
		}
	}
	if !p.Unmanaged {
		r.compareLimits(known, p)
	}
}

// From which share of a second's CFS periods, and of its time with a task that waits for a CPU, on a
// container has more to do than it is let.
const (
	manyPeriods = 0.5
	mostTime    = 0.9
)

// isHindered says whether a container had more to do than it was let, for the whole second.
func isHindered(r sense.Rate) bool {
	return r.Validity == sense.Valid && (r.ThrottleRatio > manyPeriods || r.Pressure.Known && r.Pressure.Value > mostTime)
}

// compareLimits notes whether limits are in force.
func (r *reading) compareLimits(known *podReading, p *replay.Pod) {
	differs := false
	for _, c := range p.Containers {
		if c.Limited() && c.Limit != c.Declared {
			r.enforced = true
		}
		if limit, published := p.Published.Limits[c.Name]; published && c.Limited() && limit != c.Limit {
			differs = true
		}
	}
	if known.differs++; !differs {
		known.differs = 0
	}
	r.differing = r.differing || known.differs > enforcedWithin
}

// podOf is a pod as it was first seen.
func podOf(p *replay.Pod, allocatable cpu.Milli) Pod {
	out := Pod{Name: p.Name, Managed: !p.Unmanaged, DemandPercent: p.DemandPercent, Ceiling: p.Ceiling}
	limited := true
	for _, c := range p.Containers {
		out.Request += c.Request
		limit := c.Declared
		if p.Unmanaged {
			limit = c.Limit
		}
		out.Declared += limit
		limited = limited && limit > 0
		out.Floor += c.Floor
		if c.Limited() && c.Ceiling < allocatable && len(p.Containers) == 1 {
			out.Ceiling = min(cmp.Or(out.Ceiling, c.Ceiling), c.Ceiling)
		}
	}
	out.Priority = priorityOf(p.Budget, out.Request)
	if !limited { // one of several: the simulated pod has one container, which then has none
		out.Declared, out.Managed = 0, false
	}
	if out.Floor <= demand.Entitlement(out.Request, out.Declared) { // that of any pod
		out.Floor = 0
	}
	return out
}

// priorityOf is the value of a PriorityClass that gives a budget, see demand.PriorityMultiplier. A
// factor of the coordinator is part of it.
func priorityOf(budget market.Budget, request cpu.Milli) int32 {
	if request == 0 {
		return 0
	}
	switch m := float64(budget) / float64(request); {
	case m < 0.75: // between the two that there are
		return -1
	case m > 1:
		return int32(math.Round(1000 * math.Exp2(2*(m-1))))
	}
	return 0
}

// incident completes it.
func (r *reading) incident() *Incident {
	i := &r.Incident
	i.System = cpu.FromCores(r.system / float64(i.Seconds))
	i.Interval = max(time.Second, (time.Duration(i.Seconds) * time.Second / time.Duration(r.rounds)).Round(time.Second))
	i.Recommend = r.differing && !r.enforced
	estimated, demanded := 0.0, 0.0
	taken := map[string]bool{}
	for _, p := range r.order {
		if p.seconds == 0 {
			continue
		}
		p.Hindered = float64(p.hindered) / float64(p.seconds)
		p.Points = append(p.Points, make([]Point, max(0, i.Seconds-len(p.Points)))...)[:i.Seconds]
		p.Alias = alias(p.Name, taken)
		for k := range p.Points {
			point := &p.Points[k]
			if !p.spins() { // what it could not do at once it did later
				point.Demand = point.Usage
			}
			demanded += point.Demand.Cores()
			if point.Demand > point.Usage {
				estimated += point.Demand.Cores()
			}
		}
		i.Pods = append(i.Pods, p.Pod)
	}
	if demanded > 0 {
		i.Estimated = estimated / demanded
	}
	slices.SortStableFunc(i.Pods, func(a, b Pod) int { return a.Name.Compare(b.Name) })
	return i
}

// longestAlias leaves room for a number within what a scenario takes for a name.
const longestAlias = 55

// alias is a name that no other pod of the scenario has.
func alias(n record.Name, taken map[string]bool) string {
	named := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(n.Name))
	named = strings.Trim(named[:min(len(named), longestAlias)], "-")
	base := cmp.Or(named, "pod")
	for k, name := 2, base; ; k++ {
		if !taken[name] {
			taken[name] = true
			return name
		}
		name = fmt.Sprintf("%s-%d", base, k)
	}
}

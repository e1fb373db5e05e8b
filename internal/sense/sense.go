// Package sense turns two samples of kernel counters into rates. A rate without two good samples is
// named invalid, never guessed.
//
// What it promises, each a test of the same name:
//   - ResetYieldsNoRate: a counter that decreased, or increased by more than the machine can,
//     yields no rate.
//   - GapYieldsNoRate: two samples further apart than the longest gap yield no rate.
//   - NewContainersHaveNoRate: a container that is not in the earlier sample has no rate.
//   - UnknownIsNotZero: a total of the machine that could not be read is unknown, never 0.
//   - RatiosAreBounded: throttle ratio, pressure and stalls are in [0, 1], whatever the counters
//     are.
//   - PressureHasItsOwnTime: pressure that is read less often than usage is a share of the time between
//     its own reads, and unknown in between.
//   - ImpossibleIdleTimeIsUnknown: idle time that decreased, or that exceeds what the node has, is
//     unknown.
//   - WholePodIsOneContainer: a pod that is read as a whole has one rate, that of its own cgroup, with the highest
//     throttle ratio of its cgroups.
//   - MinLimitIsAccepted: the kernel accepts the quota of every limit from MinLimit on unchanged.
package sense

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
)

// Validity says whether a rate is valid, or why not.
type Validity uint8

const (
	Valid           Validity = iota // two good samples
	NoEarlierSample                 // no earlier sample to compare with
	Gap                             // the samples are too far apart, or no time passed
	Reset                           // a counter decreased or jumped: the container restarted
	Missing                         // the cgroup does not exist
)

// Rate is the change of the counters of one cgroup between two samples. Only a Valid one has
// figures.
type Rate struct {
	Validity Validity
	Elapsed  time.Duration
	Usage    cpu.Milli // mean
	// ThrottleRatio is the share of CFS periods in which the group was throttled, in [0, 1];
	// 0 when no period passed because the group was idle or had no quota.
	ThrottleRatio float64
	// Pressure is the share of time in which some task waited for a CPU, between its last two reads. It
	// is unknown where PressureUnread: the kernel has it, and it was not read since the earlier sample.
	Pressure       Ratio
	PressureUnread bool
	QuotaKnown     bool      // false: the kernel has no quota file
	Quota          cpu.Milli // in force, as a limit; 0: none
	// MinLimit is the lowest limit, in whole quanta, whose quota the kernel accepts; 0: unknown.
	MinLimit cpu.Milli
	Stalls   *Stalls // nil: not read in one of the samples
}

// Stalls are the shares of time in which, of the tasks that had anything to do, all waited for
// memory, or all for IO (PSI "full"). "some" is of no use: one of many threads may wait while the
// others work.
type Stalls struct{ Memory, IO Ratio }

// Ratio is a share of time, in [0, 1], that may be unknown, as the zero value is.
type Ratio struct {
	Known bool
	Value float64
}

// Higher is the higher of two ratios, as far as they are known.
func (r Ratio) Higher(other Ratio) Ratio {
	return Ratio{Known: r.Known || other.Known, Value: max(r.Value, other.Value)}
}

// Higher are the higher of each ratio; nil where neither was read.
func (s *Stalls) Higher(other *Stalls) *Stalls {
	switch {
	case s == nil:
		return other
	case other == nil:
		return s
	}
	return &Stalls{Memory: s.Memory.Higher(other.Memory), IO: s.IO.Higher(other.IO)}
}

// Optional is the value, or nil where it is unknown.
func (r Ratio) Optional() *float64 {
	if !r.Known {
		return nil
	}
	return &r.Value
}

// PodRates are the rates of a pod. Containers are in the order of the sample's; of a pod that is read as a whole
// (kernel.Target.Whole) they are one, the pod itself.
type PodRates struct {
	Own        Rate
	Containers []Rate
}

// Usage is the pod's CPU usage in cores; unknown where that of a running container is.
func (p PodRates) Usage() (cores float64, known bool) {
	for _, r := range p.Containers {
		switch r.Validity {
		case Valid:
			cores += r.Usage.Cores()
			known = true
		case Missing:
		default:
			return 0, false
		}
	}
	return cores, known
}

// NodeRates are the rates of the whole machine.
type NodeRates struct {
	Validity      Validity
	Elapsed       time.Duration
	Usage         cpu.Milli // of the whole machine
	UsageKnown    bool      // false: not readable in one of the samples
	Kubepods      cpu.Milli // of the pods
	KubepodsKnown bool
	Pressure      Ratio
}

// Rates are those of a node. Pods are in the order of the later sample's.
type Rates struct {
	Node NodeRates
	Pods []PodRates
}

// Compare gives the rates between two samples. Samples further apart than longest yield none.
func Compare(before, after kernel.Sample, longest time.Duration) Rates {
	r := Rates{Node: nodeRates(before.Node, after.Node, longest), Pods: make([]PodRates, len(after.Pods))}
	count := 0
	for i := range after.Pods {
		count += len(after.Pods[i].Containers)
	}
	rates := make([]Rate, count)
	var all index // of before: made for a pod that is not at its place
	for i := range after.Pods {
		p, n := &after.Pods[i], len(after.Pods[i].Containers)
		r.Pods[i].Containers, rates = rates[:n:n], rates[n:]
		if i < len(before.Pods) && sameContainers(&before.Pods[i], p) {
			was := &before.Pods[i]
			r.Pods[i].Own = groupRate(&was.Own, &p.Own, longest)
			for j := range p.Containers {
				r.Pods[i].Containers[j] = groupRate(&was.Containers[j], &p.Containers[j], longest)
			}
			r.Pods[i].unite(p)
			continue
		}
		if all.pods == nil {
			all = newIndex(before)
		}
		was := all.pods[p.Pod]
		if was != nil && was.ID != p.Own.ID { // not read as a whole before: its usage may be unread
			was = nil
		}
		r.Pods[i].Own = groupRate(was, &p.Own, longest)
		for j := range p.Containers {
			r.Pods[i].Containers[j] = groupRate(all.containers[p.Containers[j].ID], &p.Containers[j], longest)
		}
		r.Pods[i].unite(p)
	}
	return r
}

// unite makes one container of a pod that is read as a whole. Its kubelet gives the pod's limit to each of its containers, too,
// and the kernel counts throttling at the cgroup whose quota is used up first. Stalls are those of an only container: of
// several, some may work while another is stalled.
func (p *PodRates) unite(of *kernel.PodSample) {
	if of.Own.ID == "" {
		return
	}
	whole := p.Own
	for _, c := range p.Containers {
		if whole.Validity == Valid && c.Validity == Valid {
			whole.ThrottleRatio = max(whole.ThrottleRatio, c.ThrottleRatio)
			whole.MinLimit = max(whole.MinLimit, c.MinLimit)
		}
	}
	if len(p.Containers) == 1 && whole.Validity == Valid {
		whole.Stalls = p.Containers[0].Stalls
	}
	p.Containers = []Rate{whole}
}

// index finds the groups of a sample.
type index struct{ pods, containers map[string]*kernel.Group }

func newIndex(s kernel.Sample) index {
	x := index{make(map[string]*kernel.Group, len(s.Pods)), make(map[string]*kernel.Group, 2*len(s.Pods))}
	for i := range s.Pods {
		p := &s.Pods[i]
		x.pods[p.Pod] = &p.Own
		for j := range p.Containers {
			x.containers[p.Containers[j].ID] = &p.Containers[j]
		}
	}
	return x
}

// sameContainers says whether two samples are of the same pod with the same containers in the same order.
func sameContainers(a, b *kernel.PodSample) bool {
	return a.Pod == b.Pod && a.Own.ID == b.Own.ID && slices.EqualFunc(a.Containers, b.Containers, func(x, y kernel.Group) bool { return x.ID == y.ID })
}

// maxCores is more than a machine has; a higher usage is a jump of the counter.
const maxCores = 4096

func groupRate(before, after *kernel.Group, longest time.Duration) Rate {
	if !after.Found {
		return Rate{Validity: Missing}
	}
	if before == nil || !before.Found {
		return Rate{Validity: NoEarlierSample}
	}
	elapsed := after.At.Sub(before.At)
	if elapsed <= 0 || elapsed > longest {
		return Rate{Validity: Gap}
	}
	a, b := after.Stat, before.Stat
	used := a.Usage - b.Usage
	if used < 0 || used > elapsed*maxCores || a.Periods < b.Periods || a.Throttled < b.Throttled {
		return Rate{Validity: Reset}
	}
	r := Rate{Validity: Valid, Elapsed: elapsed, Usage: cpu.FromUsage(used, elapsed)}
	if periods := a.Periods - b.Periods; periods > 0 {
		r.ThrottleRatio = min(1, float64(a.Throttled-b.Throttled)/float64(periods))
	}
	if over := after.PressureTime().Sub(before.PressureTime()); over > 0 {
		r.Pressure = someRatio(before.Pressure, after.Pressure, over)
	} else {
		r.PressureUnread = after.Pressure.Known
	}
	if x, y := before.Stalls, after.Stalls; x != nil && y != nil {
		r.Stalls = &Stalls{Memory: fullRatio(x.Memory, y.Memory, elapsed), IO: fullRatio(x.IO, y.IO, elapsed)}
	}
	if q := after.Quota; q.Period > 0 { // a group without a quota has a period, too
		r.Quota, r.QuotaKnown = cpu.FromUsage(q.Limit, q.Period), true
		r.MinLimit = minLimit(q)
	}
	return r
}

// minLimit rounds up: the kubelet rounds the quota of a limit down to a microsecond.
func minLimit(q kernel.Quota) cpu.Milli {
	millis := math.Ceil(float64(q.Min()) * float64(cpu.Core) / float64(q.Period))
	return cpu.FromCores(millis / float64(cpu.Core)).RoundUp(cpu.Quantum)
}

func nodeRates(before, after kernel.NodeSample, longest time.Duration) NodeRates {
	if before.At.IsZero() {
		return NodeRates{Validity: NoEarlierSample}
	}
	elapsed := after.At.Sub(before.At)
	if elapsed <= 0 || elapsed > longest {
		return NodeRates{Validity: Gap}
	}
	n := NodeRates{Validity: Valid, Elapsed: elapsed}
	all, allOK := cpuTime(before.Usage, after.Usage)
	pods, podsOK := cpuTime(before.Kubepods, after.Kubepods)
	if all < 0 || pods < 0 || all > elapsed*maxCores || pods > elapsed*maxCores {
		return NodeRates{Validity: Reset}
	}
	n.Usage, n.UsageKnown = cpu.FromUsage(all, elapsed), allOK
	n.Kubepods, n.KubepodsKnown = cpu.FromUsage(pods, elapsed), podsOK
	n.Pressure = someRatio(before.Pressure, after.Pressure, elapsed)
	return n
}

// cpuTime is the CPU time between two samples of a counter; not ok where one is unknown.
func cpuTime(before, after kernel.Total) (time.Duration, bool) {
	if !before.Known || !after.Known {
		return 0, false
	}
	return after.Time - before.Time, true
}

// someRatio is the share of elapsed in which some task waited.
func someRatio(before, after kernel.Pressure, elapsed time.Duration) Ratio {
	return ratio(before.Known && after.Known, before.Some, after.Some, elapsed)
}

// fullRatio is the share of elapsed in which all tasks that had work waited.
func fullRatio(before, after kernel.Pressure, elapsed time.Duration) Ratio {
	return ratio(before.Known && after.Known, before.Full, after.Full, elapsed)
}

// ratio is the growth of a counter as a share of elapsed. The kernel may count a little more.
func ratio(known bool, before, after, elapsed time.Duration) Ratio {
	if !known || after < before {
		return Ratio{}
	}
	return Ratio{Known: true, Value: min(1, float64(after-before)/float64(elapsed))}
}

// Idle is the idle CPU of the node between two samples.
type Idle struct {
	Known bool
	CPU   cpu.Milli
}

// IdleBetween is unknown where the samples are further apart than longest, or where more is idle
// than the node has: old kernels count the idle time of a CPU when it wakes up.
func IdleBetween(before, after kernel.NodeSample, longest time.Duration, cores cpu.Milli) Idle {
	elapsed, idle := after.At.Sub(before.At), after.Idle.Time-before.Idle.Time
	if before.At.IsZero() || elapsed <= 0 || elapsed > longest || !before.Idle.Known || !after.Idle.Known || idle < 0 {
		return Idle{}
	}
	if free := cpu.FromUsage(idle, elapsed); free <= cores+cores/4 { // the clock ticks every 10 ms
		return Idle{true, free}
	}
	return Idle{}
}

// Package sense turns two samples of kernel counters into rates. Restarts, gaps and missing
// cgroups are named, never guessed: a counter that went back yields no rate.
//
// What it promises, each a test of the same name:
//   - ResetYieldsNoRate: a counter that went backwards or leapt beyond what the machine can do has no rate.
//   - GapYieldsNoRate: two samples further apart than the longest gap have no rate.
//   - NewContainerStartsFresh: a container that was not in the earlier sample has no rate.
//   - UnknownIsNotZero: a total of the machine that could not be read is not known, never no use.
//   - ThrottleIsBounded: Throttle, and every other share of time, lies in [0, 1] whatever the counters say.
//   - LeastIsEnforced: no limit from LeastLimit on is one that the kernel refuses or rounds up.
package sense

import (
	"fmt"
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
)

// Verdict says whether a rate can be believed.
type Verdict uint8

const (
	Fresh   Verdict = iota // two good samples: the rate holds
	First                  // no earlier sample to compare with
	Gap                    // the samples are too far apart, or no time passed
	Reset                  // a counter went back or leapt: the container restarted
	Missing                // the cgroup is not there
)

func (v Verdict) String() string {
	switch v {
	case Fresh:
		return "Fresh"
	case First:
		return "First"
	case Gap:
		return "Gap"
	case Reset:
		return "Reset"
	case Missing:
		return "Missing"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Rate is how one cgroup fared between two samples. Only a Fresh one has figures.
type Rate struct {
	Verdict Verdict
	Elapsed time.Duration
	Usage   cpu.Milli // mean use
	// Throttle is the share of CFS periods in which the group was throttled, in [0, 1];
	// 0 when no period passed because the group was idle or had no quota.
	Throttle float64
	// Pressure is the share of time in which some task waited for a CPU, in [0, 1].
	Pressure      float64
	PressureKnown bool
	QuotaKnown    bool      // false: the kernel does not say what is in force
	Quota         cpu.Milli // the limit in force; 0: none
	// LeastLimit is the lowest limit, in whole quanta, that the kernel takes for the group; 0: it does not say.
	LeastLimit cpu.Milli
	Stalls     *Stalls // nil: they are not read, or were not before
}

// Stalls are the shares of time in which, of the tasks that had anything to do, all waited for memory, or all for IO (PSI
// "full"). That some did says little: one of many threads may wait while the others work.
type Stalls struct{ Memory, IO Share }

// Share is a part of the time, in [0, 1], that the kernel may not tell. The zero value is an unknown one.
type Share struct {
	Known bool
	Part  float64
}

// Pod is one pod's rates. Containers stand in the order of the sample's.
type Pod struct {
	Own        Rate
	Containers []Rate
}

// Node is the whole machine's rates.
type Node struct {
	Verdict       Verdict
	Elapsed       time.Duration
	Usage         cpu.Milli // by everything
	UsageKnown    bool      // false: the kernel did not tell in one of the two samples
	Kubepods      cpu.Milli // by pods
	KubepodsKnown bool
	Pressure      float64
	PressureKnown bool
}

// Reading is what one round sees. Pods stand in the order of the later sample's.
type Reading struct {
	Node Node
	Pods []Pod
}

// Compare gives the rates between two samples. Samples further apart than longest yield no rates.
func Compare(before, after kernel.Sample, longest time.Duration) Reading {
	earlier := make(map[string]*kernel.Group, 2*len(before.Pods))
	pods := make(map[string]*kernel.Group, len(before.Pods))
	for i := range before.Pods {
		p := &before.Pods[i]
		pods[p.Pod] = &p.Own
		for j := range p.Containers {
			earlier[p.Containers[j].ID] = &p.Containers[j]
		}
	}
	r := Reading{Node: compareNodes(before.Node, after.Node, longest), Pods: make([]Pod, len(after.Pods))}
	for i := range after.Pods {
		p := &after.Pods[i]
		rates := make([]Rate, len(p.Containers))
		for j := range p.Containers {
			g := &p.Containers[j]
			rates[j] = compare(earlier[g.ID], g, longest)
		}
		r.Pods[i] = Pod{Own: compare(pods[p.Pod], &p.Own, longest), Containers: rates}
	}
	return r
}

// mostCores bounds what a machine can be believed to have used.
const mostCores = 4096

func compare(before, after *kernel.Group, longest time.Duration) Rate {
	if !after.Found {
		return Rate{Verdict: Missing}
	}
	if before == nil || !before.Found {
		return Rate{Verdict: First}
	}
	elapsed := after.At.Sub(before.At)
	if elapsed <= 0 || elapsed > longest {
		return Rate{Verdict: Gap}
	}
	a, b := after.Stat, before.Stat
	used := a.Usage - b.Usage
	if used < 0 || used > elapsed*mostCores || a.Periods < b.Periods || a.Throttled < b.Throttled {
		return Rate{Verdict: Reset}
	}
	r := Rate{Verdict: Fresh, Elapsed: elapsed, Usage: cpu.FromUsage(used, elapsed)}
	if periods := a.Periods - b.Periods; periods > 0 {
		r.Throttle = min(1, float64(a.Throttled-b.Throttled)/float64(periods))
	}
	r.Pressure, r.PressureKnown = share(before.Pressure, after.Pressure, elapsed)
	if x, y := before.Stalls, after.Stalls; x != nil && y != nil {
		r.Stalls = &Stalls{Memory: stall(x.Memory, y.Memory, elapsed), IO: stall(x.IO, y.IO, elapsed)}
	}
	if q := after.Quota; q.Period > 0 { // a group without a quota has a period, too
		r.Quota, r.QuotaKnown = cpu.FromUsage(q.Limit, q.Period), true
		r.LeastLimit = least(q)
	}
	return r
}

// least rounds up: the kubelet rounds a limit's quota down to a microsecond.
func least(q kernel.Quota) cpu.Milli {
	millis := math.Ceil(float64(q.Least()) * float64(cpu.Core) / float64(q.Period))
	return cpu.FromCores(millis / float64(cpu.Core)).RoundUp(cpu.Quantum)
}

func compareNodes(before, after kernel.NodeSample, longest time.Duration) Node {
	if before.At.IsZero() {
		return Node{Verdict: First}
	}
	elapsed := after.At.Sub(before.At)
	if elapsed <= 0 || elapsed > longest {
		return Node{Verdict: Gap}
	}
	n := Node{Verdict: Fresh, Elapsed: elapsed}
	all, allOK := spent(before.Usage, after.Usage)
	pods, podsOK := spent(before.Kubepods, after.Kubepods)
	if all < 0 || pods < 0 || all > elapsed*mostCores || pods > elapsed*mostCores {
		return Node{Verdict: Reset}
	}
	n.Usage, n.UsageKnown = cpu.FromUsage(all, elapsed), allOK
	n.Kubepods, n.KubepodsKnown = cpu.FromUsage(pods, elapsed), podsOK
	n.Pressure, n.PressureKnown = share(before.Pressure, after.Pressure, elapsed)
	return n
}

// spent is the CPU time between two readings of a counter; not ok where one of them is missing.
func spent(before, after kernel.Total) (time.Duration, bool) {
	if !before.Known || !after.Known {
		return 0, false
	}
	return after.Time - before.Time, true
}

// share is the part of elapsed in which some task waited. The kernel may count a little more than elapsed.
func share(before, after kernel.Pressure, elapsed time.Duration) (float64, bool) {
	if !before.Known || !after.Known || after.Some < before.Some {
		return 0, false
	}
	return min(1, float64(after.Some-before.Some)/float64(elapsed)), true
}

// stall is the part of elapsed in which all tasks waited that had anything to do.
func stall(before, after kernel.Pressure, elapsed time.Duration) Share {
	if !before.Known || !after.Known || after.Full < before.Full {
		return Share{}
	}
	return Share{Known: true, Part: min(1, float64(after.Full-before.Full)/float64(elapsed))}
}

// Package kernel reads what the kernel counts about every container: CPU time,
// CFS periods and throttling, the quota in force and CPU pressure (if asked, memory and
// IO pressure, too), from cgroup v2, v1 and hybrid trees. It reports counters in the kernel's words and draws
// no conclusion from them.
//
// It needs to read the cgroup mount and /proc, and no privilege. Its promises, each a test:
//   - Layouts: in every layout seen in the field exactly the right cgroups are
//     read; where it can't be sure which are ours, Open says why.
//   - Gone: a removed cgroup is not found; one made again in its place is
//     read anew, never through an old file.
//   - Descriptors: files of what is no longer asked for are closed.
//   - Quiet: faults that last are logged once a minute, missing pressure once.
//   - OddTexts: no content of a file makes a parser panic or allocate much.
//   - ReadDoesNotAllocate: a Read makes its Sample and nothing else.
//   - StallsOnlyWhenAsked: memory and IO pressure are neither opened nor read unless Config.Stalls says so.
//   - RealBounds: the kernel takes Quota.Least for a limit, and nothing below it.
package kernel

import "time"

// Target names a pod whose counters are wanted.
type Target struct {
	// Pod is the UID that the kubelet puts in the pod's cgroup path: the API UID,
	// or the value of the annotation kubernetes.io/config.hash for a static pod.
	// Dashes do not matter.
	Pod string
	// Containers are the runtime's container IDs, without "containerd://" or the like.
	Containers []string
}

// Sample is one reading of a node. Pods stand in the order of the targets.
type Sample struct {
	Node NodeSample
	Pods []PodSample
}

// NodeSample is what the kernel counts for the whole machine.
type NodeSample struct {
	At       time.Time // when it was read; differences are monotonic
	Usage    Total     // by everything on the machine, in steps of 10 ms
	Kubepods Total     // the part of Usage spent below the kubepods cgroup
	Pressure Pressure  // of the whole machine
}

// Total is a counter of CPU time that may not be readable. The zero value is an unknown one.
type Total struct {
	Known bool
	Time  time.Duration
}

// KnownTotal is a total that could be read.
func KnownTotal(t time.Duration) Total { return Total{Known: true, Time: t} }

// PodSample is one pod's reading. Containers stand in the order of the target's.
type PodSample struct {
	Pod        string // as the target named it
	Own        Group  // the pod's own cgroup: its quota throttles apart from the containers'
	Containers []Group
}

// Group is one cgroup's reading.
type Group struct {
	ID    string    // the container ID; empty for a pod's own cgroup
	Found bool      // false: no such cgroup, or it vanished while being read; the rest is zero
	At    time.Time // when it was read
	Stat  Stat
	Quota Quota

	Pressure Pressure // for a CPU
	Stalls   *Stalls  // nil: Config.Stalls does not ask, or this is a pod's own cgroup
}

// Stalls is the pressure of a container for what no limit of CPU gives.
type Stalls struct {
	Memory Pressure // memory.pressure: reclaim, refaults and swapping in
	IO     Pressure // io.pressure
}

// Stat holds counters of cpu.stat. They only grow while the cgroup lives.
type Stat struct {
	// Usage is CPU time consumed (usage_usec; cpuacct.usage on v1). Hierarchical.
	Usage time.Duration
	// Periods counts CFS periods in which the group was runnable and had a quota.
	Periods uint64
	// Throttled counts the periods in which at least one CPU's run queue was
	// held back. This and Periods are not hierarchical.
	Throttled uint64
	// ThrottledTime is summed over CPUs, so it grows with threads. It is for
	// people to look at; decisions use Throttled / Periods.
	ThrottledTime time.Duration
}

// Quota is the CFS bandwidth in force: Limit of CPU time in each Period. It is zero where the kernel has no such files;
// where it has them but no quota is set, only the Limit is.
type Quota struct {
	Limit  time.Duration // 0: no quota
	Period time.Duration
	Burst  time.Duration // cpu.max.burst: the kernel refuses a Limit below it
}

// minQuota is the least quota of a period that the kernel takes, however long the period is
// (kernel/sched/core.c min_cfs_quota_period).
const minQuota = time.Millisecond

// Min is the lowest Limit that the kernel takes at this Period and Burst; 0 where it has no such files.
func (q Quota) Min() time.Duration {
	if q.Period <= 0 {
		return 0
	}
	return max(minQuota, q.Burst)
}

// Pressure is the time in which tasks waited for something, from the "total" of a pressure file: in Some at least
// one did, in Full nothing else was going on. That for a CPU includes time held back by the quota.
type Pressure struct {
	Known bool // false: the kernel offers no pressure here
	Some  time.Duration
	Full  time.Duration // 0 where the kernel prints no "full" line
}

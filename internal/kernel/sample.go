// Package kernel reads the kernel's counters of every container: CPU time, CFS periods and
// throttling, the quota in force and CPU pressure (optionally memory and IO pressure), from cgroup
// v2, v1 and hybrid trees. It reports counters and draws no conclusion from them.
//
// It needs the cgroup mount and /proc, and no privilege. Its promises, each a test:
//   - Layouts: in every layout seen in the field exactly the right cgroups are read; where it is
//     not certain which those are, Open says why.
//   - Gone: a removed cgroup is not found; one that is created again in its place is opened again,
//     never read through an old file.
//   - BlockedReadCostsItsPod: a file whose read does not end costs the figures of its pod, until it ends.
//   - Descriptors: files that no target needs any more are closed.
//   - Quiet: lasting faults are logged once a minute, missing pressure once.
//   - OddTexts: no content of a file makes a parser panic or allocate much.
//   - ReadDoesNotAllocate: a Read allocates its Sample and nothing else.
//   - MemoryIOPressureIsOptional: memory and IO pressure are opened and read only with
//     Config.MemoryIOPressure.
//   - QuotasAreReadRarely: a quota that enforces the limit in the pod's spec is read at FullReadInterval alone; another
//     one in each Read, and any change of the spec's limit makes it another one.
//   - PressureIsReadRarely: while CPUs are idle, the pressure of a container is read at FullReadInterval alone.
//   - ReadsPerRound: how many files a Read reads, on a quiet node and on a full one.
//   - LookReadsCountersAlone: a Look reads the idle time and the usage and throttling of its targets. It
//     looks nothing up and opens no file.
//   - BlockedReadEndsALook: where the read of a pod does not end, a Look does within a tenth of a second.
//   - FindOpensNewPods: a Find opens and reads the cgroups of its targets alone, and a Look reads them from
//     then on, until a Read does not have them among its targets.
//   - RealBounds: the kernel accepts Quota.Min as a limit, and nothing below it.
package kernel

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Target is a pod to read.
type Target struct {
	// Pod is the UID that the kubelet puts in the pod's cgroup path: the API UID,
	// or the value of the annotation kubernetes.io/config.hash for a static pod.
	// Dashes are ignored.
	Pod string
	// Containers are the runtime's container IDs, without "containerd://" or the like.
	Containers []string
	// Limits are the limits in the pod's spec, in the order of Containers; 0: none. Quotas that enforce
	// them are read at FullReadInterval alone. Nil: they are not known, and each Read reads the quotas.
	Limits []cpu.Milli
}

// Sample is the counters of a node at one time. Pods are in the order of the targets.
type Sample struct {
	Node NodeSample
	Pods []PodSample
}

// NodeSample is the counters of the whole machine.
type NodeSample struct {
	At       time.Time // when it was read; differences are monotonic
	Usage    Total     // of the whole machine, in steps of 10 ms
	Kubepods Total     // the part of Usage spent below the kubepods cgroup
	Pressure Pressure  // of the whole machine
	// Idle is the time in which CPUs had nothing to do and waited for no IO, summed over them.
	Idle Total
}

// Total is a counter of CPU time that may be unknown, as the zero value is.
type Total struct {
	Known bool
	Time  time.Duration
}

// KnownTotal is a total that was read.
func KnownTotal(t time.Duration) Total { return Total{Known: true, Time: t} }

// PodSample is the counters of a pod. Containers are in the order of the target's.
type PodSample struct {
	Pod        string // as the target named it
	Own        Group  // the pod's own cgroup, with its own quota and throttling
	Containers []Group
	Blocked    bool // a read of one of its files does not end, so nothing of it is read
}

// Group is the counters of one cgroup.
type Group struct {
	ID    string    // the container ID; empty for a pod's own cgroup
	Found bool      // false: no such cgroup, or it was removed while being read; the rest is zero
	At    time.Time // when it was read
	Stat  Stat
	Quota Quota // as last read: see Target.Limits

	// Pressure is that for a CPU as last read: see Config.PressureFrom. It is not read of a pod's own
	// cgroup.
	Pressure   Pressure
	PressureAt time.Time // when it was read, if that was before At
	Stalls     *Stalls   // nil: not read, or the pod's own cgroup
}

// PressureTime is when the pressure was read.
func (g *Group) PressureTime() time.Time {
	if g.PressureAt.IsZero() {
		return g.At
	}
	return g.PressureAt
}

// Stalls is the pressure of a container for resources other than CPU.
type Stalls struct {
	Memory Pressure // memory.pressure: reclaim, refaults and swapping in
	IO     Pressure // io.pressure
}

// Stat holds counters of cpu.stat. They only grow while the cgroup lives.
type Stat struct {
	// Usage is CPU time consumed (usage_usec; cpuacct.usage on v1). Hierarchical. On v1 and hybrid it
	// is not read of a pod's own cgroup.
	Usage time.Duration
	// Periods counts CFS periods in which the group was runnable and had a quota.
	Periods uint64
	// Throttled counts the periods in which at least one CPU's run queue was throttled. This and
	// Periods are not hierarchical.
	Throttled uint64
	// ThrottledTime is summed over CPUs, so it grows with threads. It is shown only, and not recorded; decisions
	// use Throttled / Periods.
	ThrottledTime time.Duration `delta:"-"`
}

// Quota is the CFS bandwidth in force: Limit of CPU time in each Period. It is zero where the
// kernel has no such files. Where no quota is set, only the Limit is zero.
type Quota struct {
	Limit  time.Duration // 0: no quota
	Period time.Duration
	Burst  time.Duration // cpu.max.burst: the kernel refuses a Limit below it
}

// minQuota is the least quota that the kernel accepts for a period of any length
// (kernel/sched/core.c min_cfs_quota_period).
const minQuota = time.Millisecond

// Min is the lowest Limit that the kernel accepts at this Period and Burst; 0 where it has no such
// files.
func (q Quota) Min() time.Duration {
	if q.Period <= 0 {
		return 0
	}
	return max(minQuota, q.Burst)
}

// Enforces says whether the quota is that of a limit. No quota is that of no limit.
func (q Quota) Enforces(limit cpu.Milli) bool {
	if q.Limit <= 0 || q.Period <= 0 || limit <= 0 {
		return q.Limit <= 0 && limit <= 0
	}
	return q.Distance(limit) <= cpu.Quantum
}

// Distance is how far the quota is from that of a limit, in thousandths of a core. The kubelet sets at
// least Min.
func (q Quota) Distance(limit cpu.Milli) cpu.Milli {
	limit = max(limit, cpu.FromUsage(q.Min(), q.Period))
	quota := cpu.FromUsage(q.Limit, q.Period)
	return max(limit-quota, quota-limit)
}

// Pressure is the time in which tasks waited for a resource, from the "total" of a pressure file:
// in Some at least one waited, in Full all that had work. CPU pressure includes time throttled by
// the quota.
type Pressure struct {
	Known bool // false: the kernel has no pressure here
	Some  time.Duration
	Full  time.Duration // 0 where the kernel prints no "full" line, and for the CPU pressure of containers
}

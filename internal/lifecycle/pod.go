package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Node is what decisions depend on in a node and in the installation.
type Node struct {
	// Suspended is why nothing is resized anywhere; "" where resizes are possible.
	Suspended reasons.Reason
	Unknown   bool // the API server has no such node
	Ready     bool
	// ReadySince is when Ready last changed; zero: not known.
	ReadySince time.Time
	Pressure   bool // short of disk or PIDs: its kubelet defers every resize
	// ShuttingDown and Draining: its kubelet is about to stop, or its pods are about to go.
	ShuttingDown, Draining bool
	// LeaseAge is the time since the agent was last seen to renew its Lease, on our own clock.
	LeaseAge time.Duration
	// Outage: so many agents are unresponsive that the cause is likely not theirs. LeaseUnread: the
	// Lease could not be read from the API server itself, or is newer there than in the cache.
	Outage, LeaseUnread bool
}

// Mode is what happens in a namespace.
type Mode string

// Modes, as the label mbcas.io/mode writes them.
const (
	ModeOff       Mode = "off"
	ModeRecommend Mode = "recommend"
	ModeEnforce   Mode = "enforce"
	ModeRestore   Mode = "restore"
)

// Pod is what decisions depend on in one pod, with what is recorded and remembered of it.
type Pod struct {
	UID  string
	Mode Mode
	// Ended: its containers have ended for good, or it is being deleted. Deleted: it is being
	// deleted.
	Ended, Deleted bool
	Ready          bool
	// ReadySince is since when the pod is Ready; zero where it is not.
	ReadySince time.Time
	// UnreadySince is when the kubelet found the pod not Ready; zero where it is Ready, or where
	// the node controller says so.
	UnreadySince time.Time
	Evicted      bool // a taint of its node evicts it
	Containers   []Container
	// OwnWrites: MBCAS wrote one of its limits for certain.
	OwnWrites bool
	Progress  actuator.Progress
	// Said is what the kubelet says of the resize.
	Said string
	// Quota is the CPU quota of the pod's own cgroup where that is not the one of its limits, as its agent found.
	Quota Quota
	// QuotasReported is when the agent reported all such quotas last; zero: it does not at present.
	QuotasReported time.Time
	// LatestWins: of several resizes in flight the kubelet carries the latest out, and it says which one its
	// reports are about. QuotaShort: a ResourceQuota has too little room for all pods that it counts.
	LatestWins, QuotaShort bool

	// Recorded: the pod has a PodAllocation, of which Status and Decision are.
	Recorded bool
	Status   Status
	Decision *Decision // nil: none yet
	// Declared are the limits that the owner declared; nil: not known. InLedger: the ledger holds
	// them.
	Declared Limits
	InLedger bool

	// Excluded is why the market may not manage the pod.
	Excluded Cause
	// Refused is why the API server refuses every resize of the pod.
	Refused Cause
	// TooLarge: no object of MBCAS can hold its limits.
	TooLarge bool
	// NotPublished: its last change is not published, as the API server refuses it or the NodeAllocation is full.
	NotPublished bool
	// UnknownAutoscaler is what is not known of autoscalers; "" where all is. The pod may belong to
	// one of them.
	UnknownAutoscaler string
	// NoDecrease is the constraint for which the pod must not be decreased.
	NoDecrease reasons.Reason
	// HPA: an HPA watches the CPU use of the pod, so decreases are far between.
	HPA bool
	// Ceiling bounds the total limit; 0: no bound.
	Ceiling cpu.Milli
	// StartupBoost is the factor on the declared limits while the pod starts; 0: none.
	StartupBoost float64

	// Resolved: what the last resize was refused for has changed since.
	Resolved bool
	// Sent is the resize to which the API server has not answered yet; nil: there is none. Queued: one
	// waits for its turn.
	Sent   *actuator.Move
	Queued bool
	Memory Memory
}

// Memory is what the process remembers of a pod beyond its record. All of it may be lost.
type Memory struct {
	// RetryAt is when a resize may be tried again that the API server did not answer, Troubles
	// times in a row.
	RetryAt  time.Time
	Troubles int
	// RestoreRefused: the last refused resize was a restore.
	RestoreRefused bool
	// Witnessed: this process has seen the pod at the limits that are recorded as applied, and has
	// sent Sent since. So any other limit is of another writer.
	Witnessed bool
	Sent      Limits
	// FirstReady is when the pod became Ready first, as far as this process has seen; zero: never.
	FirstReady time.Time
	// WaitsSince is when the increase of the pod began to wait for decreases: see Task.WaitsSince.
	WaitsSince time.Time
	Repairs    Repairs
}

// Send notes a resize that was sent: its answer may be lost.
func (m *Memory) Send(move actuator.Move) {
	m.Sent = nil
	for _, c := range move.Changes {
		m.Sent = append(m.Sent, Limit{c.Container, c.To})
	}
}

// Witness notes what the process sees of the pod.
func (m *Memory) Witness(p *Pod) {
	m.Repairs.witness(p)
	if p.Ready && m.FirstReady.IsZero() {
		m.FirstReady = p.ReadySince
	}
	m.Witnessed = m.Witnessed || p.Recorded && p.Declared != nil && p.Current().Equal(p.LastApplied())
}

// Quota is the CPU quota of a pod's own cgroup; the zero value: nothing is wrong with it, as far as is known.
type Quota struct {
	CPU    cpu.Milli // as the kernel has it
	Wanted cpu.Milli // that which the kubelet computes from the limits; 0: none
}

// Wrong says whether the quota is another than the limits call for.
func (q Quota) Wrong() bool { return q.CPU > 0 && q.Wanted > 0 && q.CPU != q.Wanted }

// Low says whether the quota throttles the pod below its limits.
func (q Quota) Low() bool { return q.Wrong() && q.CPU < q.Wanted }

// String is a sentence about a wrong quota.
func (q Quota) String() string {
	return fmt.Sprintf("it is %v, and the limits call for %v", q.CPU, q.Wanted)
}

// Container is one container of a pod.
type Container struct {
	Name  string
	Limit cpu.Milli // in the pod's spec; 0: none
	// InForce is the limit that the kubelet reports of a running container; 0: not known.
	InForce cpu.Milli
	// Own: MBCAS wrote Limit for certain. PossiblyOwn: it may have.
	Own, PossiblyOwn bool
	// ResizedByOther is when another manager last resized the container and wrote Limit; zero: none did
	// since the pod was first recorded, or it is not known.
	ResizedByOther time.Time
	// Settable is the lowest limit that a resize sets.
	Settable cpu.Milli
	// RestoreFloor is the lowest limit that a restore can set where the CPU request was raised above
	// the declared limit; 0 where it was not.
	RestoreFloor cpu.Milli
	// Floor and Ceiling bound the limit; NoDecreaseFloor is the floor of a pod that must not be
	// decreased.
	Floor, NoDecreaseFloor, Ceiling cpu.Milli
	// StartedAt is when the running container started; zero: it does not run.
	StartedAt time.Time
	// NotRunning: the kubelet carries no resize of it out now, so it is not raised: see kube.Container.
	NotRunning bool
	// FailedStart: the runtime could not start it when it tried last, at FailedAt; zero: the kubelet does not say when.
	FailedStart bool
	FailedAt    time.Time
	// Completed: it has ended and is not started again, so its limit no longer matters.
	Completed bool
	Restarts  int
	// EndedAt are the times at which the container ended, as far as the kubelet reports them.
	EndedAt []time.Time
}

// Decision is what the agent decided.
type Decision struct {
	Limits Limits
	Age    time.Duration // since the agent is known to have stood by it, on our own clock
	// Unconfirmed is for how long the agent has said, with each renewal of its Lease, that it does not
	// stand by it.
	Unconfirmed time.Duration
	Price       market.Price
	Demand      cpu.Milli
	Budget      market.Budget
	// AtFloor: the floor binds the limit.
	AtFloor bool
	// RevokedFor is for how much longer the pod is not raised above its declared limit, as a raise was revoked; 0: it may
	// be.
	RevokedFor time.Duration
	// Throttled: a container was throttled in enough of its periods to count.
	Throttled bool
}

// Cause is a reason with what its sentence does not know; the zero value is none.
type Cause struct {
	Reason reasons.Reason
	Detail string
}

// Limit is the CPU limit of one container.
type Limit struct {
	Container string
	CPU       cpu.Milli
}

// Limits are those of a pod's containers.
type Limits []Limit

// Of is the limit of a container; 0 where there is none.
func (l Limits) Of(container string) cpu.Milli {
	limit, _ := l.find(container)
	return limit
}

func (l Limits) find(container string) (cpu.Milli, bool) {
	for _, x := range l {
		if x.Container == container {
			return x.CPU, true
		}
	}
	return 0, false
}

// Total is the sum of the limits.
func (l Limits) Total() (sum cpu.Milli) {
	for _, x := range l {
		sum += x.CPU
	}
	return sum
}

// Equal says whether two sets of limits are the same, whatever their order.
func (l Limits) Equal(other Limits) bool {
	return len(l) == len(other) && !slices.ContainsFunc(l, func(x Limit) bool {
		limit, ok := other.find(x.Container)
		return !ok || limit != x.CPU
	})
}

// String is the limits as people read them: app=500m, proxy=100m.
func (l Limits) String() string {
	parts := make([]string, len(l))
	for i, x := range l {
		parts[i] = x.Container + "=" + x.CPU.String()
	}
	return strings.Join(parts, ", ")
}

// Current are the limits in the pod's spec, of the containers whose declared limits are known.
func (p *Pod) Current() Limits {
	var limits Limits
	for _, c := range p.Containers {
		if p.managed(c) {
			limits = append(limits, Limit{c.Name, c.Limit})
		}
	}
	return limits
}

// Throttled says whether the pod is throttled, as its agent said last, or demands at least what its
// limits let it have. Bursts are throttled at a mean demand below the limit.
func (p *Pod) Throttled() bool {
	d := p.Decision
	return d != nil && (d.Throttled || d.Demand > 0 && d.Demand >= p.Current().Total())
}

// NeedsMore says whether the pod is throttled, and the decision about it has a higher limit.
func (p *Pod) NeedsMore() bool {
	return p.Throttled() && p.Decision.Limits.Total() > p.Current().Total()
}

// managed says whether the container's limit is one that MBCAS resizes.
func (p *Pod) managed(c Container) bool {
	_, ok := p.Declared.find(c.Name)
	return ok && c.Limit > 0
}

// RestoreLimits are the limits that a restore returns to: the declared ones, but for containers whose
// CPU request was raised above them, as the API server takes no limit below the request. A container that has ended
// for good is not raised.
func (p *Pod) RestoreLimits() Limits {
	limits := slices.Clone(p.Declared)
	for i, l := range limits {
		for _, c := range p.Containers {
			if c.Name == l.Container {
				if limits[i].CPU = max(l.CPU, c.RestoreFloor); c.Completed {
					limits[i].CPU = min(limits[i].CPU, c.Limit)
				}
			}
		}
	}
	return limits
}

// LastApplied are the limits that MBCAS last applied; the declared ones if none.
func (p *Pod) LastApplied() Limits { return p.Status.lastApplied(p.Declared) }

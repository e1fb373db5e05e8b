package feedback

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

const (
	// gitpodInterval is the time between two calls.
	gitpodInterval = 15 * time.Second
	// gitpodBurst times the declared limit is the burst limit. In Gitpod both limits are set per
	// workspace by its operator, so this factor is our choice: three times, as much as
	// Koordinator's bursts get at most.
	gitpodBurst = 3
)

// Gitpod is the distributor of CPU limits in Gitpod's ws-daemon (gitpod-io/gitpod,
// components/ws-daemon/pkg/cpulimit). It gives the burst limit to pods that were throttled in the
// last interval, those of the higher class first, then those that have used least, as long as
// bandwidth is left; the rest get their fixed limit. A burst limit counts in full, and the last one
// granted may go beyond the bandwidth.
//
// Kept from the original: pods that it doesn't manage are not counted; a pod that was never
// throttled before the last interval does not count as throttled. Not kept: when a workspace ends,
// the original skips turns until the others have used as much; here the ended pod just drops out.
type Gitpod struct {
	pods  map[int]*workspace
	start bool // some pod has been seen
}

// workspace is the state of one pod.
type workspace struct {
	first, usage      time.Duration // CPU time when it was first seen, and last
	before, throttled uint64        // periods, at the last two samples
}

// NewGitpod is the published algorithm at 15 s.
func NewGitpod() *Gitpod { return &Gitpod{pods: map[int]*workspace{}} }

// Decide implements sim.Policy.
func (g *Gitpod) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	next := r.Now + gitpodInterval
	var pods []*sim.PodSnapshot
	var used time.Duration
	for p := range r.Managed() {
		pods = append(pods, p)
		w := g.pods[p.ID]
		if w == nil {
			g.pods[p.ID] = &workspace{first: p.Usage, usage: p.Usage, throttled: p.Throttled}
			continue
		}
		used += p.Usage - w.usage
		w.usage, w.before, w.throttled = p.Usage, w.throttled, p.Throttled
	}
	if !g.start {
		g.start = len(pods) > 0
		return nil, next
	}
	slices.SortStableFunc(pods, func(a, b *sim.PodSnapshot) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(g.spent(a), g.spent(b)))
	})
	booked := cpu.FromUsage(used, gitpodInterval)
	var actions []sim.Action
	for _, p := range pods {
		limit := p.Spec.Limit.Cores()
		if w := g.pods[p.ID]; booked < r.Allocatable && w.before > 0 && w.before != w.throttled {
			limit *= gitpodBurst
			booked += cpu.FromCores(limit)
		}
		if a, changes := setCgroupLimit(p, limit); changes {
			actions = append(actions, a)
		}
	}
	return actions, next
}

// spent is the CPU time that a pod has used since it was first seen.
func (g *Gitpod) spent(p *sim.PodSnapshot) time.Duration { return p.Usage - g.pods[p.ID].first }

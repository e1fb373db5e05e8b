package agent

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// report is the round for /debug/round.
func report(r *roundResult) allocation.RoundReport {
	n, skipped := r.Output.Node, r.Output.Skipped
	out := allocation.RoundReport{
		At: r.At.Round(0), Took: r.Duration.String(),
		Node: allocation.NodeReport{
			Price: float64(n.Price), Cleared: float64(n.Cleared),
			Supply: n.Supply, Demand: n.Demand, SignalDemand: n.SignalDemand, Usage: n.Usage,
			System: n.System, SystemKnown: n.SystemKnown,
			Pressure: n.Pressure.Optional(), FloorsExceedSupply: n.FloorsExceedSupply,
			Managed: n.Bidders, Unmanaged: n.Unmanaged,
			WarmingUp: skipped.WarmingUp, Stale: skipped.Stale, Unenforced: skipped.Unenforced,
		},
		Pods: make([]allocation.PodReport, 0, len(r.Output.Decisions)),
	}
	for _, d := range r.Output.Decisions {
		p := podReport(r.Snapshot.Refs[d.Pod], d)
		p.Limit = r.Snapshot.Pods[d.Pod].Pod.Limit()
		out.Pods = append(out.Pods, p)
	}
	return out
}

func podReport(ref podRef, d round.Decision) allocation.PodReport {
	p := allocation.PodReport{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		Desired: d.Limit, Containers: make(map[string]cpu.Milli, len(d.Containers)),
		Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottleRatio, Pressure: d.Pressure.Optional(),
		Budget: int64(d.Budget), Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: v1alpha1.BoundBy(d.Bound.String()),
	}
	if s := d.Stalls; s != nil {
		p.MemoryPressure, p.IOPressure = s.Memory.Optional(), s.IO.Optional()
	}
	for _, c := range d.Containers {
		p.Containers[c.Name] = c.Limit
	}
	return p
}

// standing is which published decisions the agent stands by, and the market of the last round: what it
// says with each renewal of the Lease.
type standing struct {
	mu     sync.Mutex
	market allocation.NodeMarket
	// decided is when the agent last stood by the published decision of each pod that has one; zero:
	// not since the agent started.
	decided map[types.UID]time.Time
	// settled: since its start the agent has decided on each pod that has a published decision.
	settled bool
}

// unconfirmedAfter is how long a decision stays confirmed about which the agent cannot decide anew:
// its counters are not readable, or another decision cannot be published. Shorter holds resizes up
// for every container that restarts; longer has old decisions applied.
const unconfirmedAfter = 30 * time.Second

// update takes in a round.
func (s *standing) update(r *roundResult) {
	n := r.Output.Node
	m := allocation.NodeMarket{
		Price: n.Price, Supply: n.Supply, Demand: n.Demand, Usage: n.Usage,
		Managed: n.Bidders, Full: n.FloorsExceedSupply,
		Quotas: r.Quotas.Wrong, QuotasUnread: r.Quotas.Unread,
	}
	decided := make(map[types.UID]time.Time, len(r.Snapshot.Pods))
	open := map[types.UID]bool{} // a decision is published, and none was made since the start
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range r.Snapshot.Unread {
		decided[uid], open[uid] = s.decided[uid], s.decided[uid].IsZero()
	}
	if !r.Snapshot.Told {
		m.Unconfirmed = allocation.AllPods // what is published is not known
	}
	for i, p := range r.Snapshot.Pods {
		if p.Published.Limits == nil {
			continue
		}
		uid := r.Snapshot.Refs[i].UID
		decided[uid], open[uid] = s.decided[uid], s.decided[uid].IsZero()
		if p.Published.At.After(m.Epoch.Time) {
			m.Epoch.Time = p.Published.At
		}
	}
	for _, d := range r.Output.Decisions {
		uid := r.Snapshot.Refs[d.Pod].UID
		if _, published := decided[uid]; published && !d.Publish {
			decided[uid] = r.At
		}
		if d.Publish {
			m.Waiting++
		}
		if d.Bound == market.ByPrice {
			m.Capped++
		}
		delete(open, uid)
	}
	maps.DeleteFunc(open, func(_ types.UID, open bool) bool { return !open })
	m.Round = s.market.Round + 1
	s.market, s.decided, s.settled = m, decided, len(open) == 0
}

// isSettled says whether a renewal tells more than that the agent has just started.
func (s *standing) isSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// say is the annotation for a renewal.
func (s *standing) say(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unconfirmed []types.UID
	for uid, at := range s.decided {
		if now.Sub(at) > unconfirmedAfter {
			unconfirmed = append(unconfirmed, uid)
		}
	}
	m := s.market
	if m.Unconfirmed == "" {
		m.Unconfirmed = allocation.UnconfirmedOf(unconfirmed)
	}
	return m.Text()
}

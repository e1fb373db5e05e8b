package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// TestStandsBy: the agent confirms the decisions that it makes anew with each round, and not one that
// it could not make for half a minute, or never made, or wants to replace.
func TestStandsBy(t *testing.T) {
	var s standing
	uids := []types.UID{"steady-pod", "silent-pod", "change-pod", "undecided-pod"}
	tick := func(at time.Duration, decided ...int) {
		r := &roundResult{At: t0.Add(at), Snapshot: &snapshot{Told: true}, Output: round.Output{Node: round.NodeDecision{Price: 0.5, Supply: 3600}}}
		for i, uid := range uids {
			p := round.PodInput{Pod: demand.Pod{UID: string(uid)}}
			if i < 3 {
				p.Published.At, p.Published.Limits = t0.Add(time.Duration(i-10)*time.Minute), map[string]cpu.Milli{}
			}
			r.Snapshot.Refs, r.Snapshot.Pods = append(r.Snapshot.Refs, podRef{UID: uid}), append(r.Snapshot.Pods, p)
		}
		for _, i := range decided {
			r.Output.Decisions = append(r.Output.Decisions, round.Decision{UID: string(uids[i]), Pod: i, Publish: i == 2 && at > 0})
		}
		s.update(r)
	}
	check := func(at time.Duration, want ...types.UID) {
		t.Helper()
		m, err := allocation.ParseNodeMarket(s.say(t0.Add(at)))
		if err != nil || m.Unconfirmed != allocation.UnconfirmedOf(want) || m.Price != 0.5 || m.Supply != 3600 ||
			!m.Epoch.Equal(t0.Add(-8*time.Minute)) {
			t.Errorf("after %v the agent says %+v (%v), want %v unconfirmed", at, m, err, want)
		}
	}
	tick(-time.Second)
	check(-time.Second, uids[:3]...) // the first round after a start decides nothing
	tick(0, 0, 1, 2, 3)
	check(0)
	tick(time.Second, 0, 2, 3)
	check(time.Second)
	tick(31*time.Second, 0, 2)
	check(31*time.Second, uids[1:3]...)
	uids = uids[:2] // the pod has gone
	tick(40*time.Second, 0, 1)
	if m, _ := allocation.ParseNodeMarket(s.say(t0.Add(40 * time.Second))); m.Unconfirmed != "" || m.Round != 5 {
		t.Errorf("the agent says %+v, want all confirmed in round 5", m)
	}
	unread := roundOf(t0.Add(41*time.Second), true)
	unread.Snapshot.Unread = []types.UID{"unread-pod"}
	s.update(unread)
	if m, _ := allocation.ParseNodeMarket(s.say(unread.At)); !m.Unconfirmed.Has("unread-pod") || m.Unconfirmed.Has("a-pod") || s.isSettled() {
		t.Errorf("the agent says %+v, want a decision that it has not read yet unconfirmed", m)
	}
	untold := &roundResult{Snapshot: &snapshot{}}
	s.update(untold)
	if m, _ := allocation.ParseNodeMarket(s.say(t0)); m.Unconfirmed != allocation.AllPods {
		t.Errorf("without a NodeAllocation the agent says %+v, want that it stands by nothing", m)
	}
}

// TestSaysMarket: the Lease has the node's market: pods that bid, pods that the price caps, decisions that wait,
// whether the floors exceed the supply, and wrong quotas.
func TestSaysMarket(t *testing.T) {
	r := roundOf(t0, true)
	r.Snapshot.Refs = []podRef{{UID: "capped"}, {UID: "waiting"}, {UID: "floored"}, {UID: "idle"}}
	r.Output = round.Output{
		Node: round.NodeDecision{Price: 2, Supply: 3600, Demand: 9000, Usage: 3500, Bidders: 4, FloorsExceedSupply: true},
		Decisions: []round.Decision{
			{Pod: 0, Bound: market.ByPrice}, {Pod: 1, Bound: market.ByPrice, Publish: true},
			{Pod: 2, Bound: market.ByFloor}, {Pod: 3},
		},
	}
	quotas := allocation.Quotas{}
	quotas.Add("capped", allocation.Quota{Generation: 2, CPU: 500})
	r.Quotas = quotaReport{Wrong: quotas, Unread: true}
	var s standing
	s.update(r)
	m, err := allocation.ParseNodeMarket(s.say(t0))
	want := allocation.NodeMarket{
		Quotas: quotas, QuotasUnread: true,
		Round: 1, Price: 2, Supply: 3600, Demand: 9000, Usage: 3500, Managed: 4, Capped: 2, Waiting: 1, Full: true,
	}
	if m.Unconfirmed, m.Epoch = "", want.Epoch; err != nil || !cmp.Equal(m, want) {
		t.Errorf("the Lease says %+v (%v), want %+v", m, err, want)
	}
}

// Package markets keeps what the agents say of the markets of their nodes, with each renewal of their
// Leases: the price, and which decisions the renewal does not confirm.
//
// What it promises, each a test of the same name:
//   - LeaseConfirms: a renewal confirms the decisions that it does not name, and none while the cache
//     shows no decision as new as the agent knew it a while ago.
package markets

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

// Markets are those of all nodes.
type Markets struct {
	Leases    client.Reader // the cache
	Namespace string        // of the Leases

	mu    sync.Mutex
	nodes map[string]node
}

type node struct {
	said allocation.NodeMarket
	// epochSeen is when its epoch was first seen, on our own clock, and lastEpoch the one before it.
	epochSeen, lastEpoch time.Time
}

// epoch is that of the decisions which a cache must show by now.
func (n node) epoch(now time.Time) time.Time {
	if now.Sub(n.epochSeen) < kube.CacheLag {
		return n.lastEpoch
	}
	return n.said.Epoch.Time
}

// Renewed takes in a Lease, and says whether it confirms other decisions than the renewal before it, or
// reports other quotas as wrong.
func (m *Markets) Renewed(lease *coordinationv1.Lease, now time.Time) (changed bool) {
	name, ok := kube.AgentLeaseNode(lease)
	if !ok {
		return false
	}
	said, err := allocation.ParseNodeMarket(lease.Annotations[kube.MarketKey])
	if err != nil { // an agent that says nothing confirms nothing
		said = allocation.NodeMarket{Unconfirmed: allocation.AllPods, QuotasUnread: true}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.nodes[name]
	if !said.Epoch.Equal(last.said.Epoch.Time) {
		last.lastEpoch, last.epochSeen = last.epoch(now), now
	}
	changed = last.said.Unconfirmed != said.Unconfirmed ||
		!maps.Equal(said.Quotas, last.said.Quotas) || said.QuotasUnread != last.said.QuotasUnread
	last.said = said
	if m.nodes == nil {
		m.nodes = map[string]node{}
	}
	m.nodes[name] = last
	return changed
}

// Unconfirmed are the pods of a node whose decision the last renewal, as the cache shows it, does not
// confirm. While the agent knows a later decision than all of these, the cache may show decisions that
// the agent has replaced.
func (m *Markets) Unconfirmed(
	ctx context.Context, name string, decisions map[types.NamespacedName]*v1alpha1.PodAllocation, now time.Time,
) (allocation.Unconfirmed, error) {
	key := types.NamespacedName{Namespace: m.Namespace, Name: kube.AgentLease(name)}
	var lease coordinationv1.Lease
	if err := m.Leases.Get(ctx, key, &lease); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read the Lease of the agent of node %s: %w", name, err)
	}
	lease.Name = key.Name
	m.Renewed(&lease, now)
	var newest time.Time
	for _, pa := range decisions {
		if d := pa.Spec.Decision; d != nil && d.ObservedAt.After(newest) {
			newest = d.ObservedAt.Time
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n.epoch(now).After(newest) {
		return allocation.AllPods, nil
	}
	return n.said.Unconfirmed, nil
}

// Sight is when a decision was first seen, by the rule for Leases: on our own clock.
type Sight struct {
	observed    time.Time // by the agent's clock
	seen        time.Time
	unconfirmed time.Time // since when its agent does not stand by it; zero: it does
}

// Age is the time since the decision of that date was first seen. One that is found at our start counts
// from the time at which its date is believed.
func (s *Sight) Age(observed, now, believed time.Time) time.Duration {
	if !s.observed.Equal(observed) {
		s.seen = now
		if s.observed.IsZero() {
			s.seen = believed
		}
		s.observed = observed
	}
	return now.Sub(s.seen)
}

// Unconfirmed is for how long the agent has neither stood by a decision nor made another one.
func (s *Sight) Unconfirmed(confirmed bool, now time.Time) time.Duration {
	switch {
	case confirmed:
		s.unconfirmed = time.Time{}
		return 0
	case s.unconfirmed.IsZero():
		s.unconfirmed = now
	}
	return min(now.Sub(s.unconfirmed), now.Sub(s.seen))
}

// Last is what the Lease of a node said at its last renewal; the zero value where none is known.
func (m *Markets) Last(name string) allocation.NodeMarket {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[name].said
}

// Price is the price of a node as of the last renewal; 0 where none is known.
func (m *Markets) Price(name string) market.Price { return m.Last(name).Price }

// Drop forgets a node that does not exist any more.
func (m *Markets) Drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, name)
}
